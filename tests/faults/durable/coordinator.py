"""The singleton of the documentation: it fetches what is new, and saves how far it has come."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from redis_cluster_kit import SingletonContext

from .stage import STAGE

ITEMS = ["1", "2", "3", "4", "5", "6"]


class Batch(msgspec.Struct):
    items: list[str]
    last: str

    def __len__(self) -> int:
        return len(self.items)


class Progress(msgspec.Struct):
    last_id: str = ""
    seen: int = 0


async def fetch_batch(after: str) -> Batch:
    """Return the two items after this one."""
    STAGE.effect(f"fetch after {after!r}")
    first = ITEMS.index(after) + 1 if after else 0
    items = ITEMS[first : first + 2]
    return Batch(items, items[-1] if items else after)


async def coordinator(ctx: SingletonContext[Progress]) -> None:
    async for _ in ctx.every(timedelta(milliseconds=50)):
        batch = await ctx.step("fetch", fetch_batch, ctx.state.last_id)
        await ctx.update(last_id=batch.last, seen=ctx.state.seen + len(batch))
