"""What an error says of itself, as text that can be stored and sent, whatever its class makes of `str`."""

from __future__ import annotations

import traceback

from redis_cluster_kit.errors import ClusterError, HandlerFailedError, ReasonedError, TransportedError


def outward(error: Exception, entity_id: str) -> ClusterError:
    """Return what the asker gets of an error that its callee did not declare."""
    name, text = type(error).__name__, error_text(error)
    return HandlerFailedError(
        entity_id=entity_id,
        remote_type=name,
        remote_message=text,
        remote_traceback=traceback_text(error),
        cause=TransportedError(name, text),
    )


def error_text(error: Exception) -> str:
    """Return what an error says, as something that can be stored, whatever its class makes of `str`."""
    try:
        text = error.explain() if isinstance(error, ReasonedError) else str(error)
    except Exception as trouble:  # noqa: BLE001 - of the user's class, which must not harm the shard
        text = f"(its text cannot be had: {type(trouble).__name__})"
    return _storable(text)[:2000]


def traceback_text(error: Exception) -> str:
    """Return the end of its traceback."""
    return _storable("".join(traceback.format_exception(error)))[-8000:]


def _storable(text: str) -> str:
    """Lone surrogates have no UTF-8."""
    return text.encode(errors="backslashreplace").decode()
