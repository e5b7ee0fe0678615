"""`rck executions`: what is set aside, and what can be done about it by hand."""

from __future__ import annotations

from datetime import timedelta

import anyio
import msgspec

from redis_cluster_kit import (
    DurableSettings,
    LeaseSettings,
    Registry,
    Settings,
    ShardSettings,
    SingletonContext,
)
from redis_cluster_kit.testing import until

from .conftest import Rck, joined


class Progress(msgspec.Struct):
    seen: int = 0


def broken() -> Registry:
    """A singleton whose first two executions fail."""
    registry, raises = Registry(), [ValueError("the first"), ValueError("the second")]

    @registry.singleton("coordinator", state=Progress)
    async def coordinator(ctx: SingletonContext[Progress]) -> None:
        await ctx.step("fetch", len, "abc")
        if raises:
            raise raises.pop(0)
        await anyio.sleep_forever()

    return registry


def settings() -> Settings:
    return Settings(
        lease=LeaseSettings(ttl=timedelta(seconds=1)),
        shards=ShardSettings(per_group=4),
        durable=DurableSettings(max_attempts=1),
    )


async def test_executions_are_listed_shown_retried_and_dropped(rck: Rck) -> None:
    async with joined(rck, include=[broken()], settings=settings()) as cluster:

        async def two_are_aside() -> bool:
            return len(await cluster.executions.list()) == 2

        await until(two_are_aside, timeout=20, what="two are set aside")
        first, second = (await rck("executions", "list", "--json")).data
        assert (first["singleton"], first["failures"], first["steps"]) == ("coordinator", 1, 1)
        assert (first["error"], first["status"]) == ("ValueError: the first", "set aside")
        assert "ValueError: the second" in (await rck("executions", "list")).out

        shown = await rck("executions", "show", first["id"])
        assert "step fetch" in shown.out
        asked = await rck("executions", "show", first["id"], "--json")
        assert [(call["what"], call["name"], call["bytes"]) for call in asked.data["recorded"]] == [
            ("step", "fetch", 1)
        ]
        assert (await rck("executions", "show", "9.9@coordinator")).code == 2

        assert (await rck("executions", "retry", first["id"], "--yes", "--json")).data["retried"] is True
        assert (await rck("executions", "list", "--json")).data[0]["status"] == "put back"
        refused = await rck("executions", "retry", second["id"], "--yes")
        assert refused.code == 2
        assert "was put back and has not ended" in refused.err
        assert (await rck("executions", "drop", second["id"], "--yes")).code == 0
        assert (await rck("executions", "drop", second["id"], "--yes")).code == 1
        assert len((await rck("executions", "list", "--json")).data) == 1


async def test_changing_executions_asks_first_and_ids_are_checked(rck: Rck) -> None:
    async with joined(rck, include=[broken()], settings=settings()):
        for verb in ("retry", "drop"):
            answer = await rck("executions", verb, "0.0@coordinator")
            assert answer.code == 2
            assert "--yes" in answer.err
        answer = await rck("executions", "drop", "coordinator", "--yes")
        assert answer.code == 2
        assert "<number>@<singleton>" in answer.err


async def test_without_a_database_it_says_what_is_missing(rck: Rck) -> None:
    answer = await rck("executions", "list", RCK_DATABASE="")
    assert answer.code == 2
    assert "RCK_DATABASE" in answer.err
    answer = await rck("executions", "list", "--json")
    assert answer.code == 2
    assert "rck migrate" in answer.data["error"]
