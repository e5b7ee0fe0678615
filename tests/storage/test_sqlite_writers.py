"""Processes that write one SQLite file as fast as they can leave room for a grant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from redis_cluster_kit.storage import Database, FenceRegister

# What a runner has for a fence: a third of the default TTL.
GRANT_TIMEOUT = 5.0 / 3
GRANTS = 150


async def test_two_busy_writers_do_not_starve_a_grant(
    sqlite_database: Database, sqlite_url: str, crew: Any, namespace: str, tmp_path: Path
) -> None:
    register, stop = FenceRegister(sqlite_database, namespace), tmp_path / "stop"
    fence = (await register.grant("g", {0: 0}, "writers", timeout=GRANT_TIMEOUT))[0]
    calls = [
        {"do": "write_until", "namespace": namespace, "name": name, "fence": fence, "stop": str(stop)}
        for name in ("a", "b")
    ]
    await crew.begin(sqlite_url, calls)
    writers = crew.members[:2]
    try:
        for writer in writers:
            await writer.wait_for("writing")
        for turn in range(1, GRANTS + 1):
            granted = await register.grant("g", dict.fromkeys(range(1, 101), 0), "n", timeout=GRANT_TIMEOUT)
            assert set(granted.values()) == {turn}
    finally:
        stop.touch()
    versions = [(await writer.wait_for("done"))["result"] for writer in writers]
    assert min(versions) > 10, "the writers were hardly there: this proves nothing"
