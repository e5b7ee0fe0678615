"""The function of a step: what its input is known by, what its result is read as, and how it is called."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import anyio.to_thread

from redis_cluster_kit import codec
from redis_cluster_kit.errors import MalformedMessageError

_DIGEST = 16


def input_of(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return a digest of a step's arguments: equal for equal ones, in every process."""
    try:
        return digest(codec.canonical((args, kwargs)))
    except MalformedMessageError as error:
        raise MalformedMessageError(
            detail=f"step {name!r}: its arguments cannot be encoded: {error.detail}; pass msgspec types, and "
            "take connections and the like inside the function",
            cause=error,
        ) from error


def digest(data: bytes) -> str:
    """Return what stands for an input in a journal."""
    return hashlib.blake2b(data, digest_size=_DIGEST).hexdigest()


def result_type(name: str, fn: Callable[..., Any]) -> Any:
    """Return what a step's result is read as: the return annotation, `Any` without one.

    TypeError, before anything is run, if nothing can be read as that.
    """
    function: Any = fn
    while isinstance(function, functools.partial):
        function = function.func
    if not (inspect.isroutine(function) or inspect.isclass(function)):
        function = type(function).__call__
    if inspect.isclass(function):
        annotation: Any = function
    else:
        if "return" not in getattr(function, "__annotations__", {}):
            return Any
        annotation = _resolved(name, function)
    try:
        codec.check_type(annotation)
    except TypeError as error:
        raise TypeError(f"step {name!r}: the result of {_label(fn)} cannot be recorded: {error}") from error
    return annotation


def _resolved(name: str, function: Any) -> Any:
    try:
        return get_type_hints(function, include_extras=True)["return"]
    except NameError as error:
        raise TypeError(
            f"step {name!r}: {error.name!r}, in the annotations of {_label(function)}, is not known at run "
            "time; import it outside `if TYPE_CHECKING`"
        ) from error


async def call(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a step's function: a coroutine function here, any other in a thread."""
    if _is_async(fn):
        return await fn(*args, **kwargs)
    result = await anyio.to_thread.run_sync(functools.partial(fn, *args, **kwargs), abandon_on_cancel=False)
    return await result if inspect.isawaitable(result) else result


def _is_async(fn: Any) -> bool:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


def _label(fn: Any) -> str:
    return getattr(fn, "__qualname__", repr(fn))
