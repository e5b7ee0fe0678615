"""Helpers for tests of `rck`: calling it in this process or as one of its own, and a cluster to look at."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
from click.testing import CliRunner

from redis_cluster_kit import Cluster, LeaseSettings, Settings, ShardSettings, ShortLeaseWarning
from redis_cluster_kit.cli.program import rck as program
from redis_cluster_kit.testing import until

COMMAND = (sys.executable, "-c", "from redis_cluster_kit.cli import main; main()")
SHARDS = 12


@pytest.fixture(autouse=True)
def short_leases_are_meant() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShortLeaseWarning)
        yield


@dataclass(frozen=True)
class Answer:
    """What a call of `rck` said."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


@dataclass
class Rck:
    """Calls `rck` with the variables a service would have."""

    variables: dict[str, str] = field(default_factory=dict[str, str])

    async def __call__(self, *words: str, input: str | None = None, **variables: str) -> Answer:
        """Call it in this process, in a thread: a cluster may run beside it."""
        environment: dict[str, str | None] = dict.fromkeys(name for name in os.environ if name[:4] == "RCK_")
        environment |= self.variables | variables

        def call() -> Answer:
            result = CliRunner().invoke(program, words, env=environment, input=input)
            if result.exception is not None and not isinstance(result.exception, SystemExit):
                raise result.exception
            return Answer(result.exit_code, result.stdout, result.stderr)

        return await anyio.to_thread.run_sync(call)

    def environment(self, **variables: str) -> dict[str, str]:
        """Return the whole environment for a process of its own."""
        plain = {name: value for name, value in os.environ.items() if name[:4] != "RCK_"}
        return plain | self.variables | variables

    async def process(self, *words: str, timeout: float = 60.0, **variables: str) -> Answer:
        """Call it as a process, to its end."""

        def call() -> Answer:
            done = subprocess.run(
                [*COMMAND, *words],
                env=self.environment(**variables),
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
                stdin=subprocess.DEVNULL,
            )
            return Answer(done.returncode, done.stdout, done.stderr)

        return await anyio.to_thread.run_sync(call)


@pytest.fixture
def rck(valkey: Any, sqlite_url: str, namespace: str) -> Rck:
    """`rck` for the shared server and a database of this test's own."""
    return Rck({"RCK_REDIS": valkey.url, "RCK_DATABASE": sqlite_url, "RCK_NAMESPACE": namespace})


Join = Callable[..., Awaitable[Cluster]]


@asynccontextmanager
async def joined(rck: Rck, **options: Any) -> AsyncIterator[Cluster]:
    """A runner of the cluster `rck` looks at, which owns all its shards."""
    lease = options.pop("lease", LeaseSettings(ttl=timedelta(seconds=1)))
    options.setdefault("settings", Settings(lease=lease, shards=ShardSettings(per_group=SHARDS)))
    options.setdefault("database", rck.variables["RCK_DATABASE"])
    cluster = Cluster(rck.variables["RCK_REDIS"], namespace=rck.variables["RCK_NAMESPACE"], **options)
    async with cluster:
        runner = cluster._runner
        assert runner is not None
        ownership = runner.ownership
        if ownership is not None:
            await until(lambda: not ownership.missing and ownership.owned, what="it owns its shards")
        yield cluster


@pytest.fixture
def app_folder(tmp_path: Path) -> Path:
    """A folder with `app.py`, whose cluster takes its stores from the variables."""
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


APP = """
import os, warnings
from datetime import timedelta
from redis_cluster_kit import Cluster, LeaseSettings, Settings, ShardSettings

warnings.simplefilter("ignore")
settings = Settings(lease=LeaseSettings(ttl=timedelta(seconds=1)), shards=ShardSettings(per_group=4))
stores = os.environ["RCK_REDIS"], os.environ["RCK_DATABASE"]
cluster = Cluster(*stores, namespace=os.environ["RCK_NAMESPACE"], settings=settings)

def make():
    return cluster
"""
