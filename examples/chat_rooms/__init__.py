"""Chat rooms: a room knows its members and its latest lines, and sends each new line to every member.

`python -m examples.chat_rooms` shows it on a server of its own. `rooms.py` is what to copy.
"""
