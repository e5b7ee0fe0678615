"""Hides what nobody may read in texts that are shown: users and passwords of URLs. No I/O."""

from __future__ import annotations

import re

# Query parameters first: a password there may hold an `@`. Both patterns start at a fixed text, so a
# long hostile input costs linear time.
_SECRET_PARAMETER = re.compile(r"((?:password|passwd|username)=)[^&\s#]*", re.IGNORECASE)
_USER_INFO = re.compile(r"(://)(?:(?!://)\S)*@")


def redact(text: str) -> str:
    """Hide user and password of every URL inside `text`, query parameters too; rather too much than less."""
    text = _SECRET_PARAMETER.sub(r"\1***", text) if "=" in text else text
    return _USER_INFO.sub(r"\1***@", text) if "@" in text else text
