"""Snowflakes: ids that are numbers, sort by time and are unique across runners. Arithmetic only, no I/O.

41 bits of milliseconds since 2024-01-01 UTC, 10 bits of machine id, 12 bits of sequence. Which machine id
and which timestamps a runner may use is decided elsewhere, by a lease; here nothing outside is issued.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from redis_cluster_kit.errors import Execution, PersistenceFailedError

__all__ = ["EPOCH_MS", "Snowflake", "SnowflakeGenerator"]

EPOCH_MS = 1_704_067_200_000
"""2024-01-01T00:00:00Z in Unix milliseconds: the first timestamp a snowflake can hold."""

_MACHINE_BITS = 10
_SEQUENCE_BITS = 12
_TIMESTAMP_SHIFT = _MACHINE_BITS + _SEQUENCE_BITS
_LAST_MACHINE_ID = (1 << _MACHINE_BITS) - 1
_LAST_SEQUENCE = (1 << _SEQUENCE_BITS) - 1
_LAST_MS = EPOCH_MS + (1 << 41) - 1
_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Snowflake(int):
    """An id made by `cluster.generate_id()`: an int of at most 63 bits whose parts can be read.

    Inside arguments, results and state it travels as a plain int and is a `Snowflake` again wherever the
    annotation says so. In JavaScript and in Lua it must stay text: it is larger than 2^53.
    """

    __slots__ = ()

    def __new__(cls, value: int) -> Snowflake:
        number = super().__new__(cls, value)
        if not 0 <= number < 1 << 63:
            raise ValueError(f"a snowflake has 63 bits and no sign, got {int(number)}")
        return number

    @classmethod
    def compose(cls, *, timestamp: int, machine_id: int, sequence: int = 0) -> Snowflake:
        """Return the snowflake of these parts; ValueError if one of them does not fit."""
        _check("timestamp", timestamp, EPOCH_MS, _LAST_MS)
        _check("machine_id", machine_id, 0, _LAST_MACHINE_ID)
        _check("sequence", sequence, 0, _LAST_SEQUENCE)
        return cls(_packed(timestamp, machine_id, sequence))

    @property
    def timestamp(self) -> int:
        """Unix milliseconds at which it was made; a little ahead if its runner's clock was set back."""
        return (int(self) >> _TIMESTAMP_SHIFT) + EPOCH_MS

    @property
    def machine_id(self) -> int:
        """The leased number of the runner that made it, 0 to 1023."""
        return int(self) >> _SEQUENCE_BITS & _LAST_MACHINE_ID

    @property
    def sequence(self) -> int:
        """Its place among those of the same millisecond and machine id, 0 to 4095."""
        return int(self) & _LAST_SEQUENCE

    @property
    def datetime(self) -> datetime:
        """`timestamp` as an aware UTC datetime, exact to the millisecond."""
        return _UNIX_EPOCH + timedelta(milliseconds=self.timestamp)


class SnowflakeGenerator:
    """Makes the snowflakes of one machine id, strictly increasing; safe to call from several threads.

    A hybrid logical clock: the wall clock leads, and where it stands still or was set back the last
    timestamp goes on by itself. Only timestamps above `floor_ms` and up to `ceiling_ms` are issued, the
    range that was reserved for this holder, so no other holder of the machine id can make the same id.
    """

    def __init__(self, machine_id: int, floor_ms: int, ceiling_ms: int, now_ms: Callable[[], int]) -> None:
        _check("machine_id", machine_id, 0, _LAST_MACHINE_ID)
        self._machine_id = machine_id
        self._ceiling_ms = ceiling_ms
        self._now_ms = now_ms
        # As if the floor's last id had been issued: the next one lies above it.
        self._last_ms = max(floor_ms, EPOCH_MS - 1)
        self._sequence = _LAST_SEQUENCE
        self._lock = threading.Lock()

    @property
    def machine_id(self) -> int:
        """The leased machine id in every snowflake of this generator."""
        return self._machine_id

    @property
    def ceiling_ms(self) -> int:
        """The last timestamp that may be issued now."""
        return self._ceiling_ms

    def next(self) -> Snowflake:
        """Return the next snowflake; `PersistenceFailedError` if the reserved timestamps are used up.

        Nothing is lost by a refusal: it goes on where it stopped as soon as `extend` allows.
        """
        with self._lock:
            moment, sequence = self._last_ms, self._sequence + 1
            if sequence > _LAST_SEQUENCE:
                moment, sequence = moment + 1, 0
            now = self._now_ms()
            if now > moment:
                moment, sequence = now, 0
            if moment > min(self._ceiling_ms, _LAST_MS):
                raise self._used_up(moment)
            self._last_ms, self._sequence = moment, sequence
        return Snowflake(_packed(moment, self._machine_id, sequence))

    def extend(self, ceiling_ms: int) -> None:
        """Allow timestamps up to `ceiling_ms`, as a renewed lease says; a lower one changes nothing."""
        with self._lock:
            self._ceiling_ms = max(self._ceiling_ms, ceiling_ms)

    def _used_up(self, moment: int) -> PersistenceFailedError:
        return PersistenceFailedError(
            store="machine ids",
            execution=Execution.NOT_EXECUTED,
            is_retryable=True,
            detail=f"machine id {self._machine_id} may issue timestamps up to {self._ceiling_ms} ms, "
            f"the next is {moment} ms; its lease must be renewed first",
        )


def _packed(timestamp: int, machine_id: int, sequence: int) -> int:
    return (timestamp - EPOCH_MS) << _TIMESTAMP_SHIFT | machine_id << _SEQUENCE_BITS | sequence


def _check(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ValueError(f"a snowflake's {name} lies from {least} to {most}, got {value}")
