"""Durable steps whose runners are killed, stopped and made wrong."""
