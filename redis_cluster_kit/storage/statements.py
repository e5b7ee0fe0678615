"""SQL texts that run on both dialects, with typed parameters.

A statement is written once; the few words in which PostgreSQL and SQLite differ stand in braces. It stops
at the text: what runs it is `database.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from sqlalchemy import BigInteger, Integer, LargeBinary, String, TextClause, bindparam, text
from sqlalchemy.types import TypeEngine

Dialect = Literal["postgresql", "sqlite"]

# What many rows at a time are handed over as: a JSON list under this parameter, and the columns read from it.
_LISTS: Mapping[str, Mapping[str, str]] = {
    "holds": {"hold_group": "text", "hold_shard": "int", "hold_fence": "bigint", "hold_nonce": "text"},
    "crons": {
        "cron_name": "text",
        "cron_group": "text",
        "cron_shard": "int",
        "cron_expression": "text",
        "cron_timezone": "text",
        "cron_overlap": "text",
        "cron_limit": "bigint",
    },
    "moves": {"move_name": "text", "move_ms": "bigint"},
    "instants": {
        "instant_name": "text",
        "instant_ms": "bigint",
        "instant_status": "text",
        "instant_reason": "text",
        "instant_id": "text",
    },
    "names": {"listed": "text"},
}


def _list_words(dialect: Dialect) -> dict[str, str]:
    """`{each_holds}` and the like: something to select from."""
    words: dict[str, str] = {}
    for parameter, columns in _LISTS.items():
        if dialect == "postgresql":
            shape = ", ".join(f"{name} {kind}" for name, kind in columns.items())
            rows = f"SELECT * FROM json_to_recordset(CAST(:{parameter} AS json)) AS rows({shape})"  # noqa: S608
        else:
            shape = ", ".join(f"json_extract(value, '$.{name}') AS {name}" for name in columns)
            rows = f"SELECT {shape} FROM json_each(:{parameter})"  # noqa: S608 - our own names
        words[f"each_{parameter}"] = f"({rows}) AS {parameter}_list"
    return words


# `clock_timestamp()` and not `now()`: after a wait for a lock the latter is as old as the transaction.
# A BEGIN IMMEDIATE locks the whole SQLite file, so there is nothing to lock row by row.
_WORDS: Mapping[Dialect, Mapping[str, str]] = {
    "postgresql": {
        "bytes": "BYTEA",
        "each_place": "json_array_elements(CAST(:places AS json)) AS p(value)",
        "place_0": "(p.value ->> 0)",
        "place_1": "(p.value ->> 1)",
        "each_proposal": "json_each_text(CAST(:proposals AS json)) AS p(key, value)",
        "for_share": "FOR SHARE",
        "for_share_of_fences": "FOR SHARE OF f",
        "if_free": "FOR UPDATE SKIP LOCKED",
        "greatest": "greatest",
        "clock_ms": "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)",
        **_list_words("postgresql"),
    },
    "sqlite": {
        "bytes": "BLOB",
        "each_place": "json_each(:places) AS p",
        "place_0": "json_extract(p.value, '$[0]')",
        "place_1": "json_extract(p.value, '$[1]')",
        "each_proposal": "json_each(:proposals) AS p",
        "for_share": "",
        "for_share_of_fences": "",
        "if_free": "",
        "greatest": "max",
        "clock_ms": "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)",
        **_list_words("sqlite"),
    },
}

# Every parameter has one meaning and one type in all statements; PostgreSQL cannot infer them in `SELECT :x`.
_TYPES: Mapping[str, TypeEngine[Any]] = {
    "after_ms": BigInteger(),
    "after_name": String(),
    "attempt": BigInteger(),
    "before_ms": BigInteger(),
    "body": LargeBinary(),
    "breaker_limit": BigInteger(),
    "commit_id": String(),
    "crons": String(),
    "dead_before": BigInteger(),
    "expected": BigInteger(),
    "expected_revision": BigInteger(),
    "failed_at": BigInteger(),
    "fence": BigInteger(),
    "heartbeat": BigInteger(),
    "holds": String(),
    "instants": String(),
    "keep_ms": BigInteger(),
    "key": String(),
    "last_error": String(),
    "last_run": BigInteger(),
    "lease_ms": BigInteger(),
    "machine_id": Integer(),
    "message_id": String(),
    "most": Integer(),
    "moves": String(),
    "name": String(),
    "names": String(),
    "namespace": String(),
    "nonce": String(),
    "now_ms": BigInteger(),
    "old_value": LargeBinary(),
    "oldest": BigInteger(),
    "open_until": BigInteger(),
    "paused": Integer(),
    "prefix": String(),
    "proposals": String(),
    "reason": String(),
    "record": String(),
    "reserved_ms": BigInteger(),
    "run_count": BigInteger(),
    "scheduled": BigInteger(),
    "schema_version": Integer(),
    "shard": Integer(),
    "shard_group": String(),
    "since": BigInteger(),
    "span_ms": BigInteger(),
    "status": String(),
    "value": LargeBinary(),
    "version": BigInteger(),
    "execution": String(),
    "failure": String(),
    "input": String(),
    "number": BigInteger(),
    "places": String(),
    "subject": String(),
    "what": String(),
    "secret": LargeBinary(),
    "adopted": String(),
    "age_ms": BigInteger(),
}


class Statement:
    """One SQL text in both dialects. Its parameters are found by their names."""

    def __init__(self, template: str) -> None:
        self._by_dialect: dict[Dialect, TextClause] = {
            dialect: _typed(template.format_map(words)) for dialect, words in _WORDS.items()
        }

    def on(self, dialect: Dialect) -> TextClause:
        """Return the text for `dialect`."""
        return self._by_dialect[dialect]


def words_of(dialect: Dialect) -> Mapping[str, str]:
    """Return what stands for the words in braces on `dialect`; migrations use the same ones."""
    return _WORDS[dialect]


def _typed(sql: str) -> TextClause:
    clause = text(sql)
    return clause.bindparams(*(bindparam(name, type_=_TYPES[name]) for name in clause.compile().params))
