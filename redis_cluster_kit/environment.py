"""Reads settings from environment variables: spelling is checked, values become what their fields want.

It knows only the groups it is handed; what may be set, and within which bounds, is `settings.py`'s.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, get_type_hints

from redis_cluster_kit.redaction import redact

LONGEST = 86_400.0 * 1_000_000
"""Seconds; the longest duration that can be set."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "": 1.0}
_DURATION = re.compile(r"\s*([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*(ms|s|m|h|d|)\s*", re.ASCII)
_WORDS = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}
# Kubernetes hands every pod such variables for a service called `rck-redis`: not ours, not misspelt.
_SERVICE_LINK = re.compile(r"_(SERVICE_(HOST|PORT)\w*|PORT(_\d+_(TCP|UDP)\w*)?)$")


def read_groups(groups: Mapping[str, type[Any]], environ: Mapping[str, str], prefix: str) -> dict[str, Any]:
    """Make each group from its variables; a variable that is only close to a known one is refused."""
    known = {
        f"{prefix}_{group}_{name}".upper(): (group, name, hint)
        for group, kind in groups.items()
        for name, hint in get_type_hints(kind).items()
    }
    found: dict[str, dict[str, Any]] = {group: {} for group in groups}
    for variable in sorted(environ):
        if variable in known:
            group, name, hint = known[variable]
            found[group][name] = _read_value(variable, environ[variable], hint)
        else:
            _check_spelling(variable, known, tuple(f"{prefix}_{group}_".upper() for group in groups))
    made: dict[str, Any] = {}
    for group, kind in groups.items():
        try:
            made[group] = kind(**found[group])
        except ValueError as error:
            raise ValueError(f"{prefix}_{group.upper()}_*: {error}") from error
    return made


def _check_spelling(variable: str, known: Mapping[str, object], groups: tuple[str, ...]) -> None:
    ours = variable.startswith(groups) and not _SERVICE_LINK.search(variable)
    close = difflib.get_close_matches(variable, known, n=1, cutoff=0.6 if ours else 0.9)
    if ours or close:
        hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(sorted(known))}"
        raise ValueError(f"{variable} is not a setting; {hint}")


def _read_value(variable: str, text: str, hint: object) -> Any:
    try:
        return _READERS.get(hint, str)(text)
    except (ValueError, KeyError):
        pass
    # Raised outside the handler: the inner error holds the value as it came, secrets included.
    expected = _EXPECTED.get(hint, "text")
    raise ValueError(f"{variable} must be {expected}, got {redact(repr(text))}")


def _read_flag(text: str) -> bool:
    return _WORDS[text.strip().lower()]


def _read_duration(text: str) -> timedelta:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(text)
    seconds = float(match[1]) * _UNITS[match[2]]
    if seconds > LONGEST:
        raise ValueError(text)
    return timedelta(seconds=seconds)


def _read_counts(text: str) -> dict[str, int]:
    pairs = [item.partition("=") for item in _read_list(text)]
    return {name.strip(): int(count) for name, _, count in pairs}


def _read_list(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",") if item.strip())


_READERS: dict[object, Any] = {
    timedelta: _read_duration,
    timedelta | None: _read_duration,
    bool: _read_flag,
    int: int,
    float: float,
    Sequence[str]: _read_list,
    Mapping[str, int]: _read_counts,
}
_EXPECTED: dict[object, str] = {
    timedelta: "a duration like 250ms, 5s, 10m, 2h or 1d",
    timedelta | None: "a duration like 250ms, 5s, 10m, 2h or 1d",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    Mapping[str, int]: "counts like billing=50,default=100",
}
