"""Settings: bounds that name field, value and bound; what `from_env` reads and refuses; no secrets shown."""

from __future__ import annotations

import ast
import contextlib
import copy
import dataclasses
import inspect
import pickle
import string
import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redis_cluster_kit import settings
from redis_cluster_kit.settings import (
    DatabaseSettings,
    DedupeSettings,
    DrainSettings,
    LeaseSettings,
    MachineIdSettings,
    MailboxSettings,
    RedisSettings,
    Settings,
    ShardSettings,
    ShortLeaseWarning,
)

UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "": 1}
VARIABLES = [
    f"RCK_{group.name}_{field.name}".upper()
    for group in dataclasses.fields(Settings)
    for field in dataclasses.fields(getattr(Settings(), group.name))
]


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def test_defaults_are_those_that_are_documented() -> None:
    made = Settings()
    assert made.lease.ttl == seconds(5)
    assert made.lease.renew_every == seconds(5) / 3
    assert made.lease.attempt_timeout == seconds(0.5)
    assert made.lease.drift == seconds(0.05)
    assert made.lease.margin == seconds(0.05)
    assert (made.shards.partitions, made.shards.per_group) == (16, 100)
    assert made.mailbox.capacity == 100
    assert made.drain.budget == seconds(10)
    windows = made.dedupe
    assert (windows.generated, windows.idempotency, windows.relayed) == (
        seconds(60),
        timedelta(minutes=10),
        timedelta(hours=24),
    )
    assert made.statement_timeout == seconds(2.5)
    assert made == Settings.from_env({})


def test_every_field_says_what_it_costs_to_change_it() -> None:
    """A field's text stands below it in the source: the class' own docstring does not count."""

    tree = ast.parse(inspect.getsource(settings))
    for group in (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name != "Settings"):
        for item, below in zip(group.body, group.body[1:], strict=False):
            if isinstance(item, ast.AnnAssign):
                assert isinstance(below, ast.Expr), f"{group.name}.{ast.unparse(item.target)}"


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: LeaseSettings(ttl=seconds(0.499)), r"LeaseSettings.ttl is 0.499 s, it must be at least 0.5 s"),
    (lambda: LeaseSettings(margin=seconds(0.5)), r"LeaseSettings.margin is 0.5 s, .* below ttl/10 \(0.5 s\)"),
    (lambda: LeaseSettings(margin=seconds(-1)), r"LeaseSettings.margin is -1 s, it must be above 0 s"),
    (lambda: LeaseSettings(look_every=seconds(6)), r"look_every is 6 s, it must be at most the ttl \(5 s\)"),
    (lambda: LeaseSettings(nodes=["redis://a", "redis://b"]), "has 2 entries, it must be 0, 1, 3 or 5"),
    (lambda: LeaseSettings(nodes=["redis://a"] * 3), "names a server twice"),
    (lambda: LeaseSettings(nodes=["localhost"]), r"nodes\[0\] must be a URL"),
    (lambda: ShardSettings(partitions=0), "partitions is 0, it must be a whole number from 1 to 16384"),
    (
        lambda: ShardSettings(per_group=10_001),
        "per_group is 10001, .* from 1 to 10000",
    ),
    (lambda: ShardSettings(groups={"billing": 0}), "group 'billing'"),
    (lambda: ShardSettings(groups={"a b": 1}), "shard group name"),
    (lambda: ShardSettings(weight=0), "weight is 0, it must be from 0.01 to 100"),
    (lambda: ShardSettings(weight=float("nan")), "weight is nan"),
    (
        lambda: RedisSettings(reader_block=seconds(2)),
        r"reader_block is 2 s, .* command_timeout \(2 s\)",
    ),
    (lambda: RedisSettings(eviction_check="no"), "eviction_check is 'no'"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    (lambda: DatabaseSettings(pool_size=True), "pool_size is True, it must be a whole number"),
    (lambda: DatabaseSettings(statement_timeout=seconds(0)), "statement_timeout is 0 s"),
    (lambda: MailboxSettings(capacity=0), "capacity is 0"),
    (lambda: MailboxSettings(payload_limit=1_023), "payload_limit is 1023"),
    (
        lambda: MailboxSettings(bytes_limit=1_024),
        r"bytes_limit is 1024, .* payload_limit \(262144\)",
    ),
    (lambda: MailboxSettings(max_depth=501), "max_depth is 501"),
    (lambda: DedupeSettings(generated=seconds(0.5)), "generated is 0.5 s, it must be at least 1 s"),
    (lambda: DrainSettings(budget=seconds(0)), "budget is 0 s, it must be above 0 s"),
    (lambda: MachineIdSettings(lease=seconds(4)), "lease is 4 s, it must be at least 5 s"),
    (
        lambda: Settings(database=DatabaseSettings(statement_timeout=seconds(5))),
        r"statement_timeout is 5 s, it must be below LeaseSettings.ttl \(5 s\)",
    ),
]


@pytest.mark.parametrize(("make", "text"), REFUSED, ids=[text[:30] for _, text in REFUSED])
def test_a_value_out_of_bounds_is_named_with_its_bound(make: Callable[[], object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make()


@pytest.mark.parametrize("wrong", [True, "5s", None, float("inf"), float("nan")], ids=repr)
def test_what_is_no_duration_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"DrainSettings.budget is .*, it must be a timedelta, or seconds"):
        DrainSettings(budget=wrong)


def test_the_bounds_themselves_are_allowed() -> None:
    with pytest.warns(ShortLeaseWarning):
        assert LeaseSettings(ttl=seconds(0.5)).margin == seconds(0.025)
    assert ShardSettings(partitions=1, per_group=10_000, weight=100).count("default") == 10_000
    assert MailboxSettings(payload_limit=1_024, bytes_limit=1_024, max_depth=4).bytes_limit == 1_024
    assert MachineIdSettings(lease=seconds(5)).lease == seconds(5)
    assert len(LeaseSettings(nodes=[f"redis://{name}" for name in "abcde"]).nodes) == 5


def test_a_short_ttl_warns_and_3_s_does_not() -> None:
    with pytest.warns(ShortLeaseWarning, match=r"ttl is 2.9 s: below 3 s"):
        LeaseSettings(ttl=seconds(2.9))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LeaseSettings(ttl=seconds(3))


def test_the_warning_names_the_line_that_wrote_the_ttl() -> None:
    with pytest.warns(ShortLeaseWarning) as caught:
        LeaseSettings(ttl=seconds(2.9))
    assert caught[0].filename == __file__


def test_plain_numbers_are_seconds() -> None:
    made: Any = DrainSettings(budget=2.5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert made.budget == seconds(2.5)


def test_groups_are_frozen_and_survive_pickle_and_copy() -> None:
    made = Settings(shards=ShardSettings(groups={"billing": 50}), lease=LeaseSettings(nodes=["redis://a"]))
    for twin in (pickle.loads(pickle.dumps(made)), copy.copy(made), copy.deepcopy(made)):
        assert twin == made
        assert twin.shards.count("billing") == 50
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.drain.budget = seconds(1)  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    counts: Any = made.shards.groups
    with pytest.raises(TypeError, match="does not support item assignment"):
        counts["billing"] = 51


def test_counts_are_not_shared_with_the_callers_mapping() -> None:
    counts = {"billing": 50}
    made = ShardSettings(groups=counts)
    counts["billing"] = 51
    assert made.count("billing") == 50
    assert made.count("other") == made.per_group


# --- from_env ---


@given(st.integers(1, 10**6), st.sampled_from(sorted(UNITS)), st.sampled_from(["", " "]))
def test_durations_have_units(count: int, unit: str, blank: str) -> None:
    made = Settings.from_env({"RCK_DRAIN_BUDGET": f"{blank}{count}{blank}{unit}{blank}"})
    assert made.drain.budget == seconds(count * UNITS[unit])


@pytest.mark.parametrize("text", ["", "5 sec", "-1s", "1e3", "5S", "s", "٥s", "1.s", "nan", "1s 2s"])
def test_what_is_no_duration_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="RCK_DRAIN_BUDGET must be a duration like 250ms, 5s"):
        Settings.from_env({"RCK_DRAIN_BUDGET": text})


def test_every_kind_of_value_is_read() -> None:
    made = Settings.from_env(
        {
            "RCK_LEASE_TTL": "7.5s",
            "RCK_LEASE_NODES": "redis://a, redis://b ,redis://c,",
            "RCK_SHARDS_GROUPS": "billing=50, default=10",
            "RCK_SHARDS_PARTITIONS": "32",
            "RCK_SHARDS_WEIGHT": "0.5",
            "RCK_REDIS_EVICTION_CHECK": "warn",
            "RCK_REDIS_TLS_CA": "/etc/ca.pem",
            "RCK_REDIS_TLS_INSECURE": "Yes",
            "RCK_DATABASE_CREATE_TABLES": "off",
            "RCK_DATABASE_STATEMENT_TIMEOUT": "800ms",
            "RCK_MACHINE_IDS_LEASE": "2m",
            "PATH": "/usr/bin",
        }
    )
    assert made == Settings(
        lease=LeaseSettings(ttl=seconds(7.5), nodes=("redis://a", "redis://b", "redis://c")),
        shards=ShardSettings(groups={"billing": 50, "default": 10}, partitions=32, weight=0.5),
        redis=RedisSettings(eviction_check="warn", tls_ca="/etc/ca.pem", tls_insecure=True),
        database=DatabaseSettings(create_tables=False, statement_timeout=seconds(0.8)),
        machine_ids=MachineIdSettings(lease=seconds(120)),
    )
    assert made.statement_timeout == seconds(0.8)


def test_it_reads_the_process_environment_and_takes_another_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RCK_DRAIN_BUDGET", "3s")
    assert Settings.from_env().drain.budget == seconds(3)
    assert Settings.from_env({"SHOP_DRAIN_BUDGET": "4s"}, prefix="SHOP").drain.budget == seconds(4)


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("RCK_MAILBOX_CAPACITY", "ten", "RCK_MAILBOX_CAPACITY must be a whole number, got 'ten'"),
        ("RCK_SHARDS_WEIGHT", "heavy", "RCK_SHARDS_WEIGHT must be a number, got 'heavy'"),
        ("RCK_REDIS_TLS_INSECURE", "maybe", "RCK_REDIS_TLS_INSECURE must be true or false, got 'maybe'"),
        ("RCK_SHARDS_GROUPS", "billing", "RCK_SHARDS_GROUPS must be counts like billing=50,default=100"),
        ("RCK_MAILBOX_CAPACITY", "0", r"RCK_MAILBOX_\*: MailboxSettings.capacity is 0"),
        ("RCK_LEASE_TTTL", "5s", "RCK_LEASE_TTTL is not a setting; did you mean RCK_LEASE_TTL?"),
        ("RKC_LEASE_TTL", "5s", "RKC_LEASE_TTL is not a setting; did you mean RCK_LEASE_TTL?"),
        ("RCK_DRAIN_ZZZZZZZZZZZZZZZZ", "1", "is not a setting; known: RCK_DATABASE_CREATE_TABLES, "),
    ],
)
def test_a_wrong_variable_is_named(variable: str, text: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        Settings.from_env({variable: text})


def test_variables_that_kubernetes_adds_are_not_ours() -> None:
    links = {
        "RCK_REDIS_SERVICE_HOST": "10.0.0.1",
        "RCK_REDIS_SERVICE_PORT": "6379",
        "RCK_REDIS_PORT": "tcp://10.0.0.1:6379",
        "RCK_REDIS_PORT_6379_TCP_ADDR": "10.0.0.1",
    }
    assert Settings.from_env(links) == Settings()


@given(st.sampled_from(VARIABLES), st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
def test_any_text_is_read_or_a_value_error(variable: str, text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShortLeaseWarning)
        with contextlib.suppress(ValueError):
            assert Settings.from_env({variable: text}).statement_timeout > timedelta()


def test_a_duration_beyond_all_bounds_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="RCK_DRAIN_BUDGET"):
        Settings.from_env({"RCK_DRAIN_BUDGET": "999999999999d"})


def test_a_flag_is_true_or_false() -> None:
    wrong: Any = "false"
    with pytest.raises(ValueError, match="tls_insecure"):
        RedisSettings(tls_insecure=wrong)


# --- secrets ---


@given(st.text(string.ascii_letters + string.digits + ":%!*", max_size=12))
def test_a_password_is_never_shown(random: str) -> None:
    secret = f"S3c{random}ret"
    nodes = [f"rediss://app:{secret}@{host}:6379/0" for host in "abc"]
    made = Settings(lease=LeaseSettings(nodes=nodes))
    assert list(made.lease.nodes) == nodes
    assert "rediss://***@a:6379/0" in repr(made)
    for shown in (repr(made), str(made), repr(made.lease), f"{made.lease}"):
        assert "S3c" not in shown


@pytest.mark.parametrize(
    "nodes",
    ["redis://u:S3cret@a,redis://b", "redis://u:S3cret@a b", "redis://:S3cret@a," * 3],
    ids=["count", "blank", "twice"],
)
def test_a_refused_node_does_not_show_its_password(nodes: str) -> None:
    with pytest.raises(ValueError, match=r"LeaseSettings.nodes") as caught:
        Settings.from_env({"RCK_LEASE_NODES": nodes})
    told: BaseException | None = caught.value
    while told is not None:
        assert "S3cret" not in f"{told} {told!r}"
        told = told.__cause__ or told.__context__


def test_a_url_in_the_wrong_variable_does_not_show_its_password() -> None:
    with pytest.raises(ValueError, match="RCK_LEASE_TTL must be a duration") as caught:
        Settings.from_env({"RCK_LEASE_TTL": "redis://u:S3cret@a"})
    assert "S3cret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
