"""A small HTTP client for probes: one request, in a thread, whatever its status."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any, NamedTuple

import anyio.to_thread


class Answer(NamedTuple):
    status: int
    kind: str
    body: str

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def get_now(url: str, method: str = "GET", **headers: str) -> Answer:
    """Ask from this thread; status 0: nobody listens."""
    request = urllib.request.Request(url, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return Answer(answer.status, answer.headers["content-type"], answer.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.headers["content-type"], error.read().decode())
    except (urllib.error.URLError, ConnectionError):
        return Answer(0, "", "")


async def get(url: str, method: str = "GET", **headers: str) -> Answer:
    """Ask and do not block the loop."""
    return await anyio.to_thread.run_sync(lambda: get_now(url, method, **headers))
