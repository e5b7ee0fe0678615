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
        "greatest": "greatest",
        "clock_ms": "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)",
    },
    "sqlite": {
        "bytes": "BLOB",
        "each_place": "json_each(:places) AS p",
        "place_0": "json_extract(p.value, '$[0]')",
        "place_1": "json_extract(p.value, '$[1]')",
        "each_proposal": "json_each(:proposals) AS p",
        "for_share": "",
        "greatest": "max",
        "clock_ms": "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)",
    },
}

# Every parameter has one meaning and one type in all statements; PostgreSQL cannot infer them in `SELECT :x`.
_TYPES: Mapping[str, TypeEngine[Any]] = {
    "body": LargeBinary(),
    "commit_id": String(),
    "expected": BigInteger(),
    "expected_revision": BigInteger(),
    "failed_at": BigInteger(),
    "fence": BigInteger(),
    "key": String(),
    "heartbeat": BigInteger(),
    "keep_ms": BigInteger(),
    "last_error": String(),
    "last_run": BigInteger(),
    "lease_ms": BigInteger(),
    "machine_id": Integer(),
    "name": String(),
    "namespace": String(),
    "nonce": String(),
    "now_ms": BigInteger(),
    "old_value": LargeBinary(),
    "prefix": String(),
    "proposals": String(),
    "reason": String(),
    "record": String(),
    "reserved_ms": BigInteger(),
    "run_count": BigInteger(),
    "schema_version": Integer(),
    "shard": Integer(),
    "shard_group": String(),
    "since": BigInteger(),
    "span_ms": BigInteger(),
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
    "most": Integer(),
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
