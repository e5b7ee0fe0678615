"""Fixtures every test may use: the event loop, real servers, a namespace of its own."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The kit runs on anyio's asyncio backend."""
    return "asyncio"
