"""The error tree, each error's text, and that errors survive pickle, copy and the wire."""

from __future__ import annotations

import copy
import inspect
import pickle
import string
from typing import ClassVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redis_cluster_kit import errors
from redis_cluster_kit.errors import (
    ClusterContextRequired,
    ClusterError,
    ClusterReason,
    EntityError,
    Execution,
    FencedError,
    HandlerFailedError,
    JoinRefusedError,
    KitError,
    MailboxFullError,
    MalformedMessageError,
    PersistenceFailedError,
    ReasonedError,
    SingletonError,
    SingletonReason,
    StateLoadFailedError,
    StatePersistFailedError,
    TransportedError,
    UnknownError,
    redact,
)


class Insufficient(EntityError, code="insufficient"):
    missing: int
    currency: str = "EUR"


class Closed(EntityError):
    shared: ClassVar[int] = 1


def every_error() -> list[ReasonedError]:
    made: list[ReasonedError] = [
        ClusterError(reason=reason, entity_id="alice", detail="seen", cause=OSError("cut"))
        for reason in ClusterReason
    ]
    made += [SingletonError(reason=reason, singleton_name="coordinator") for reason in SingletonReason]
    made += [
        PersistenceFailedError(
            store="redis", detail="reset", execution=Execution.NOT_EXECUTED, is_retryable=False
        ),
        JoinRefusedError(setting="partitions", expected=16, found=32, hint="use 16"),
        FencedError(shard="default:4", fence=2**60, store="database"),
        HandlerFailedError(remote_type="app.Boom", remote_message="no", remote_traceback="Traceback …"),
        errors.CallCycleError(chain=("a/1", "b/2")),
        errors.SendTimeoutError(timeout=2.5, last_answer="waiting", entity_id="bob"),
    ]
    return made


def drawn(kind: type[BaseException], indent: str = "") -> list[str]:
    lines = [kind.__name__] if kind is KitError else []
    children = [child for child in kind.__subclasses__() if child.__module__ == errors.__name__]
    for child in children:
        last = child is children[-1]
        lines.append(f"{indent}{'└── ' if last else '├── '}{child.__name__}")
        lines += drawn(child, indent + ("    " if last else "│   "))
    return lines


def test_the_drawn_tree_is_the_real_one() -> None:
    assert errors.__doc__ is not None
    first = errors.__doc__.index("KitError")
    assert errors.__doc__[first:].splitlines() == drawn(KitError)


def test_every_exception_of_the_module_derives_from_the_base() -> None:
    classes = [
        kind for _, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__
    ]
    raised = [kind for kind in classes if issubclass(kind, BaseException)]
    assert len(raised) > 20
    assert all(issubclass(kind, KitError) for kind in raised)


@pytest.mark.parametrize("reason", [*ClusterReason, *SingletonReason], ids=str)
def test_a_reason_makes_its_own_subclass(reason: ClusterReason | SingletonReason) -> None:
    error: ClusterError | SingletonError
    if isinstance(reason, ClusterReason):
        error = ClusterError(reason=reason)
    else:
        error = SingletonError(reason=reason)
    assert type(error).__name__ == f"{reason}Error"
    assert type(error) is getattr(errors, f"{reason}Error")
    assert error.reason is reason
    assert reason.name.replace("_", "").lower() == reason.value.lower()


def test_texts_differ_and_say_what_to_do() -> None:
    texts = [str(ClusterError(reason=reason)) for reason in ClusterReason]
    texts += [str(SingletonError(reason=reason)) for reason in SingletonReason]
    assert len(set(texts)) == len(texts)
    assert all(len(text) > 40 for text in texts)


def test_texts_hold_the_facts() -> None:
    assert "(100 messages)" in str(MailboxFullError(capacity=100, entity_id="alice"))
    assert str(MailboxFullError(entity_id="alice")).startswith("entity 'alice': ")
    refused = str(JoinRefusedError(setting="partitions", expected=16, found=32, hint="use 16"))
    assert "partitions should be 16, found 32; use 16" in refused
    fenced = str(FencedError(shard="default:42", fence=7, store="database"))
    assert "fence 7" in fenced
    assert "default:42" in fenced
    assert "database" in fenced
    handler = HandlerFailedError(remote_type="app.Boom", remote_message="no", remote_traceback="…")
    assert "app.Boom: no" in str(handler)
    lost = PersistenceFailedError(store="lease nodes", detail="2 of 3 down", execution=Execution.NOT_EXECUTED)
    assert str(lost) == "lease nodes failed, execution not executed; try again (2 of 3 down)"


def test_retryable_by_reason() -> None:
    retryable = {kind.reason for kind in (MailboxFullError(), PersistenceFailedError()) if kind.is_retryable}
    assert retryable == {ClusterReason.MAILBOX_FULL, ClusterReason.PERSISTENCE_FAILED}
    assert not MalformedMessageError().is_retryable
    singles = {reason for reason in SingletonReason if SingletonError(reason=reason).is_retryable}
    assert singles == {StateLoadFailedError().reason, StatePersistFailedError().reason}


def test_a_subclass_keeps_its_reason_and_attributes_are_keywords() -> None:
    with pytest.raises(TypeError, match="MailboxFullError has reason MailboxFull, got Fenced"):
        MailboxFullError(reason=ClusterReason.FENCED)
    with pytest.raises(TypeError):
        MailboxFullError("full")  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="reason"):
        ClusterError()  # type: ignore[call-arg]


def test_a_users_subclass_does_not_take_the_reason_over() -> None:
    class Mine(ClusterError):
        reason: ClusterReason = ClusterReason.UNKNOWN

    assert type(ClusterError(reason=ClusterReason.UNKNOWN)) is UnknownError
    assert isinstance(Mine(), ClusterError)


@pytest.mark.parametrize("error", every_error(), ids=lambda error: type(error).__name__)
def test_survives_pickle_and_copy(error: ReasonedError) -> None:
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        assert {k: v for k, v in vars(twin).items() if k != "cause"} == {
            k: v for k, v in vars(error).items() if k != "cause"
        }
        assert (vars(twin)["cause"] is None) == (vars(error)["cause"] is None)
        assert twin.__cause__ is vars(twin)["cause"]


@pytest.mark.parametrize("error", every_error(), ids=lambda error: type(error).__name__)
def test_survives_the_wire(error: ReasonedError) -> None:
    family = ClusterError if isinstance(error, ClusterError) else SingletonError
    sent = msgspec.msgpack.encode(error.to_wire())
    twin = family.from_wire(msgspec.msgpack.decode(sent))
    assert type(twin) is type(error)
    assert str(twin) == str(error)
    assert twin.to_wire() == error.to_wire()


def test_a_cause_travels_as_words() -> None:
    error = PersistenceFailedError(store="redis", cause=ConnectionResetError("redis://u:secret@h cut"))
    assert error.__cause__ is error.cause
    twin = pickle.loads(pickle.dumps(error))
    assert isinstance(twin.cause, TransportedError)
    assert (twin.cause.remote_type, twin.cause.remote_message) == (
        "ConnectionResetError",
        "redis://***@h cut",
    )
    nested = MailboxFullError(cause=FencedError(shard="a:1", fence=1, store="redis"))
    assert isinstance(pickle.loads(pickle.dumps(nested)).cause, FencedError)


def test_an_unknown_reason_becomes_unknown() -> None:
    error = ClusterError.from_wire({"reason": "Brandnew", "detail": "x", "entity_id": "a", "later": 1})
    assert type(error) is UnknownError
    assert "'Brandnew'" in str(error)
    assert error.entity_id == "a"


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)
attribute = st.sampled_from(
    ["entity_id", "detail", "is_retryable", "cause", "capacity", "chain", "execution"]
)


@given(st.dictionaries(attribute, junk, max_size=4), st.sampled_from(list(ClusterReason)) | junk)
def test_junk_on_the_wire_raises_only_malformed(fields: dict[str, object], reason: object) -> None:
    try:
        error = ClusterError.from_wire(fields | {"reason": reason})
    except MalformedMessageError:
        return
    assert str(error)


def test_what_is_no_mapping_is_malformed() -> None:
    with pytest.raises(MalformedMessageError, match="got list"):
        ClusterError.from_wire([1])


def test_entity_errors() -> None:
    error = Insufficient(missing=3)
    assert (error.code, Closed.code) == ("insufficient", "Closed")
    assert error.fields == {"missing": 3, "currency": "EUR"}
    assert str(error) == "insufficient(missing=3, currency='EUR')"
    assert str(Closed()) == "Closed()"
    assert error != Insufficient(missing=3)
    assert len({error, error}) == 1
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(twin) is Insufficient
        assert twin.fields == error.fields
    with pytest.raises(TypeError):
        Insufficient()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="may not be named 'code'"):

        class Bad(EntityError):  # pyright: ignore[reportUnusedClass]
            code: int  # type: ignore[misc, assignment]


def test_context_required_is_a_runtime_error() -> None:
    error = pickle.loads(pickle.dumps(ClusterContextRequired()))
    assert isinstance(error, RuntimeError)
    assert isinstance(error, KitError)
    assert "within_cluster" in str(error)


schemes = st.sampled_from(
    ["redis", "rediss", "unix", "redis+sentinel", "redis+cluster", "postgresql+asyncpg", "sqlite+aiosqlite"]
)
# Marked, so that finding it in the result means it leaked, and not that a host name is spelt alike.
secrets = st.text(string.ascii_letters + string.digits + ":@/?#&=%'\"[](),;!*", max_size=12).map(
    lambda t: f"S3c{t}ret"
)
words = st.text(string.ascii_lowercase + " .,", max_size=20)


@given(words, schemes, secrets.filter(lambda text: "://" not in text), words)
@settings(max_examples=100)
def test_redact_hides_user_and_password(before: str, scheme: str, secret: str, after: str) -> None:
    text = f"{before} {scheme}://app:{secret}@host:6379/0 {after}"
    hidden = redact(text)
    assert "S3c" not in hidden
    assert "app:" not in hidden
    assert hidden == f"{before} {scheme}://***@host:6379/0 {after}"
    assert redact(hidden) == hidden


@given(schemes, secrets.map(lambda text: text.replace("&", "").replace("#", "")), words)
def test_redact_hides_query_parameters(scheme: str, secret: str, after: str) -> None:
    text = f"{scheme}:///run/redis.sock?db=1&username=app&password={secret}&db=2 {after}"
    hidden = redact(text)
    assert "S3c" not in hidden
    assert "=app" not in hidden
    assert redact(hidden) == hidden


@given(st.text(max_size=60))
def test_redact_is_idempotent_and_leaves_other_text(text: str) -> None:
    assert redact(redact(text)) == redact(text)
    if "@" not in text and "=" not in text:
        assert redact(text) == text


def test_redact_handles_lists_of_urls() -> None:
    text = "['redis://a:b@one/0', 'redis://two/0','redis://:c@three/0']"
    assert redact(text) == "['redis://***@one/0', 'redis://two/0','redis://***@three/0']"


@given(secrets.filter(lambda text: "://" not in text))
def test_no_error_shows_a_password(secret: str) -> None:
    url = f"rediss://app:{secret}@host/0"
    for error in (
        PersistenceFailedError(store="redis", detail=f"cannot reach {url}", cause=OSError(url)),
        JoinRefusedError(setting="lease nodes", expected=(url,), found=[url], hint=url),
        HandlerFailedError(remote_type="E", remote_message=url, remote_traceback=f"line {url}"),
    ):
        shown = f"{error} {error!r} {error.detail} {error.to_wire() if error.cause else ''}"
        assert "S3c" not in shown
        assert "S3c" not in str(pickle.loads(pickle.dumps(error)))
