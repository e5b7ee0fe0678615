"""A cron's instant as a message: to which entity, under which id, and how it gets into its mailbox.

The id follows from the cron's name and the instant, so sending it again adds nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from redis_cluster_kit.delivery import Mailboxes, Parcel, keyed_id
from redis_cluster_kit.entity import TICK_MAILBOX, tick_type
from redis_cluster_kit.envelope import Envelope, seal_envelope
from redis_cluster_kit.identity import ShardId, public_message_id, shard_number
from redis_cluster_kit.telemetry import outgoing_trace

_RPC = "run"
_KEY = "tick"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


class TickPlace(NamedTuple):
    """Where the message of one instant goes."""

    shard: ShardId
    type: str
    entity_id: str
    id: str
    scheduled: int

    @property
    def member(self) -> str:
        """The entity as shards name it."""
        return f"{self.type}:{self.entity_id}"

    @property
    def message_id(self) -> str:
        """Text by which any pod finds the message."""
        return public_message_id(self.id, self.shard.group, self.type, self.entity_id)


class TickMessages:
    """The messages of one namespace's ticks."""

    def __init__(self, mailboxes: Mailboxes, shard_counts: Mapping[str, int]) -> None:
        self.mailboxes = mailboxes
        self._counts = shard_counts

    def place(self, name: str, group: str, scheduled: int) -> TickPlace:
        """Return where the tick of this instant goes: the same on every pod."""
        kind, id = tick_type(name), instant_text(scheduled)
        namespace = self.mailboxes.keyspace.namespace
        shard = ShardId(group, shard_number(kind, id, self._counts[group]))
        return TickPlace(shard, kind, id, keyed_id(namespace, f"{kind}:{id}", _KEY), scheduled)

    async def send(self, place: TickPlace, *, due: int | None = None, again: bool = False) -> str:
        """Put it into its mailbox, at `due` if given; return the outcome word. Safe to repeat at any time.

        However late it comes: a tick whose row says that it is over, or is gone, runs nothing.
        """
        parcel = Parcel(
            group=place.shard.group,
            number=place.shard.number,
            member=place.member,
            id=place.id,
            message=seal_envelope(Envelope(rpc=_RPC, trace=outgoing_trace({}))),
            kind="k",
            capacity=TICK_MAILBOX,
            due=due,
        )
        return (await self.mailboxes.put(parcel, 0, again=again)).word


def cron_shard(group: str, name: str, shard_counts: Mapping[str, int]) -> ShardId:
    """Return the shard whose owner plans a cron."""
    return ShardId(group, shard_number("cron", name, shard_counts[group]))


def instant_text(scheduled: int) -> str:
    """Return an instant as the id of an entity: `2026-11-19T02:00:00Z`."""
    text = moment(scheduled).isoformat(timespec="milliseconds" if scheduled % 1000 else "seconds")
    return text.replace("+00:00", "Z")


def instant_ms(text: str) -> int:
    """Read `instant_text` back."""
    return milliseconds(datetime.fromisoformat(text))


def moment(milliseconds: int) -> datetime:
    """Return an instant as an aware datetime in UTC."""
    return _EPOCH + milliseconds * _MS


def milliseconds(moment: datetime) -> int:
    """Return an instant in milliseconds since 1970."""
    return (moment - _EPOCH) // _MS
