"""The words of the errors: why something failed, and what is known of a command. Values only."""

from __future__ import annotations

import enum


class ClusterReason(enum.StrEnum):
    """Why a call into the cluster failed; each member has its own subclass of `ClusterError`."""

    MAILBOX_FULL = "MailboxFull"
    SEND_TIMEOUT = "SendTimeout"
    RUNNER_UNAVAILABLE = "RunnerUnavailable"
    ENTITY_NOT_MANAGED_BY_THIS_RUNNER = "EntityNotManagedByThisRunner"
    MALFORMED_MESSAGE = "MalformedMessage"
    PAYLOAD_TOO_LARGE = "PayloadTooLarge"
    PERSISTENCE_FAILED = "PersistenceFailed"
    HANDLER_FAILED = "HandlerFailed"
    CALL_CYCLE = "CallCycle"
    FENCED = "Fenced"
    SHUTTING_DOWN = "ShuttingDown"
    UNKNOWN = "Unknown"
    JOIN_REFUSED = "JoinRefused"
    STEP_CONFLICT = "StepConflict"
    DEFERRED_FAILED = "DeferredFailed"
    TOKEN_REFUSED = "TokenRefused"  # noqa: S105 - no password
    DATABASE_REQUIRED = "DatabaseRequired"


class SingletonReason(enum.StrEnum):
    """Why a singleton failed; each member has its own subclass of `SingletonError`."""

    STATE_LOAD_FAILED = "StateLoadFailed"
    STATE_PERSIST_FAILED = "StatePersistFailed"
    SCHEMA_DECODE_FAILED = "SchemaDecodeFailed"
    HEARTBEAT_FAILED = "HeartbeatFailed"
    LEADER_HANDOFF_FAILED = "LeaderHandoffFailed"


class Execution(enum.Enum):
    """What is known about a command whose answer did not come as expected."""

    NOT_EXECUTED = "not executed"
    """It surely did not run: trying again is free."""
    UNKNOWN = "unknown"
    """It may have run: try again only what is idempotent by its id."""
    REFUSED = "refused"
    """The store answered with an error and changed nothing."""
