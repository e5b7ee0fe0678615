"""Executions of singletons that failed too often, and what can be done about them by hand."""

from __future__ import annotations

from collections.abc import Sequence

from redis_cluster_kit.storage import Journal, RecordedCall, SetAside, SingletonExecutions, parse_set_aside

from .execution_stores import SINGLETON


class SetAsideExecutions:
    """The executions of singletons that failed too often; `cluster.executions`. Messages are dead letters."""

    def __init__(self, journal: Journal, singletons: SingletonExecutions, *, timeout: float) -> None:
        self._journal = journal
        self._singletons = singletons
        self._timeout = timeout

    async def list(self) -> Sequence[SetAside]:
        """Return them, oldest first."""
        return await self._singletons.list(timeout=self._timeout)

    async def recorded(self, id: str) -> Sequence[RecordedCall]:
        """Return the durable calls in the journal of one, in the order they came."""
        name, execution = parse_set_aside(id)
        return await self._singletons.recorded(name, execution, timeout=self._timeout)

    async def retry(self, id: str) -> bool:
        """Let the singleton go on with it as soon as the open execution has ended; False: there is none.

        RuntimeError while another one that was put back has not ended: one after the other.
        """
        name, execution = parse_set_aside(id)
        before = await self._singletons.put_back(name, execution, timeout=self._timeout)
        if before:
            raise RuntimeError(
                f"execution {before}@{name} was put back and has not ended: retry {id} when it is done"
            )
        return before is not None

    async def drop(self, id: str) -> bool:
        """Forget one for good; False: there is none of this id."""
        name, execution = parse_set_aside(id)
        if not await self._singletons.is_aside(name, execution, timeout=self._timeout):
            return False
        await self._journal.forget([(SINGLETON + name, execution)], timeout=self._timeout)
        return True
