"""What every key-value store does, whatever it keeps its values in."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from redis_cluster_kit.errors import MalformedMessageError, PayloadTooLargeError
from redis_cluster_kit.storage.key_value import VALUE_LIMIT, KeyValueStore

STRANGE = [
    "a",
    "with blanks",
    "ns:a",
    "%_[]*?\\^",
    "ключ",
    "🗝" * 128,
    "k" * 512,
    "../../etc/passwd",
    "a\u2028b",
]


async def test_what_is_set_can_be_got_until_it_is_removed(store: KeyValueStore) -> None:
    assert await store.get("a") is None
    assert await store.is_empty()
    await store.set("a", b"1")
    await store.set("b", b"")
    await store.set("a", b"2")
    assert (await store.get("a"), await store.get("b")) == (b"2", b"")
    assert (await store.has("b"), await store.has("c")) == (True, False)
    assert (await store.size(), await store.is_empty()) == (2, False)
    assert await store.remove("a")
    assert not await store.remove("a")
    assert await store.get("a") is None
    await store.clear()
    assert await store.is_empty()
    assert await store.get("b") is None


async def test_any_bytes_come_back(store: KeyValueStore) -> None:
    for value in (bytes(range(256)), b"\n", b"\r\n\0", b"x" * VALUE_LIMIT):
        await store.set("a", value)
        assert await store.get("a") == value


async def test_keys_are_told_apart(store: KeyValueStore) -> None:
    keys = [*STRANGE, "A", "a ", "ns:", "ns"]
    for key in keys:
        await store.set(key, key.encode())
    assert await store.size() == len(keys)
    for key in keys:
        assert await store.get(key) == key.encode()


@pytest.mark.parametrize("key", ["", "a\nb", "\0", "k" * 513, "é" * 257, "\ud800"])
async def test_what_is_no_key_is_refused(store: KeyValueStore, key: str) -> None:
    for call in (store.get(key), store.set(key, b""), store.remove(key), store.modify(key, lambda _: b"")):
        with pytest.raises(ValueError, match="a key"):
            await call
    assert await store.is_empty()


async def test_what_is_no_value_is_refused(store: KeyValueStore) -> None:
    wrong: Any = "text"
    with pytest.raises(TypeError, match="must be bytes, got str"):
        await store.set("a", wrong)
    with pytest.raises(TypeError, match="must be bytes, got str"):
        await store.modify("a", lambda _: wrong)
    with pytest.raises(TypeError, match="must be text, got int"):
        await store.get(7)  # type: ignore[arg-type]
    with pytest.raises(PayloadTooLargeError) as refused:
        await store.set("a", b"x" * (VALUE_LIMIT + 1))
    assert (refused.value.size, refused.value.limit) == (VALUE_LIMIT + 1, VALUE_LIMIT)
    with pytest.raises(PayloadTooLargeError):
        await store.modify("a", lambda _: b"x" * (VALUE_LIMIT + 1))
    assert await store.get("a") is None


async def test_modify_sees_the_value_and_may_remove_it(store: KeyValueStore) -> None:
    assert await store.modify("a", lambda value: (value or b"") + b"1") == b"1"
    assert await store.modify("a", lambda value: (value or b"") + b"2") == b"12"
    assert await store.modify("a", lambda value: value) == b"12"
    assert await store.modify("a", lambda _: b"") == b""
    assert await store.get("a") == b""
    assert await store.modify("a", lambda _: None) is None
    assert await store.modify("a", lambda _: None) is None
    assert not await store.has("a")


async def test_a_change_that_raises_changes_nothing(store: KeyValueStore) -> None:
    await store.set("a", b"1")
    with pytest.raises(ZeroDivisionError):
        await store.modify("a", lambda _: bytes(1 // 0))
    assert await store.get("a") == b"1"


async def test_no_concurrent_change_is_lost(store: KeyValueStore) -> None:
    async def count() -> None:
        for _ in range(5):
            await store.modify("n", lambda value: str(int(value or b"0") + 1).encode())

    await asyncio.gather(*(count() for _ in range(8)))
    assert await store.get("n") == b"40"


async def test_a_prefix_is_a_store_of_its_own(store: KeyValueStore) -> None:
    await store.set("a", b"outside")
    part, other = store.prefix("n%s:"), store.prefix("n%S:")
    assert await part.is_empty()
    await part.set("a", b"inside")
    await other.set("a", b"other")
    await part.prefix("deep:").modify("a", lambda _: b"deep")
    assert await store.get("n%s:a") == b"inside"
    assert await store.get("n%s:deep:a") == b"deep"
    assert (await part.size(), await other.size(), await store.size()) == (2, 1, 4)
    await part.clear()
    assert (await part.size(), await other.size(), await store.size()) == (0, 1, 2)
    assert (await part.get("a"), await store.get("a"), await other.get("a")) == (None, b"outside", b"other")
    with pytest.raises(ValueError, match="512 UTF-8 bytes with its prefix"):
        await part.set("k" * 510, b"")


class Old(msgspec.Struct):
    name: str
    age: int = 0
    gone: str = ""


class New(msgspec.Struct):
    name: str
    age: str = "unknown"
    added: list[int] = []


async def test_a_typed_view_reads_what_another_release_wrote(
    store: KeyValueStore, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = store.for_schema(Old).prefix("people:"), store.for_schema(New).prefix("people:")
    assert await new.get("a") is None
    await old.set("a", Old("Ada", 36, "x"))
    assert await old.get("a") == Old("Ada", 36, "x")
    assert await new.get("a") == New("Ada", "unknown", [])
    assert "field age of key 'a' takes its default" in caplog.text
    assert (await new.has("a"), await new.size(), await new.is_empty()) == (True, 1, False)

    def grown(value: New | None) -> New:
        assert value is not None
        value.added.append(1)
        return value

    assert await new.modify("a", grown) == New("Ada", "unknown", [1])
    assert await new.modify("a", lambda _: None) is None
    await new.set("a", New("Bea"))
    assert await new.remove("a")
    await new.clear()
    assert await store.is_empty()


async def test_what_cannot_be_read_stays_as_it_is(store: KeyValueStore) -> None:
    typed = store.for_schema(Old)
    await store.set("a", b"\xc1 no MessagePack")
    for call in (typed.get("a"), typed.modify("a", lambda _: Old("new"))):
        with pytest.raises(MalformedMessageError, match="value of key 'a' cannot be read"):
            await call
    assert await store.get("a") == b"\xc1 no MessagePack"
    wrong: Any = New("Ada", "old")
    with pytest.raises(MalformedMessageError):
        await typed.set("b", wrong)
    assert not await store.has("b")


async def test_a_type_without_fields(store: KeyValueStore) -> None:
    numbers = store.for_schema(list[int])
    await numbers.set("a", [1, 2])
    assert await numbers.modify("a", lambda value: [*(value or []), 3]) == [1, 2, 3]
    with pytest.raises(TypeError):
        store.for_schema(object.__init__)  # type: ignore[arg-type]


KEYS = st.sampled_from(["a", "b", "p:a", "p:b", "p:", "q"])
VALUES = st.binary(max_size=3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, VALUES),
        st.tuples(st.just("append"), KEYS, VALUES),
        st.tuples(st.sampled_from(["remove", "drop"]), KEYS, st.just(b"")),
        st.tuples(st.sampled_from(["clear", "clear part"]), st.just("a"), st.just(b"")),
    ),
    max_size=12,
)


@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=STEPS)
async def test_it_behaves_like_a_dictionary(
    store: KeyValueStore, steps: list[tuple[str, str, bytes]]
) -> None:
    await store.clear()
    model: dict[str, bytes] = {}
    for do, key, value in steps:
        match do:
            case "set":
                await store.set(key, value)
                model[key] = value
            case "append":
                model[key] = model.get(key, b"") + value
                assert await store.modify(key, lambda old, v=value: (old or b"") + v) == model[key]
            case "remove":
                assert await store.remove(key) == (model.pop(key, None) is not None)
            case "drop":
                assert await store.modify(key, lambda _: None) is None
                model.pop(key, None)
            case _:
                part = "p:" if do == "clear part" else ""
                await (store.prefix(part) if part else store).clear()
                model = {name: kept for name, kept in model.items() if part and not name.startswith(part)}
        assert await store.size() == len(model)
        assert await store.prefix("p:").size() == sum(name.startswith("p:") for name in model)
    for key in ("a", "b", "p:a", "p:b", "p:", "q"):
        assert await store.get(key) == model.get(key)
