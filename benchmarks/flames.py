"""Flame graphs as small drawings: each stack py-spy sampled, the width of a function its share of CPU time.

Lines of one function are one frame, and what is narrower than can be read is left out: a page shows it at
once, and a pointer that rests on a frame reads its name and share.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

Stack = tuple[str, ...]
"""Frames from the outermost to the innermost, each `function (file)`."""

WIDTH, ROW, TOP = 960, 17, 46
NARROWEST = 0.004
"""The least share of the whole that is drawn."""
_FONT = 'font-family="sans-serif" font-size="11"'
_LETTER = 6.1
_FRAME = re.compile(r"(.*) \((.*?)(?::\d+)?\)$")
_SHADES = {
    "light": {"text": "#1a1a1a", "quiet": "#57606a"},
    "dark": {"text": "#e8e8e8", "quiet": "#9198a1"},
}
_INK = "#1a1a1a"


def read(raw: str) -> Counter[Stack]:
    """Return how often each stack was sampled, from py-spy's `raw` format."""
    stacks: Counter[Stack] = Counter()
    for line in raw.splitlines():
        frames, _, count = line.rpartition(" ")
        stacks[tuple(_without_line(frame) for frame in frames.split(";"))] += int(count)
    return stacks


def _without_line(frame: str) -> str:
    found = _FRAME.match(frame)
    return f"{found[1]} ({found[2]})" if found else frame


@dataclass
class Frame:
    """One function where it was called from."""

    name: str
    samples: int = 0
    inner: dict[str, Frame] = field(default_factory=dict[str, "Frame"])

    def depth(self, least: float) -> int:
        """Return how many rows it takes."""
        return 1 + max((one.depth(least) for one in self.inner.values() if one.samples >= least), default=0)


def tree(stacks: Counter[Stack], title: str) -> Frame:
    """Put the stacks together."""
    root = Frame(title)
    for stack, count in stacks.items():
        place = root
        place.samples += count
        for name in stack:
            place = place.inner.setdefault(name, Frame(name))
            place.samples += count
    return root


def draw(root: Frame, path: Path, shade: str, colours: dict[str, str], note: str) -> None:
    """Write an SVG. `colours`: of the frames in files that begin so, the longest match; in the key, too."""
    least = root.samples * NARROWEST
    height = TOP + 22 + ROW * root.depth(least)
    inks = _SHADES[shade]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {_FONT}>',
        f'<text x="4" y="16" font-size="14" fill="{inks["text"]}">{escape(root.name)}</text>',
        f'<text x="4" y="34" fill="{inks["quiet"]}">{escape(note)}</text>',
        *_frames(root, 0.0, TOP, WIDTH / root.samples, least, root.samples, colours),
        *_key(_used(root, least, colours), height - 8, inks["text"]),
        "</svg>",
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*parts, ""]))


def _frames(
    frame: Frame, x: float, y: int, scale: float, least: float, whole: int, colours: dict[str, str]
) -> Iterator[str]:
    for name, inner in sorted(frame.inner.items(), key=lambda item: -item[1].samples):
        if inner.samples < least:
            continue
        width = inner.samples * scale
        share = f"{inner.samples / whole:.1%}"
        label = _label(name, width)
        text = f'<text x="{x + 3:.1f}" y="{y + 12}" fill="{_INK}">{escape(label)}</text>' if label else ""
        yield (
            f'<g><title>{escape(name)} {share}</title><rect x="{x:.1f}" y="{y}" '
            f'width="{max(width - 0.6, 0.4):.1f}" height="{ROW - 1}" rx="1.5" '
            f'fill="{_colour(name, colours)}"/>{text}</g>'
        )
        yield from _frames(inner, x, y + ROW, scale, least, whole, colours)
        x += width


def _label(name: str, width: float) -> str:
    room = int((width - 6) / _LETTER)
    function = name.partition(" (")[0]
    if len(name) <= room:
        return name
    if len(function) <= room:
        return function
    return f"{function[: room - 1]}…" if room > 5 else ""


def _colour(name: str, colours: dict[str, str]) -> str:
    file = name.rpartition("(")[2].rstrip(")")
    matching = [prefix for prefix in colours if file.startswith(prefix)]
    return colours[max(matching, key=len)] if matching else "#c9ced6"


def _used(root: Frame, least: float, colours: dict[str, str]) -> dict[str, str]:
    """Return the colours that are there to be seen."""
    found: set[str] = set()
    below = list(root.inner.values())
    while below:
        frame = below.pop()
        if frame.samples >= least:
            found.add(_colour(frame.name, colours))
            below += frame.inner.values()
    return {prefix: colour for prefix, colour in colours.items() if colour in found}


def _key(colours: dict[str, str], y: int, ink: str) -> Iterator[str]:
    x = 4.0
    for prefix, colour in colours.items():
        name = prefix.removeprefix("redis_cluster_kit/").rstrip("/") or "others"
        yield f'<rect x="{x:.0f}" y="{y - 9}" width="10" height="10" rx="2" fill="{colour}"/>'
        yield f'<text x="{x + 14:.0f}" y="{y}" fill="{ink}">{escape(name)}</text>'
        x += 26 + _LETTER * len(name)
