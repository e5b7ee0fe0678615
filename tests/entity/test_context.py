"""The context variable: who sees which context, in nested blocks, concurrent code and threads."""

from __future__ import annotations

import dataclasses

import anyio
import anyio.to_thread
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redis_cluster_kit.entity import ClusterContext, ContextFields, current, within_cluster
from redis_cluster_kit.errors import ClusterContextRequired
from redis_cluster_kit.identity import ShardId


def test_outside_there_is_none() -> None:
    with pytest.raises(ClusterContextRequired, match=r"inside within_cluster\(\.\.\.\)"):
        current()


def test_a_block_has_its_fields_and_ends() -> None:
    shard = ShardId("default", 42)
    with within_cluster(shard_id=shard, entity_type="account", entity_id="alice", fence=7) as opened:
        assert current() is opened
        assert opened == ClusterContext(shard_id=shard, entity_type="account", entity_id="alice", fence=7)
        assert (opened.attempt, opened.is_leader, opened.message_id) == (1, False, None)
    with pytest.raises(ClusterContextRequired):
        current()


def test_an_error_ends_the_block_too() -> None:
    with pytest.raises(KeyError), within_cluster():
        raise KeyError
    with pytest.raises(ClusterContextRequired):
        current()


def test_an_inner_block_keeps_what_it_does_not_name() -> None:
    with within_cluster(runner_id="pod-1", fence=7):
        with within_cluster(fence=8, attempt=2):
            assert current() == ClusterContext(runner_id="pod-1", fence=8, attempt=2)
        assert current() == ClusterContext(runner_id="pod-1", fence=7)


def test_an_unknown_field_is_refused_and_a_context_is_frozen() -> None:
    with pytest.raises(TypeError, match="colour"):
        within_cluster(colour="red")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with within_cluster() as opened, pytest.raises(dataclasses.FrozenInstanceError):
        opened.fence = 1  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


def test_the_keywords_are_the_fields() -> None:
    fields = {field.name: field.type for field in dataclasses.fields(ClusterContext)}
    assert {name: hint.__forward_arg__ for name, hint in ContextFields.__annotations__.items()} == fields


async def test_concurrent_code_sees_its_own() -> None:
    seen: dict[str, str | None] = {}
    inside = anyio.Event()
    looked = anyio.Event()

    async def one() -> None:
        with within_cluster(entity_id="alice"):
            inside.set()
            await looked.wait()
            seen["one"] = current().entity_id

    async def other() -> None:
        await inside.wait()
        with within_cluster(entity_id="bob"):
            seen["other"] = current().entity_id
        with pytest.raises(ClusterContextRequired):
            current()
        looked.set()

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(one)
            group.start_soon(other)
    assert seen == {"one": "alice", "other": "bob"}


async def test_a_thread_of_the_handler_sees_its_context() -> None:
    with within_cluster(entity_id="alice"):
        assert (await anyio.to_thread.run_sync(current)).entity_id == "alice"


@given(st.lists(st.integers(1, 99), max_size=6))
def test_blocks_nest_to_any_depth(fences: list[int]) -> None:
    def descend(rest: list[int]) -> None:
        if rest:
            with within_cluster(fence=rest[0]):
                descend(rest[1:])
                assert current().fence == rest[0]

    descend(fences)
    with pytest.raises(ClusterContextRequired):
        current()
