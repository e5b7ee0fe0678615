"""Mistakes with singletons that type checkers see, marked as in `entities.py`."""

from datetime import timedelta

import msgspec

from redis_cluster_kit.entity import Registry, SingletonContext

registry = Registry()


class Progress(msgspec.Struct):
    seen: int = 0


class Other(msgspec.Struct):
    text: str = ""


@registry.singleton("sync", state=Progress)  # error: arg-type, reportArgumentType
def sync(ctx: SingletonContext[Progress]) -> None: ...


@registry.singleton("another", state=Other)  # error: arg-type, reportArgumentType
async def another(ctx: SingletonContext[Progress]) -> None: ...


@registry.singleton("stateless")  # error: arg-type, reportArgumentType
async def stateless(ctx: SingletonContext[Progress]) -> None: ...


@registry.singleton("counting", state=Progress)
async def counting(ctx: SingletonContext[Progress]) -> None:
    ctx.state.sean += 1  # error: attr-defined, reportAttributeAccessIssue
    await ctx.set(Other())  # error: arg-type, reportArgumentType
    await ctx.patch(Progress, seen="1")  # error: arg-type, reportArgumentType
    ctx.heartbeat()  # error: unused-coroutine, reportUnusedCoroutine
    async for _ in ctx.every(5):  # error: arg-type, reportArgumentType
        text: str = ctx.fence  # error: assignment, reportAssignmentType
        print(text)


registry.singleton("a", state=Progress, expected_interval=30)  # error: call-overload, reportArgumentType
registry.singleton("b", state=Progress, colour="red")  # error: call-overload, reportCallIssue
registry.singleton("c", state_ttl=timedelta(1))  # error: call-overload, reportCallIssue
