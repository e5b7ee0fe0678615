"""A turn as seen from inside: what it stages, whom it may ask, what `current()` says. One context variable.

The runtime opens a turn around each handler and commits what it holds; nothing here talks to a store.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Generator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from redis_cluster_kit.entity.context import ClusterContext
from redis_cluster_kit.identity import EntityAddress, public_message_id

if TYPE_CHECKING:
    from redis_cluster_kit.entity.durable import DurableRun

_TURN: ContextVar[Turn | None] = ContextVar("rck_turn", default=None)


class Turn:
    """One message handled by one activation, or the start or stop of one."""

    __slots__ = (
        "_before_wait",
        "_durable",
        "_open_durable",
        "address",
        "attempt",
        "chain",
        "fence",
        "is_over",
        "message_id",
        "runner_id",
        "staged",
        "trace",
    )

    def __init__(
        self,
        address: EntityAddress,
        runner_id: str,
        fence: int,
        *,
        message_id: str | None = None,
        attempt: int = 1,
        chain: tuple[str, ...] = (),
        trace: dict[str, str] | None = None,
        before_wait: Callable[[], Awaitable[None]] | None = None,
        open_durable: Callable[[Turn], DurableRun] | None = None,
    ) -> None:
        self.address = address
        self.runner_id = runner_id
        self.fence = fence
        self.message_id = message_id
        self.attempt = attempt
        self.chain = chain
        """The entities whose turns wait for this one, and this one's."""
        self.trace = trace or {}
        self.staged: list[bytes] = []
        """What leaves with the commit, as outbox items."""
        self.is_over = False
        self._before_wait = before_wait
        self._open_durable = open_durable
        self._durable: DurableRun | None = None

    async def before_wait(self) -> None:
        """Make sure that somebody has noted who handles this message, before the turn waits for others."""
        if self._before_wait is not None:
            before, self._before_wait = self._before_wait, None
            await before()

    def durable_run(self) -> DurableRun | None:
        """Return the run that durable calls of this turn go to, made with the first; None: it has none."""
        if self._durable is None and self._open_durable is not None:
            self._durable = self._open_durable(self)
        return self._durable

    @property
    def opened_run(self) -> DurableRun | None:
        """The same, None if this turn has made no durable call."""
        return self._durable

    def context(self) -> ClusterContext:
        """Return what `current()` says inside."""
        address = self.address
        id = self.message_id
        return ClusterContext(
            shard_id=address.shard,
            runner_id=self.runner_id,
            entity_type=address.type,
            entity_id=address.id,
            fence=self.fence,
            message_id=id and public_message_id(id, address.shard.group, address.type, address.id),
            attempt=self.attempt,
        )


def current_turn() -> Turn | None:
    """Return the turn that runs here and is not over, None outside of one."""
    turn = _TURN.get()
    return None if turn is None or turn.is_over else turn


def enter_turn(turn: Turn) -> Any:
    """Make `turn` the one that runs here; hand the token to `leave_turn`."""
    return _TURN.set(turn)


def leave_turn(turn: Turn, token: Any) -> None:
    """End it: what its code started and left running sends for itself from now on."""
    turn.is_over = True
    _TURN.reset(token)


@contextlib.contextmanager
def outside_turn() -> Generator[None]:
    """Let what runs in this block send and ask as code outside of any turn does: at once."""
    token = _TURN.set(None)
    try:
        yield
    finally:
        _TURN.reset(token)
