"""What a runner needs to send messages and to handle them, made once and wired together.

It opens nothing by itself: the runner opens its lanes, keeps its inbox alive and lets its host serve shards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple

import msgspec

from redis_cluster_kit.calling import Caller
from redis_cluster_kit.clock import Clock
from redis_cluster_kit.delivery import Mailboxes, Replies, ReplyPlace
from redis_cluster_kit.entity import EntityDefinition, TickRunner
from redis_cluster_kit.envelope import Envelope, seal_envelope
from redis_cluster_kit.identity import MessageIds
from redis_cluster_kit.ownership import FenceKeys, Inbox, Membership
from redis_cluster_kit.redis_access import Keyspace, Lanes, RedisUrl
from redis_cluster_kit.runtime import Broadcasts, CronHost, EntityHost, Executions, SingletonHost
from redis_cluster_kit.settings import Settings
from redis_cluster_kit.telemetry import TRACING, outgoing_trace


class Served(NamedTuple):
    """The entities, singletons and crons a runner hosts, and what their code gets from the cluster."""

    definitions: Mapping[str, EntityDefinition]
    singletons: SingletonHost
    executions: Executions
    make_crons: Callable[[Mailboxes], CronHost | None]
    cluster: Any
    resource: Callable[[type[Any]], Any]


class Messaging:
    """One runner's mailboxes, caller, inbox and, if it hosts, the host of its entities."""

    def __init__(
        self,
        url: RedisUrl,
        settings: Settings,
        commands: Lanes,
        keyspace: Keyspace,
        clock: Clock,
        keys: FenceKeys,
        membership: Membership,
        served: Served | None,
    ) -> None:
        self._settings = settings
        self._keyspace = keyspace
        self._membership = membership
        self.is_closed = False
        ids = MessageIds(keys.nonce)
        # Another partition for each runner, so that none carries everybody's replies.
        place = ReplyPlace(int(keys.nonce[:8], 16) % keyspace.partitions, keys.runner_id)
        self._replicating = Lanes(url, settings.redis)
        self._readers: list[Lanes] = []
        self.inbox = self._make_inbox(url, commands, place, is_host=served is not None)
        self.mailboxes = Mailboxes(commands, self._replicating, keyspace, settings.mailbox, settings.dedupe)
        self.replies = Replies(commands, keyspace, place)
        self.caller = Caller(self.mailboxes, self.replies, clock, ids, settings, lambda: self.is_closed)
        self.broadcasts = Broadcasts(self.mailboxes, self.replies, ids, self.inbox.post, self._hosts_of)
        self.inbox.handlers[b"r"] = self.replies.on_nudge
        self.host = None if served is None else self._make_host(served, clock, keys)

    @property
    def lanes(self) -> list[Lanes]:
        """The lanes that are its own, to be opened and closed by the runner."""
        return [self._replicating, *self._readers]

    async def broadcast(
        self, definition: EntityDefinition, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> int:
        """Send a message to every entity of the type that is in memory anywhere; return how many took it."""
        rpc, limits = definition.rpcs[name], self._settings.mailbox
        arguments = rpc.arguments.encode(args, kwargs, limit=limits.payload_limit, max_depth=limits.max_depth)
        with ExitStack() as stack:
            if TRACING.tracer is not None:
                runner_id = self._membership.me.runner_id
                about = {"runner_id": runner_id, "entity_type": definition.name, "rpc": name}
                stack.enter_context(TRACING.sending("cluster.broadcast", **about))
            message = seal_envelope(
                Envelope(rpc=name, args=msgspec.Raw(arguments), trace=outgoing_trace({})),
                limit=limits.payload_limit + 4096,
            )
            await self._membership.refresh()
            return await self.broadcasts.send(definition.name, message, timeout=5.0)

    def _make_inbox(self, url: RedisUrl, commands: Lanes, place: ReplyPlace, *, is_host: bool) -> Inbox:
        """A host hears nudges of every partition, a runner that only sends just its replies."""
        partitions = list(range(self._keyspace.partitions)) if is_host else [place.partition]
        readers = len(partitions) if url.topology == "cluster" else 1
        self._readers = [Lanes(url, self._settings.redis, role="reader") for _ in range(readers)]
        return Inbox(
            commands,
            self._readers,
            self._keyspace,
            place.runner_id,
            ttl=self._settings.lease.ttl,
            block=self._settings.redis.reader_block,
            partitions=partitions,
        )

    def _make_host(self, served: Served, clock: Clock, keys: FenceKeys) -> EntityHost:
        crons = served.make_crons(self.mailboxes)

        def resource(type: type[Any]) -> Any:
            return crons if type is TickRunner else served.resource(type)

        host = EntityHost(
            served.definitions,
            self.mailboxes,
            self.replies,
            self.caller,
            clock,
            self._settings,
            keys.runner_id,
            cluster=served.cluster,
            resource=resource,
            note_wants=keys.want,
            somebody_serves=self._somebody_serves,
            singletons=served.singletons,
            executions=served.executions,
            crons=crons,
        )
        self.broadcasts.host = host
        self.inbox.handlers |= {b"m": host.on_mail, b"t": host.on_timer, b"b": self.broadcasts.on_nudge}
        self.inbox.handlers[b"w"] = served.executions.on_wake
        return host

    def _hosts_of(self, type: str) -> list[str]:
        """The runners that serve a type, as far as this one knows."""
        return [
            member.runner_id
            for member in self._membership.members.values()
            if member.hosting and any(type in names for names in member.serves.values())
        ]

    def _somebody_serves(self, names: Iterable[str]) -> bool:
        """Whether one live runner knows all of these."""
        wanted = set(names)
        return any(
            member.hosting and wanted <= {name for served in member.serves.values() for name in served}
            for member in self._membership.members.values()
        )
