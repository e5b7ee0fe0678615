"""Names, ids and addresses: golden values of the stored formats, and round trips."""

from __future__ import annotations

import copy
import hashlib
import pickle
import threading
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redis_cluster_kit.identity import (
    EntityAddress,
    MessageAddress,
    MessageIds,
    ShardId,
    check_entity_id,
    check_name,
    new_nonce,
    new_runner_id,
    parse_message_id,
    public_message_id,
    shard_number,
)

names = st.from_regex(r"\A[A-Za-z0-9_.-]{1,64}\Z")
entity_ids = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=100).filter(
    lambda text: len(text.encode()) <= 512
)
message_ids = st.tuples(st.integers(0, 2**48 - 1), st.integers(0, 10**18)).map(
    lambda parts: f"{parts[0]:012x}-{parts[1]}"
)


@pytest.mark.parametrize(
    ("type", "id", "count", "shard"),
    [
        ("account", "alice", 100, 42),
        ("account", "bob", 100, 79),
        ("Account", "alice", 100, 67),
        ("account", "café ☕", 100, 33),
        ("a", "b" * 512, 100, 57),
        ("account", "alice", 1, 0),
        ("account", "alice", 10_000, 5142),
    ],
)
def test_golden_shards(type: str, id: str, count: int, shard: int) -> None:
    """A change here moves every entity of every cluster; the values were made with coreutils' `b2sum`."""
    assert shard_number(type, id, count) == shard


@given(names, entity_ids, st.integers(1, 10_000))
def test_a_shard_is_the_documented_hash(type: str, id: str, count: int) -> None:
    digest = hashlib.blake2b(type.encode() + b"\0" + id.encode(), digest_size=8).digest()
    assert shard_number(type, id, count) == int.from_bytes(digest, "big") % count


def test_shards_are_spread_evenly() -> None:
    """10,000 ids on 100 shards: a binomial's 6 sigma is 60, so a shard outside 40 to 160 is a broken hash."""
    counts = [0] * 100
    for number in range(10_000):
        counts[shard_number("account", f"user-{number}", 100)] += 1
    assert min(counts) > 40
    assert max(counts) < 160


@given(names, st.integers(0, 99_999))
def test_shard_ids_round_trip(group: str, number: int) -> None:
    shard = ShardId(group, number)
    assert str(shard) == f"{group}:{number}"
    assert ShardId.parse(str(shard)) == shard


def test_shard_ids_sort_by_group_then_number() -> None:
    shards = [ShardId("b", 1), ShardId("a", 10), ShardId("a", 9)]
    assert sorted(shards) == [ShardId("a", 9), ShardId("a", 10), ShardId("b", 1)]


@pytest.mark.parametrize(
    "text",
    ["", "default", "default:", ":1", "default:01", "default:-1", "a:1:2", "a b:1", "a:１", "a:100000"],
)
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="group:number"):
        ShardId.parse(text)


@given(names)
def test_good_names_pass(name: str) -> None:
    assert check_name("type", name) is name


@pytest.mark.parametrize("name", ["", "a" * 65, "a b", "a:b", "a{b", "ä", "a\n", "a/b", "a\0"])
def test_bad_names_are_refused_and_shown(name: str) -> None:
    with pytest.raises(ValueError, match="a shard group name is 1 to 64 of the characters"):
        check_name("shard group", name)


def test_a_name_is_text() -> None:
    with pytest.raises(TypeError, match=r"an? type name must be text, got bytes"):
        check_name("type", b"account")


@given(entity_ids)
def test_good_entity_ids_pass(id: str) -> None:
    assert check_entity_id(id) is id


@pytest.mark.parametrize("id", ["", "a" * 513, "é" * 257, "a\nb", "\0", "\x7f", "\x85", "\ud800"])
def test_bad_entity_ids_are_refused(id: str) -> None:
    with pytest.raises(ValueError, match="an entity id"):
        check_entity_id(id)


@pytest.mark.parametrize("id", [7, uuid.UUID(int=7), b"alice", None])
def test_an_entity_id_is_text(id: object) -> None:
    with pytest.raises(TypeError, match=r"must be text, got .*: write str\(x\)"):
        check_entity_id(id)


def test_addresses_are_values() -> None:
    address = EntityAddress("account", "alice", ShardId("default", 14))
    assert str(address) == "account/alice"
    for twin in (copy.deepcopy(address), pickle.loads(pickle.dumps(address))):
        assert twin == address
        assert len({twin, address}) == 1
    with pytest.raises(AttributeError):
        address.id = "bob"  # type: ignore[misc]


@given(message_ids, names, names, entity_ids | st.just("a@b:c:d"))
def test_public_message_ids_round_trip(id: str, group: str, type: str, entity_id: str) -> None:
    text = public_message_id(id, group, type, entity_id)
    assert parse_message_id(text) == MessageAddress(id, group, type, entity_id)


def test_golden_message_id() -> None:
    ids = MessageIds("0123456789ab")
    assert [ids.next(), ids.next()] == ["0123456789ab-1", "0123456789ab-2"]
    public = public_message_id("0123456789ab-2", "default", "account", "al:ice@home")
    assert public == "0123456789ab-2@default:account:al:ice@home"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "0123456789ab-1",
        "0123456789ab-1@default:account",
        "0123456789AB-1@default:account:alice",
        "0123456789ab-01@default:account:alice",
        "0123456789ab-1@de fault:account:alice",
        "0123456789ab-1@default::alice",
        "0123456789ab-1@default:account:",
        "0123456789ab-1@default:account:a\nb",
        "0123456789ab-" + "9" * 5_000 + "@default:account:alice",
    ],
)
def test_what_is_no_message_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"message id|name is|entity id"):
        parse_message_id(text)


@given(st.text(max_size=80))
def test_any_text_is_a_message_id_or_a_value_error(text: str) -> None:
    try:
        found = parse_message_id(text)
    except ValueError:
        return
    assert public_message_id(*found) == text


def test_message_ids_are_unique_across_threads() -> None:
    ids = MessageIds(new_nonce())
    found: list[list[str]] = [[] for _ in range(4)]

    def take(mine: list[str]) -> None:
        mine.extend(ids.next() for _ in range(2_000))

    threads = [threading.Thread(target=take, args=(mine,)) for mine in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({text for mine in found for text in mine}) == 8_000


@given(st.none() | st.text(max_size=120))
def test_runner_ids_are_names_that_end_with_their_nonce(name: str | None) -> None:
    nonce = new_nonce()
    assert len(nonce) == 12
    assert int(nonce, 16) >= 0
    runner_id = new_runner_id(name, nonce)
    assert check_name("runner", runner_id).endswith(f"-{nonce}")


def test_runner_ids_stay_readable() -> None:
    assert new_runner_id("shop api/7", "0123456789ab") == "shop-api-7-0123456789ab"
    assert new_runner_id("☕", "0123456789ab") == "runner-0123456789ab"
    assert new_nonce() != new_nonce()
