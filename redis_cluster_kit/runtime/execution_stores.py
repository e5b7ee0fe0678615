"""What executions are kept in, and what they are known by there."""

from __future__ import annotations

from redis_cluster_kit.delivery import Message
from redis_cluster_kit.durable import DeferredTokens, Patience
from redis_cluster_kit.envelope import EXECUTION_HEADER, Envelope
from redis_cluster_kit.storage import Deferreds, Journal, SingletonExecutions

ENTITY, SINGLETON = "e:", "s:"
"""What the subjects of executions begin with: entities and ticks, singletons."""


class Stores:
    """What executions are kept in; made where there is a database."""

    def __init__(
        self,
        journal: Journal,
        singletons: SingletonExecutions,
        deferreds: Deferreds,
        patience: Patience,
    ) -> None:
        self.journal = journal
        self.singletons = singletons
        self.deferreds = deferreds
        self.patience = patience
        self.tokens: DeferredTokens | None = None
        """Known when the runner has joined."""


def execution_of(message: Message, envelope: Envelope) -> str:
    """Return what a message's execution is known by.

    Ids of the kit's own are unique. One that stands for an idempotency key may come again when its window has
    passed: there the message's place in the mailbox belongs to it.
    """
    named = envelope.headers.get(EXECUTION_HEADER)
    if named is not None:
        return named
    return f"{message.id}/{message.entry}" if message.kind == "k" else message.id


def message_of(execution: str) -> str:
    """Return the id of the message whose execution this is."""
    return execution.partition("/")[0]
