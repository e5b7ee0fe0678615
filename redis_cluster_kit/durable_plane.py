"""What a runner keeps beyond itself: singletons' states, executions, crons and key-value stores.

In the database where there is one, with copies in Redis; in Redis alone, or refused, where there is none. It
only makes the stores; opening the database and using them is the runner's.
"""

from __future__ import annotations

from typing import NamedTuple

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.delivery import Parking
from redis_cluster_kit.durable import DurableCounters, Patience
from redis_cluster_kit.redis_access import Keyspace, Lanes
from redis_cluster_kit.runtime import Executions, Stores
from redis_cluster_kit.settings import Settings
from redis_cluster_kit.storage import (
    Database,
    Deferreds,
    Journal,
    Leftovers,
    RedisState,
    SingletonExecutions,
    SingletonStore,
    SqlMetadata,
    SqlState,
)
from redis_cluster_kit.storage.key_value import KeyValueStore, RedisStore, SqlStore, WriteThroughStore


class DurablePlane(NamedTuple):
    """The stores of one runner."""

    database: Database | None
    lanes: Lanes
    keyspace: Keyspace
    clock: Clock
    settings: Settings
    runner_id: str

    @property
    def namespace(self) -> str:
        """Whose rows and keys they are."""
        return self.keyspace.namespace

    def singletons(self) -> SingletonStore:
        """Singletons live in the database, with copies in Redis; without one, in Redis alone."""
        cache = RedisState(self.lanes, self.keyspace, self.clock, self.runner_id)
        if self.database is None:
            return SingletonStore(cache, None, None, None)
        database, namespace = self.database, self.namespace
        return SingletonStore(
            cache,
            SqlState(database, namespace),
            SqlMetadata(database, namespace),
            Leftovers(database, namespace),
        )

    def executions(self) -> Executions:
        """Durable steps have their journal in the database; without one they are refused."""
        stores = None
        if self.database is not None:
            journal = Journal(self.database, self.namespace)
            stores = Stores(
                journal,
                SingletonExecutions(self.database, journal, self.namespace),
                Deferreds(self.database, self.namespace),
                self._patience(self.database),
            )
        parking = Parking(self.lanes, self.keyspace)
        return Executions(stores, parking, self.clock, self.settings.durable, DurableCounters())

    def _patience(self, database: Database) -> Patience:
        return Patience(
            attempt=self.settings.statement_timeout.total_seconds(),
            total=2 * self.settings.lease.ttl.total_seconds(),
            at_once=1 if database.is_sqlite else self.settings.database.pool_size,
        )

    def key_value(self) -> KeyValueStore:
        """Redis before the database; Redis alone where there is none."""
        limit = self.settings.key_value.value_limit
        redis = RedisStore(self.lanes, self.keyspace, value_limit=limit)
        if self.database is None:
            return redis
        durable = SqlStore(self.database, self.namespace, value_limit=limit)
        return WriteThroughStore(redis, durable, believed_for=self.settings.key_value.believed_for)
