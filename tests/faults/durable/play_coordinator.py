"""A pod with the coordinator, until that has fetched everything."""

from __future__ import annotations

import json
from typing import Any

import anyio

from redis_cluster_kit import Cluster, Registry
from redis_cluster_kit.storage import Journal, SingletonExecutions
from redis_cluster_kit.storage.redis_state import RedisState
from redis_cluster_kit.storage.sql_state import SqlState

from . import coordinator
from .stage import STAGE, around, each_line


async def main(given: dict[str, Any]) -> None:
    """Lead the coordinator until all is fetched."""
    settings = STAGE.begin(given)
    around(Journal, "record", "forget")
    around(SingletonExecutions, "round", "open", "close")
    around(SqlState, "write")
    around(RedisState, "write")
    registry = Registry()
    registry.singleton("coordinator", state=coordinator.Progress)(coordinator.coordinator)
    cluster = Cluster(
        given["redis"],
        given["database"],
        namespace=given["namespace"],
        settings=settings,
        include=[registry],
    )
    each_line(coordinator.__file__)
    async with cluster:
        with anyio.fail_after(60):
            while True:
                found = await cluster.singleton_state("coordinator", coordinator.Progress, fresh=True)
                if found is not None and found.state.last_id == coordinator.ITEMS[-1]:
                    break
                await anyio.sleep(0.02)
        await STAGE.forgotten()
    told = {"end": [found.state.last_id, found.state.seen], "passed": STAGE.passed}
    (STAGE.folder / f"{given['pod']}.json").write_text(json.dumps(told))
