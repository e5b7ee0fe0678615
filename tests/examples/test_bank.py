"""The bank example runs as a program: on a server of its own, and as one pod of several."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio.to_thread

from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.testing import ChildProcess

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "examples" / "bank" / "bank.py"


def run(**variables: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(PROGRAM)],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if not line.endswith("is on its way")]


def check(lines: list[str]) -> None:
    first, second, third = lines
    found = re.fullmatch(r"100 transfers were asked for twice each: (\d+) paid once, (\d+) declined", first)
    assert found is not None
    assert int(found[1]) > 0
    assert int(found[1]) + int(found[2]) == 100
    assert second == "4 accounts hold 400, as in the beginning"
    assert third == "the auditor says 400"


def test_on_a_server_of_its_own() -> None:
    check(run())


async def test_beside_another_pod(private_valkey: RedisServer, sqlite_url: str) -> None:
    """Accounts and auditor may be served by either; a second run finds the accounts opened already."""
    stores: dict[str, Any] = {"BANK_REDIS": private_valkey.url, "BANK_DATABASE": sqlite_url}
    async with ChildProcess(f"{__file__}:serve", env=stores, pythonpath=[ROOT]) as pod:
        await pod.wait_for("joined", timeout=60)
        check(await anyio.to_thread.run_sync(lambda: run(**stores)))
        pod.terminate()
        assert await pod.wait() == 0


async def serve() -> None:
    """In the other pod."""
    from examples.bank.bank import make_cluster
    from redis_cluster_kit.testing import emit

    async with make_cluster() as cluster:
        emit("joined")
        await cluster.run_forever()
