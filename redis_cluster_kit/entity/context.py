"""Where the running code is in the cluster: which entity, shard, fence and message. One context variable.

The runtime opens a context for each turn, singleton and tick; `within_cluster` opens one by hand. Nothing
here talks to a cluster.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Generator
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import Protocol, TypedDict, Unpack

from redis_cluster_kit.errors import ClusterContextRequired
from redis_cluster_kit.identity import ShardId

__all__ = ["ClusterContext", "ContextFields", "current", "within_cluster"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterContext:
    """What a handler can know about its own turn; `current()` returns it."""

    shard_id: ShardId | None = None
    """The shard whose lease this code runs under."""
    runner_id: str = ""
    """This pod's id, as `cluster.runner_id`."""
    entity_type: str | None = None
    """The stored name of the entity's type; None in singletons and ticks."""
    entity_id: str | None = None
    """The entity's id; None in singletons and ticks."""
    is_leader: bool = False
    """Whether this is code that runs once in the cluster: a singleton's on its leader, or a tick's."""
    fence: int = 0
    """The number of the lease, to hand to stores of your own; 0 only in a context made by hand."""
    message_id: str | None = None
    """The public id of the message being handled."""
    attempt: int = 1
    """Which attempt this is; 1 is the first."""


class ContextFields(TypedDict, total=False):
    """The keywords of `within_cluster`: those of `ClusterContext`."""

    shard_id: ShardId | None
    runner_id: str
    entity_type: str | None
    entity_id: str | None
    is_leader: bool
    fence: int
    message_id: str | None
    attempt: int


class ContextSource(Protocol):
    """What can say where the running code is: made only when somebody asks."""

    def context(self) -> ClusterContext: ...


_CURRENT: ContextVar[ClusterContext | ContextSource | None] = ContextVar("rck_cluster_context", default=None)


def current() -> ClusterContext:
    """Return the context of the turn, singleton or tick that runs here, else `ClusterContextRequired`."""
    context = _known()
    if context is None:
        raise ClusterContextRequired
    return context


def _known() -> ClusterContext | None:
    found = _CURRENT.get()
    return found if found is None or isinstance(found, ClusterContext) else found.context()


def enter_context(source: ContextSource) -> Token[ClusterContext | ContextSource | None]:
    """Let `source` say where the code is that runs here; hand the token to `leave_context`."""
    return _CURRENT.set(source)


def leave_context(token: Token[ClusterContext | ContextSource | None]) -> None:
    """Go back to what was before."""
    _CURRENT.reset(token)


def within_cluster(**fields: Unpack[ContextFields]) -> AbstractContextManager[ClusterContext]:
    """Run a `with` block as if inside a cluster; inside another context, fields not named keep its values."""
    base = _known() or ClusterContext()
    return _opened(dataclasses.replace(base, **fields))


# The return types hide that this is also a decorator: around an async function it would scope only the
# making of the coroutine.
@contextlib.contextmanager
def _opened(context: ClusterContext) -> Generator[ClusterContext]:
    token = _CURRENT.set(context)
    try:
        yield context
    finally:
        _CURRENT.reset(token)


def cluster_required(what: str) -> ClusterContextRequired:
    """Return the error for `what`, which was used on an instance that no cluster has activated."""
    error = ClusterContextRequired()
    error.add_note(f"{what} needs a cluster: get the entity from cluster.entity(...), or use it in a handler")
    return error
