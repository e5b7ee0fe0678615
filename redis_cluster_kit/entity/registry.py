"""Collects what an application serves, over several modules, until a cluster is entered.

It only records: types are resolved and checked by `close()`, and serving them is the cluster's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from redis_cluster_kit.entity.definition import Entity, EntityDefinition, define

__all__ = ["Registry"]

E = TypeVar("E", bound=Entity[Any])


class Registry:
    """What one module of an application serves: `Cluster(include=[billing.registry])`."""

    def __init__(self) -> None:
        self._entities: dict[str, type[Entity[Any]]] = {}
        self._included: list[Registry] = []
        self._closed = False

    @property
    def is_closed(self) -> bool:
        """Whether a cluster has been entered with it: nothing can be added any more."""
        return self._closed

    def entity(self, entity: type[E], /) -> type[E]:
        """Add a type of entity; also as a decorator. A name twice is a ValueError."""
        self._check_open(f"entity {getattr(entity, '__name__', entity)!r}")
        kind: object = entity
        if not (isinstance(kind, type) and issubclass(kind, Entity)) or kind is Entity:
            raise TypeError(f"an entity is a class derived from Entity, got {entity!r}")
        name = entity.__declaration__.name
        for other in self._named(name):
            raise _taken(name, other, entity)
        self._entities[name] = entity
        return entity

    def include(self, registry: Registry, /) -> None:
        """Add all that `registry` holds, or will hold when this one is closed."""
        self._check_open("a registry")
        if any(found is self for found in registry.walk()):
            raise ValueError("a registry cannot include itself")
        for found in registry.walk():
            for name, entity in found._entities.items():
                for other in self._named(name):
                    raise _taken(name, other, entity)
        self._included.append(registry)

    def close(self) -> Mapping[str, EntityDefinition]:
        """Close this one and all it includes, and return what they hold, by name; may be called again."""
        definitions: dict[str, EntityDefinition] = {}
        for found in self.walk():
            for name, entity in found._entities.items():
                if name in definitions:
                    raise _taken(name, definitions[name].entity, entity)
                definitions[name] = define(entity)
        # Only now: what could not be defined may still be mended.
        for found in self.walk():
            found._closed = True
        return MappingProxyType(definitions)

    def walk(self) -> Iterator[Registry]:
        """Yield this registry and all it includes, in the order they were added."""
        yield self
        for included in self._included:
            yield from included.walk()

    def _named(self, name: str) -> Iterator[type[Entity[Any]]]:
        return (found._entities[name] for found in self.walk() if name in found._entities)

    def _check_open(self, what: str) -> None:
        if self._closed:
            raise RuntimeError(f"{what} comes too late: register everything before the cluster is entered")


def _taken(name: str, first: type[Any], second: type[Any]) -> ValueError:
    shown = " and ".join(f"{kind.__module__}.{kind.__qualname__}" for kind in (first, second))
    return ValueError(f"two entities have the name {name!r}: {shown}; give one of them another name=")
