"""Moving messages: mailboxes, replies, schedules, outboxes, dead letters; not what a message does."""

from .dead_letters import DeadLetter, DeadLetters
from .mailbox import (
    FROM_THE_START,
    NOTHING_OLDER,
    Lookup,
    Mailboxes,
    MailboxParked,
    Put,
    SavedState,
    read_message,
    refuse_fenced,
)
from .outbox import CAPACITY, MOST_SENDS, OutboxItem, Relay, seal_item
from .parcel import (
    NO_CHECK,
    DeadRecord,
    HeldFence,
    Message,
    Parcel,
    check_of,
    keyed_id,
    place_of,
    read_entry,
    split_place,
)
from .parking import Parking
from .replies import Replies, Reply, ReplyPlace, declared_reply, failed_reply, open_reply, result_reply
from .scheduled import DueList, DueMessage, Scheduled

__all__ = [
    "CAPACITY",
    "FROM_THE_START",
    "MOST_SENDS",
    "NOTHING_OLDER",
    "NO_CHECK",
    "DeadLetter",
    "DeadLetters",
    "DeadRecord",
    "DueList",
    "DueMessage",
    "HeldFence",
    "Lookup",
    "MailboxParked",
    "Mailboxes",
    "Message",
    "OutboxItem",
    "Parcel",
    "Parking",
    "Put",
    "Relay",
    "Replies",
    "Reply",
    "ReplyPlace",
    "SavedState",
    "Scheduled",
    "check_of",
    "declared_reply",
    "failed_reply",
    "keyed_id",
    "open_reply",
    "place_of",
    "read_entry",
    "read_message",
    "refuse_fenced",
    "result_reply",
    "seal_item",
    "split_place",
]
