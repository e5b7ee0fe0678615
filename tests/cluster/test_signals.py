"""SIGTERM drains and leaves; a second one exits at once."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.testing import ChildProcess, until

PROGRAM = f"{Path(__file__).parent / 'signalled.py'}:main"


def arguments(valkey: RedisServer, database: str, namespace: str, **more: Any) -> str:
    return json.dumps({"redis": valkey.url, "database": database, "namespace": namespace, **more})


def leases(valkey: RedisServer, namespace: str) -> int:
    found = valkey.call("KEYS", f"rck:{{{namespace}:*lease*")
    assert isinstance(found, list)
    return len(found)


async def test_sigterm_drains_and_leaves(valkey: RedisServer, sqlite_url: str, namespace: str) -> None:
    async with ChildProcess(PROGRAM, arguments(valkey, sqlite_url, namespace)) as child:
        await child.wait_for("serving")
        assert leases(valkey, namespace) == 8
        child.terminate()
        assert (await child.wait_for("drained"))["owned"] == 0
        await child.wait_for("left")
        assert await child.wait() == 0
    assert leases(valkey, namespace) == 0
    assert valkey.call("EXISTS", f"rck:{{{namespace}:00}}:members") == 0


async def test_work_beyond_the_budget_is_cut_short(
    valkey: RedisServer, sqlite_url: str, namespace: str
) -> None:
    options = arguments(valkey, sqlite_url, namespace, hold=3600, budget=0.3)
    async with ChildProcess(PROGRAM, options) as child:
        await child.wait_for("serving")
        child.terminate()
        await child.wait_for("left")
        assert await child.wait() == 0
    assert leases(valkey, namespace) == 0


async def test_a_second_signal_exits_at_once(valkey: RedisServer, sqlite_url: str, namespace: str) -> None:
    options = arguments(valkey, sqlite_url, namespace, hold=3600, budget=3600)
    async with ChildProcess(PROGRAM, options) as child:
        await child.wait_for("serving")
        child.terminate()
        draining = f"rck:{{{namespace}:00}}:members"
        await until(lambda: '"draining":true' in str(valkey.call("HVALS", draining)), what="it drains")
        child.terminate()
        assert await child.wait() == 128 + signal.SIGTERM
    assert [event.name for event in child.events][-1] == "serving"
