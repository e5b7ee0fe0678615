"""Which entities are in memory, and which of them have been idle for longest: those go first."""

from __future__ import annotations

from collections.abc import Iterator

from .activation import EntityActivation


class Residents:
    """Every activation of a runner, the idle ones of each type in the order in which they became so."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._all: dict[EntityActivation, None] = {}
        self._idle: dict[str, dict[EntityActivation, None]] = {}
        self._leaving: set[EntityActivation] = set()
        """Those that were asked to go and have not gone: they count no more."""

    def __len__(self) -> int:
        return len(self._all)

    def of_type(self, name: str) -> list[EntityActivation]:
        """Return those of one type."""
        return [activation for activation in self._all if activation.definition.name == name]

    def arrived(self, activation: EntityActivation) -> None:
        """Count one more; above the limit the longest idle one has to go."""
        self._all[activation] = None
        self._evict()

    def gone(self, activation: EntityActivation) -> None:
        """Count one less."""
        self._all.pop(activation, None)
        self._leaving.discard(activation)
        self.busy(activation)

    def idle(self, activation: EntityActivation) -> None:
        """It waits for messages from now on; above the limit the longest idle one has to go, maybe this."""
        self._leaving.discard(activation)
        self._idle.setdefault(activation.definition.name, {})[activation] = None
        self._evict()

    def busy(self, activation: EntityActivation) -> None:
        """It is at work, or gone."""
        idle = self._idle.get(activation.definition.name)
        if idle is not None:
            idle.pop(activation, None)

    def passivate(self, now: float) -> None:
        """Ask those to leave that have been idle for longer than their type allows."""
        for idle in self._idle.values():
            for activation in _too_old(idle, now):
                idle.pop(activation, None)
                self._let_go(activation)

    def _evict(self) -> None:
        if len(self._all) - len(self._leaving) <= self._most:
            return
        firsts = (next(iter(idle), None) for idle in self._idle.values())
        candidates = [activation for activation in firsts if activation is not None]
        if candidates:
            oldest = min(candidates, key=lambda activation: activation.idle_since)
            self.busy(oldest)
            self._let_go(oldest)

    def _let_go(self, activation: EntityActivation) -> None:
        self._leaving.add(activation)
        activation.leave()


def _too_old(idle: dict[EntityActivation, None], now: float) -> Iterator[EntityActivation]:
    for activation in list(idle):
        if now - activation.idle_since < activation.definition.max_idle.total_seconds():
            return  # the rest has become idle later
        yield activation
