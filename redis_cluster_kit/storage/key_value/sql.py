"""A key-value store in the database: the table `kv_store`, one statement an operation.

`modify` compares the whole value in its UPDATE, so no user code runs inside a transaction and no row stays
locked. Prefixes are compared row by row within the namespace.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection

from redis_cluster_kit.identity import check_name
from redis_cluster_kit.settings import DatabaseSettings
from redis_cluster_kit.storage.database import Database, Work
from redis_cluster_kit.storage.statements import Statement

from .base import BaseStore
from .contract import VALUE_LIMIT

_READ = Statement("SELECT value FROM kv_store WHERE namespace = :namespace AND key = :key")
_WRITE = Statement("""
INSERT INTO kv_store (namespace, key, value, updated_at)
VALUES (:namespace, :key, :value, {clock_ms})
ON CONFLICT (namespace, key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at
RETURNING 1
""")
_ADD = Statement("""
INSERT INTO kv_store (namespace, key, value, updated_at)
VALUES (:namespace, :key, :value, {clock_ms})
ON CONFLICT (namespace, key) DO NOTHING
RETURNING 1
""")
_CHANGE = Statement("""
UPDATE kv_store SET value = :value, updated_at = {clock_ms}
WHERE namespace = :namespace AND key = :key AND value = :old_value
RETURNING 1
""")
_DROP = Statement("""
DELETE FROM kv_store WHERE namespace = :namespace AND key = :key AND value = :old_value RETURNING 1
""")
_DELETE = Statement("DELETE FROM kv_store WHERE namespace = :namespace AND key = :key RETURNING 1")
_COUNT = Statement("""
SELECT count(*) FROM kv_store
WHERE namespace = :namespace AND substr(key, 1, length(:prefix)) = :prefix
""")
_WIPE = Statement("""
DELETE FROM kv_store
WHERE namespace = :namespace AND substr(key, 1, length(:prefix)) = :prefix
""")


class SqlStore(BaseStore):
    """`async with SqlStore.open("postgresql+asyncpg://…", namespace="shop") as store:`, on SQLite files too.

    `timeout` is how many seconds an operation may take.
    """

    def __init__(
        self, database: Database, namespace: str, *, value_limit: int = VALUE_LIMIT, timeout: float = 5.0
    ) -> None:
        """Use a database that somebody else opens, prepares and closes."""
        super().__init__(value_limit=value_limit)
        self._database = database
        self._namespace = check_name("namespace", namespace)
        self._timeout = timeout

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        url: str,
        *,
        namespace: str = "default",
        settings: DatabaseSettings | None = None,
        value_limit: int = VALUE_LIMIT,
        timeout: float = 5.0,
    ) -> AsyncGenerator[SqlStore]:
        """Open a store with connections of its own; its table is made if it is not there."""
        settings = settings or DatabaseSettings()
        async with Database(url, settings, ttl=timedelta(seconds=2 * timeout)) as database:
            await database.prepare(settings.create_tables)
            yield cls(database, namespace, value_limit=value_limit, timeout=timeout)

    def __repr__(self) -> str:
        return f"SqlStore({self._database!r}, namespace={self._namespace!r})"

    async def _read(self, key: str) -> bytes | None:
        found = await self._database.read(self._one(_READ, key=key), timeout=self._timeout)
        return None if found is None else bytes(found)

    async def _write(self, key: str, value: bytes) -> None:
        await self._changes(_WRITE, key=key, value=value)

    async def _delete(self, key: str) -> bool:
        return await self._changes(_DELETE, key=key)

    async def _swap(self, key: str, before: bytes | None, after: bytes | None) -> bool:
        if before is None:
            return await self._changes(_ADD, key=key, value=after)
        if after is None:
            return await self._changes(_DROP, key=key, old_value=before)
        return await self._changes(_CHANGE, key=key, value=after, old_value=before)

    async def _count(self, prefix: str) -> int:
        count: int = await self._database.read(self._one(_COUNT, prefix=prefix), timeout=self._timeout)
        return count

    async def _wipe(self, prefix: str) -> None:
        wipe, values = _WIPE.on(self._database.dialect), {"namespace": self._namespace, "prefix": prefix}

        def work(connection: Connection) -> None:
            connection.execute(wipe, values)

        await self._database.statement(work, timeout=self._timeout)

    async def _changes(self, statement: Statement, **parameters: object) -> bool:
        work = self._one(statement, **parameters)
        return await self._database.statement(work, timeout=self._timeout) is not None

    def _one(self, statement: Statement, **parameters: object) -> Work[Any]:
        """One statement whose answer is one value, or None without a row."""
        text, values = statement.on(self._database.dialect), {"namespace": self._namespace, **parameters}

        def work(connection: Connection) -> Any:
            return connection.execute(text, values).scalar()

        return work
