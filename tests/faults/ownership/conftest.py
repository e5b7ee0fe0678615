"""A crew of fenced writers on servers that may be killed: one for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from redis_cluster_kit.embedded import RedisServer

from .crew import Crew


@pytest.fixture
async def crew(
    private_valkey: RedisServer, postgres_url: str, namespace: str, tmp_path: Path
) -> AsyncIterator[Crew]:
    """Nobody has joined yet: the test says who does, and changes what it must before."""
    folder = tmp_path / "history"
    folder.mkdir()
    made = Crew(private_valkey.url, postgres_url, namespace, folder)
    yield made
    await made.close()
