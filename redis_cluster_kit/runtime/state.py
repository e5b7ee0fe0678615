"""One activation's state: the last committed bytes, and the value that handlers see and change."""

from __future__ import annotations

from typing import Any

from redis_cluster_kit.codec import decode, encode
from redis_cluster_kit.delivery import SavedState
from redis_cluster_kit.entity import Entity, EntityDefinition
from redis_cluster_kit.errors import MalformedMessageError, PersistenceFailedError

from .commit import StateWrite


class LiveState:
    """What was committed last, and how to make the state from it again after a turn that raised."""

    def __init__(self, definition: EntityDefinition, saved: SavedState) -> None:
        self._definition = definition
        self._saved = saved
        self._started: bytes | None = None
        """What `on_start` made of it, until a commit has saved that."""

    @property
    def is_durable(self) -> bool:
        """Whether there is any state to save."""
        return self._definition.state is not None

    @property
    def version(self) -> int:
        """The version of the state that was committed last; 0: there is none yet."""
        return self._saved.version

    def decode(self, instance: Entity[Any]) -> Any:
        """Return the committed state, new each time; `PersistenceFailedError` if it cannot be read."""
        definition, saved = self._definition, self._saved
        if definition.state is None:
            return None
        if self._started is not None:
            return decode(self._started, definition.state, max_depth=500)
        if not saved.version:
            return instance.initial()
        try:
            if saved.schema == definition.state_version:
                return decode(saved.content, definition.state, max_depth=500)
            if saved.schema > definition.state_version:  # `upgrade` knows only what came before it
                raise ValueError(
                    f"a newer release saved it, this one has state_version {definition.state_version}"
                )
            raw = decode(saved.content, dict[str, Any], max_depth=500)
            return definition.entity.upgrade(raw, saved.schema)
        except Exception as error:
            why = error.detail if isinstance(error, MalformedMessageError) else repr(error)
            raise PersistenceFailedError(
                store="entity state",
                entity_id=instance.id,
                is_retryable=False,
                detail=f"version {saved.version}, schema {saved.schema}, cannot be read and is kept: {why}",
                cause=error,
            ) from error

    def started(self, state: Any) -> None:
        """Note what `on_start` has changed: every turn sees it, the first one that writes saves it."""
        write = self.write_of(state)
        self._started = None if write is None else write.content

    def write_of(self, state: Any) -> StateWrite | None:
        """Return what a commit has to write; None if nothing has changed.

        `MalformedMessageError` if the state does not fit its type: saved, it could never be read again.
        """
        if self._definition.state is None:
            return None
        content = encode(state, limit=None, max_depth=500)
        saved = self._saved
        if saved.version and content == saved.content and saved.schema == self._definition.state_version:
            return None
        decode(content, self._definition.state, max_depth=500)
        return StateWrite(saved.version, self._definition.state_version, content)

    def committed(self, write: StateWrite | None) -> None:
        """Note what a commit has written."""
        if write is not None:
            self._started = None
            self._saved = SavedState(write.expected + 1, write.schema, write.content)
