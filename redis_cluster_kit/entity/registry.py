"""Collects what an application serves, over several modules, until a cluster is entered.

It only records: types are resolved and checked by `close()`, and serving them is the cluster's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from redis_cluster_kit.entity.cron import CronDefinition
from redis_cluster_kit.entity.definition import Entity, EntityDefinition, define
from redis_cluster_kit.entity.registering import Registering
from redis_cluster_kit.entity.singleton import SingletonDefinition

__all__ = ["Registry"]

E = TypeVar("E", bound=Entity[Any])


class Registry(Registering):
    """What one module of an application serves: `Cluster(include=[billing.registry])`."""

    def __init__(self) -> None:
        self._entities: list[type[Entity[Any]]] = []
        self._singletons: list[SingletonDefinition] = []
        self._crons: list[CronDefinition] = []
        self._included: list[Registry] = []
        self._closed = False

    @property
    def is_closed(self) -> bool:
        """Whether a cluster has been entered with it: nothing can be added any more."""
        return self._closed

    def entity(self, entity: type[E], /) -> type[E]:
        """Add a type of entity; also as a decorator. A name twice is a ValueError."""
        self._check_open()
        _check_entity(entity)
        self._check_free(entity)
        self._entities.append(entity)
        return entity

    def add_singleton(self, definition: SingletonDefinition) -> None:
        """Add a definition; `singleton` makes one of what it decorates."""
        self._check_open()
        self._check_free_name(definition)
        self._singletons.append(definition)

    def add_cron(self, definition: CronDefinition) -> None:
        """Add a definition; `cron` makes one of what it decorates."""
        self._check_open()
        self._check_free_cron(definition)
        self._crons.append(definition)

    def include(self, registry: Registry, /) -> None:
        """Add all that `registry` holds, or will hold when this one is closed."""
        self._check_open()
        if registry.includes(self):
            raise ValueError("a registry cannot include itself")
        for entity in registry.entities():
            self._check_free(entity)
        for singleton in registry.singletons():
            self._check_free_name(singleton)
        for cron in registry.crons():
            self._check_free_cron(cron)
        self._included.append(registry)

    def includes(self, registry: Registry) -> bool:
        """Whether `registry` is this one or, over any number of steps, included in it."""
        return registry is self or any(included.includes(registry) for included in self._included)

    def entities(self) -> Iterator[type[Entity[Any]]]:
        """Yield the types of this registry and of those it includes, in the order they were added."""
        yield from self._entities
        for included in self._included:
            yield from included.entities()

    def singletons(self) -> Iterator[SingletonDefinition]:
        """Yield the singletons of this registry and of those it includes, in the order they were added."""
        yield from self._singletons
        for included in self._included:
            yield from included.singletons()

    def crons(self) -> Iterator[CronDefinition]:
        """Yield the crons of this registry and of those it includes, in the order they were added."""
        yield from self._crons
        for included in self._included:
            yield from included.crons()

    def close(self) -> Mapping[str, EntityDefinition]:
        """Take nothing more, here and in all it includes; return the definitions by name, those of ticks too.

        What is wrong with them is raised before anything is closed. May be called again.
        """
        definitions: dict[str, EntityDefinition] = {}
        for entity in (*self.entities(), *(cron.entity for cron in self.crons())):
            made = define(entity)
            if made.name in definitions:
                raise _taken(made.name, definitions[made.name].entity, entity)
            definitions[made.name] = made
        names: set[str] = set()
        for singleton in self.singletons():
            if singleton.name in names:
                raise _singleton_taken(singleton.name)
            names.add(singleton.name)
            singleton.resolve()
        self._closed = True
        for included in self._included:
            included.close()
        return MappingProxyType(definitions)

    def _check_free(self, entity: type[Entity[Any]]) -> None:
        name = entity.__declaration__.name
        for other in self.entities():
            if other.__declaration__.name == name:
                raise _taken(name, other, entity)
        for cron in self.crons():
            if cron.type == name:
                raise _cron_taken(cron.name, entity)

    def _check_free_name(self, definition: SingletonDefinition) -> None:
        if any(other.name == definition.name for other in self.singletons()):
            raise _singleton_taken(definition.name)

    def _check_free_cron(self, definition: CronDefinition) -> None:
        if any(other.name == definition.name for other in self.crons()):
            raise ValueError(f"two crons have the name {definition.name!r}; give one of them another name=")
        for entity in self.entities():
            if entity.__declaration__.name == definition.type:
                raise _cron_taken(definition.name, entity)

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("too late: register everything before the cluster is entered")


def _check_entity(entity: object) -> None:
    if not (isinstance(entity, type) and issubclass(entity, Entity)) or entity is Entity:
        raise TypeError(f"an entity is a class derived from Entity, got {entity!r}")


def _taken(name: str, first: type[Any], second: type[Any]) -> ValueError:
    shown = " and ".join(f"{kind.__module__}.{kind.__qualname__}" for kind in (first, second))
    return ValueError(f"two entities have the name {name!r}: {shown}; give one of them another name=")


def _singleton_taken(name: str) -> ValueError:
    return ValueError(f"two singletons have the name {name!r}; give one of them another name")


def _cron_taken(name: str, entity: type[Any]) -> ValueError:
    return ValueError(
        f"the ticks of cron {name!r} are messages to entities of type 'cron.{name}', which is also "
        f"the name of {entity.__module__}.{entity.__qualname__}; give one of them another name="
    )
