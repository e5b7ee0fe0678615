"""Every error the kit raises, and the text each one shows. Nothing here does I/O.

KitError
├── ReasonedError
│   ├── ClusterError
│   │   ├── MailboxFullError
│   │   ├── SendTimeoutError
│   │   ├── RunnerUnavailableError
│   │   ├── EntityNotManagedByThisRunnerError
│   │   ├── MalformedMessageError
│   │   ├── PayloadTooLargeError
│   │   ├── PersistenceFailedError
│   │   ├── HandlerFailedError
│   │   ├── CallCycleError
│   │   ├── FencedError
│   │   ├── ShuttingDownError
│   │   ├── UnknownError
│   │   ├── JoinRefusedError
│   │   ├── StepConflictError
│   │   ├── DeferredFailedError
│   │   ├── TokenRefusedError
│   │   └── DatabaseRequiredError
│   └── SingletonError
│       ├── StateLoadFailedError
│       ├── StatePersistFailedError
│       ├── SchemaDecodeFailedError
│       ├── HeartbeatFailedError
│       └── LeaderHandoffFailedError
├── TransportedError
├── ClusterContextRequired
└── EntityError
"""

from __future__ import annotations

import copyreg
import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self, cast, dataclass_transform, get_type_hints

import msgspec

from redis_cluster_kit.reasons import ClusterReason as ClusterReason  # noqa: PLC0414 - known by this place, too
from redis_cluster_kit.reasons import Execution as Execution  # noqa: PLC0414
from redis_cluster_kit.reasons import SingletonReason as SingletonReason  # noqa: PLC0414
from redis_cluster_kit.redaction import redact as redact  # noqa: PLC0414 - known by this place, too


class KitError(Exception):
    """The one base: `except KitError` catches whatever the kit raises on purpose."""


@dataclass_transform(kw_only_default=True, eq_default=False)
class ReasonedError(KitError):
    """A reason and attributes, from which the text is composed; survives pickle, copy and the wire."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        dataclasses.dataclass(eq=False, repr=False, kw_only=True)(cls)

    def __new__(cls, *_: object, **attributes: object) -> Self:  # pyright: ignore[reportInconsistentConstructor]
        """`ClusterError(reason=…)` is an instance of that reason's subclass."""
        chosen: Any = _CLASS_OF.get(attributes.get("reason")) if cls in _FAMILIES else None
        fits = chosen is not None and issubclass(chosen, cls)
        return super().__new__(cast("type[Self]", chosen) if fits else cls)

    def __post_init__(self) -> None:
        own, given = getattr(type(self), "reason", None), self.__dict__["reason"]
        if own is not None and given is not own:
            raise TypeError(f"{type(self).__name__} has reason {own!s}, got {given!s}")
        for name, value in self.__dict__.items():
            if isinstance(value, str) and name not in _VERBATIM:
                self.__dict__[name] = redact(value)
        self.__cause__ = self.__dict__["cause"]

    def explain(self) -> str:
        """Return what was expected, what came and what to do, before secrets are hidden."""
        raise NotImplementedError

    def __str__(self) -> str:
        return redact(self.explain())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        state = self.__dict__ | {"cause": _portable(self.__dict__["cause"])}
        return _NEW_OBJECT, (type(self),), state

    def __setstate__(self, state: dict[str, Any] | None, /) -> None:
        self.__dict__.update(state or {})
        self.__cause__ = self.__dict__.get("cause")

    def __deepcopy__(self, _: object = None) -> Self:
        # Also __copy__: a cause is shared, not copied, since it may hold connections and a traceback.
        twin = type(self).__new__(type(self))
        twin.__setstate__(self.__dict__)
        return twin

    __copy__ = __deepcopy__

    def to_wire(self) -> dict[str, Any]:
        """Return this error as plain builtins (text, numbers, lists, dicts), without its traceback."""
        fields: dict[str, Any] = {name: _plain(getattr(self, name)) for name in _hints(type(self))}
        cause = self.__dict__["cause"]
        words = cause if cause is None or isinstance(cause, TransportedError) else _in_words(cause)
        return fields | {"cause": words and [words.remote_type, words.remote_message]}

    @classmethod
    def from_wire(cls, data: object) -> Self:
        """Read `to_wire()` back; unknown attributes are dropped, an unknown reason becomes `Unknown`."""
        return cast("Self", _from_wire(cls, data))


class TransportedError(KitError):
    """The cause of an error that came from another process: its type's name and its text."""

    def __init__(self, remote_type: str, remote_message: str) -> None:
        self.remote_type = remote_type
        self.remote_message = redact(remote_message)
        super().__init__(remote_type, self.remote_message)

    def __str__(self) -> str:
        return f"{self.remote_type}: {self.remote_message}"


class ClusterError(ReasonedError):
    """A call into the cluster failed. `match error.reason` or catch the reason's own subclass.

    `is_retryable`: the same call may succeed later. `cause`: what raised below. `entity_id`: whom it is
    about, None if nobody.
    """

    reason: ClusterReason
    is_retryable: bool = False
    cause: BaseException | None = None
    entity_id: str | None = None
    detail: str = ""

    def explain(self) -> str:
        subject = "" if self.entity_id is None else f"entity {self.entity_id!r}: "
        return f"{subject}{self._facts()}{self.detail and f' ({self.detail})'}"

    def _facts(self) -> str:
        return f"the call failed ({self.reason})"


class MailboxFullError(ClusterError):
    """The mailbox held `capacity` messages and refused one more; nothing was written."""

    reason: ClusterReason = ClusterReason.MAILBOX_FULL
    is_retryable: bool = True
    capacity: int | None = None

    def _facts(self) -> str:
        size = "" if self.capacity is None else f" ({self.capacity} messages)"
        return f"its mailbox is full{size} and took nothing; send again later or raise mailbox_capacity"


class SendTimeoutError(ClusterError):
    """No answer came within `timeout` seconds. The message is not withdrawn: it may still be handled."""

    reason: ClusterReason = ClusterReason.SEND_TIMEOUT
    is_retryable: bool = True
    timeout: float | None = None
    last_answer: str = ""

    def _facts(self) -> str:
        wait = "in time" if self.timeout is None else f"within {self.timeout:g} s"
        known = f"; last known: {self.last_answer}" if self.last_answer else ""
        return f"no answer {wait}; the message may still be handled: repeat it with an idempotency_key{known}"


class RunnerUnavailableError(ClusterError):
    """Nobody could take the call: `runner_id` did not answer, or no runner owns the shard now."""

    reason: ClusterReason = ClusterReason.RUNNER_UNAVAILABLE
    is_retryable: bool = True
    runner_id: str | None = None

    def _facts(self) -> str:
        who = "no runner serves it" if self.runner_id is None else f"runner {self.runner_id} does not answer"
        return f"{who}; try again after a takeover"


class EntityNotManagedByThisRunnerError(ClusterError):
    """This runner does not own the entity's `shard`; `owner` does, if it is known."""

    reason: ClusterReason = ClusterReason.ENTITY_NOT_MANAGED_BY_THIS_RUNNER
    is_retryable: bool = True
    shard: str | None = None
    owner: str | None = None

    def _facts(self) -> str:
        facts = f"shard {self.shard or '?'}, owner {self.owner or 'unknown'}"
        return f"this runner does not own its shard ({facts}); call it through cluster.entity(...)"


class MalformedMessageError(ClusterError):
    """Bytes or values that do not fit the declared types; the same message never succeeds."""

    reason: ClusterReason = ClusterReason.MALFORMED_MESSAGE

    def _facts(self) -> str:
        return "the message does not fit its declared types; correct the sender or the annotations"


class PayloadTooLargeError(ClusterError):
    """A payload of `size` bytes is above the `limit`; nothing was written."""

    reason: ClusterReason = ClusterReason.PAYLOAD_TOO_LARGE
    size: int = 0
    limit: int = 0

    def _facts(self) -> str:
        return f"{self.size} bytes are above the limit of {self.limit}; send a reference or raise the limit"


class PersistenceFailedError(ClusterError):
    """A store ("redis", "database", "lease nodes") failed; `execution` says what is known of the command."""

    reason: ClusterReason = ClusterReason.PERSISTENCE_FAILED
    is_retryable: bool = True
    store: str = "store"
    execution: Execution = Execution.UNKNOWN

    def _facts(self) -> str:
        advice = "try again" if self.is_retryable else "trying again does not help"
        return f"{self.store} failed, execution {self.execution.value}; {advice}"


class HandlerFailedError(ClusterError):
    """The handler raised something it did not declare, as often as its retry policy allows."""

    reason: ClusterReason = ClusterReason.HANDLER_FAILED
    remote_type: str = ""
    remote_message: str = ""
    remote_traceback: str = ""

    def _facts(self) -> str:
        raised = f"{self.remote_type}: {self.remote_message}" if self.remote_type else "an undeclared error"
        return f"its handler raised {raised}; see remote_traceback, or declare it with raises=[...]"


class CallCycleError(ClusterError):
    """An ask would wait for itself: the target is already waiting in `chain`."""

    reason: ClusterReason = ClusterReason.CALL_CYCLE
    chain: tuple[str, ...] = ()

    def _facts(self) -> str:
        path = f" ({' → '.join(self.chain)})" if self.chain else ""
        return f"asking it would wait for itself{path}; use .send, or call the method on self"


class FencedError(ClusterError):
    """`store` refused a write under `fence`: another owner has taken `shard` since."""

    reason: ClusterReason = ClusterReason.FENCED
    is_retryable: bool = True
    shard: str = ""
    fence: int = 0
    store: str = "store"

    def _facts(self) -> str:
        return f"{self.store} refused fence {self.fence} for {self.shard}: its present owner has another"


class ShuttingDownError(ClusterError):
    """The runner drains and takes no new calls."""

    reason: ClusterReason = ClusterReason.SHUTTING_DOWN
    is_retryable: bool = True

    def _facts(self) -> str:
        return "the runner is shutting down and takes no new calls; call another one"


class UnknownError(ClusterError):
    """What became of the call cannot be known: it may or may not have had an effect."""

    reason: ClusterReason = ClusterReason.UNKNOWN

    def _facts(self) -> str:
        return "what became of the call cannot be known; look at the entity's state before repeating it"


class JoinRefusedError(ClusterError):
    """The cluster's record says `expected` for `setting`, this runner says `found`."""

    reason: ClusterReason = ClusterReason.JOIN_REFUSED
    setting: str = ""
    expected: object = None
    found: object = None
    hint: str = ""

    def _facts(self) -> str:
        advice = self.hint or "give this runner the cluster's value, or another namespace"
        return f"joining refused: {self.setting} should be {self.expected!r}, found {self.found!r}; {advice}"


class StepConflictError(ClusterError):
    """Durable call `name` came with another input: a message is buried, a singleton's work set aside."""

    reason: ClusterReason = ClusterReason.STEP_CONFLICT
    name: str = ""
    execution: str = ""

    def _facts(self) -> str:
        known = f"durable call {self.name!r} of {self.execution} was recorded with another input"
        return f"{known}; give each call its own name, and an input that is the same on every run"


class DeferredFailedError(ClusterError):
    """`cluster.fail(token, text)` resolved the deferred `name`: `text` is what it said."""

    reason: ClusterReason = ClusterReason.DEFERRED_FAILED
    name: str = ""
    text: str = ""

    def _facts(self) -> str:
        return f"deferred {self.name!r} was failed from outside: {self.text}; catch this to go on without it"


class TokenRefusedError(ClusterError):
    """The text is no token of this cluster: forged, cut short, or of another namespace."""

    reason: ClusterReason = ClusterReason.TOKEN_REFUSED

    def _facts(self) -> str:
        return "it is no token of a deferred of this cluster; hand back `deferred.token` unchanged"


class DatabaseRequiredError(ClusterError):
    """Durable calls and what resolves them keep their journal in the database, and there is none."""

    reason: ClusterReason = ClusterReason.DATABASE_REQUIRED

    def _facts(self) -> str:
        return "durable calls need a database; give one: Cluster(redis, database=...)"


class SingletonError(ReasonedError):
    """A singleton failed. `match error.reason` or catch the reason's own subclass."""

    reason: SingletonReason
    is_retryable: bool = False
    cause: BaseException | None = None
    singleton_name: str | None = None
    detail: str = ""

    what: ClassVar[str] = "the singleton failed"

    def explain(self) -> str:
        subject = "" if self.singleton_name is None else f"singleton {self.singleton_name!r}: "
        return f"{subject}{self.what}{self.detail and f' ({self.detail})'}"


class StateLoadFailedError(SingletonError):
    """The state could not be read from the database; the leader tries again with backoff."""

    reason: SingletonReason = SingletonReason.STATE_LOAD_FAILED
    is_retryable: bool = True
    what: ClassVar[str] = "its state could not be read from the database; it is tried again with backoff"


class StatePersistFailedError(SingletonError):
    """The state could not be saved; what was saved last still holds."""

    reason: SingletonReason = SingletonReason.STATE_PERSIST_FAILED
    is_retryable: bool = True
    what: ClassVar[str] = "its state could not be saved; the last saved one holds, save it again"


class SchemaDecodeFailedError(SingletonError):
    """The saved state does not fit the declared type; the initial one is used instead."""

    reason: SingletonReason = SingletonReason.SCHEMA_DECODE_FAILED
    what: ClassVar[str] = (
        "its saved state does not fit the declared type and the initial one is used; correct the type"
    )


class HeartbeatFailedError(SingletonError):
    """The leader could not say that it is alive; it goes on until its lease ends."""

    reason: SingletonReason = SingletonReason.HEARTBEAT_FAILED
    what: ClassVar[str] = "its heartbeat could not be written; it goes on until its lease ends"


class LeaderHandoffFailedError(SingletonError):
    """The leader did not stop within the drain budget; the lease ends by its time instead."""

    reason: SingletonReason = SingletonReason.LEADER_HANDOFF_FAILED
    what: ClassVar[str] = "it did not stop within the drain budget; its successor waits for the lease to end"


class ClusterContextRequired(KitError, RuntimeError):  # noqa: N818 - the name is public API
    """`current()` was called outside a turn, singleton or tick."""

    def __str__(self) -> str:
        return "no turn, singleton or tick runs here; call it from a handler, or inside within_cluster(...)"


@dataclass_transform(eq_default=False)
class EntityError(KitError):
    """Base of the errors an entity declares: an answer with fields, not a failure.

    `class Insufficient(EntityError, code="insufficient"): missing: int`. The code (default: the class
    name) is what travels; the turn is rolled back, not retried, and the caller gets this class.
    """

    code: ClassVar[str] = "EntityError"

    def __init_subclass__(cls, *, code: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        taken = sorted(_RESERVED.intersection(inspect.get_annotations(cls)))
        if taken:
            raise TypeError(f"{cls.__name__}: a field may not be named {taken[0]!r}")
        cls.code = cls.__name__ if code is None else code
        dataclasses.dataclass(eq=False)(cls)

    @property
    def fields(self) -> dict[str, Any]:
        """The declared fields with their values, as they travel."""
        return {name: getattr(self, name) for name in _field_names(type(self))}

    def __str__(self) -> str:
        return f"{self.code}({', '.join(f'{name}={value!r}' for name, value in self.fields.items())})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _NEW_OBJECT, (type(self),), self.__dict__


def declared_fields(kind: type[EntityError]) -> dict[str, Any]:
    """Return the types of a declared error's fields by name."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: hints[name] for name in _field_names(kind)}


_HINTS: dict[type[ReasonedError], dict[str, Any]] = {}
_NEW_OBJECT = cast("Callable[..., object]", getattr(copyreg, "__newobj__"))  # noqa: B009 - typeshed hides it
_RESERVED = frozenset({"add_note", "args", "code", "fields", "with_traceback"})
# Names of the user's choosing: shown as they are, and still hidden in the composed text if they are URLs.
_VERBATIM = frozenset({"reason", "entity_id", "singleton_name"})
_FAMILIES: tuple[type[ReasonedError], ...] = (ClusterError, SingletonError)
_CLASS_OF: dict[object, type[ReasonedError]] = {
    kind.__dict__["reason"]: kind for family in _FAMILIES for kind in family.__subclasses__()
}


def _in_words(cause: BaseException) -> TransportedError:
    kind = type(cause)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return TransportedError(name, str(cause))


def _portable(cause: BaseException | None) -> KitError | None:
    """Causes of other libraries often do not unpickle (or hold connections): they travel as words."""
    return cause if cause is None or isinstance(cause, KitError) else _in_words(cause)


def _plain(value: object) -> Any:
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError, RecursionError):
        return redact(repr(value))


def _field_names(kind: type[Any]) -> list[str]:
    """Without class variables; none for a bare `EntityError`, which is no dataclass itself."""
    return [item.name for item in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []


def _hints(kind: type[ReasonedError]) -> dict[str, Any]:
    if kind not in _HINTS:
        hints = get_type_hints(kind)
        _HINTS[kind] = {name: hints[name] for name in _field_names(kind) if name != "cause"}
    return _HINTS[kind]


def _from_wire(family: type[ReasonedError], data: object) -> ReasonedError:
    if not isinstance(data, Mapping):
        raise MalformedMessageError(detail=f"an error should be a mapping, got {type(data).__name__}")
    wire: Mapping[Any, Any] = data
    reason = wire.get("reason")
    fitting = (kind for known, kind in _CLASS_OF.items() if known == reason and issubclass(kind, family))
    chosen = next(fitting, UnknownError)
    fields = {name: wire[name] for name in _hints(chosen) if name in wire and name != "reason"}
    if chosen is UnknownError and reason != ClusterReason.UNKNOWN:
        fields["detail"] = f"reason {reason!r} of another release; {fields.get('detail', '')}"
    try:
        values = {name: msgspec.convert(value, _hints(chosen)[name]) for name, value in fields.items()}
        cause = msgspec.convert(wire.get("cause"), tuple[str, str] | None)
    except (msgspec.ValidationError, RecursionError) as error:
        raise MalformedMessageError(detail=f"a received error does not fit: {error}") from error
    values["cause"] = None if cause is None else TransportedError(*cause)
    return chosen(**values)
