"""Durable steps on real servers."""
