"""How answers look: rich tables on a terminal, aligned plain text elsewhere, JSON where asked for.

rich is loaded only for a terminal: it takes longer to load than most commands take to answer.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import click
import msgspec

if TYPE_CHECKING:
    from rich.table import Table

Row: TypeAlias = Sequence[object]

_LAST = 20
"""A last column that is broken into lines keeps this width."""
_NUMBER = re.compile(r"[\d,.]+")
COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}


def is_terminal() -> bool:
    """Whether a person looks at the answer."""
    return sys.stdout.isatty()


def show_json(value: Any) -> None:
    """Print one JSON value in one line."""
    click.echo(msgspec.json.encode(value))


def show_table(headings: Sequence[str], rows: Sequence[Row]) -> None:
    """Print rows in columns; numbers stand on the right. In a narrow terminal, a line for each cell."""
    if not is_terminal():
        click.echo("\n".join(plain_table(headings, rows)))
        return
    from rich.console import Console

    console = Console()
    if fits(headings, rows, console.width):
        console.print(rich_table(headings, rows))
    else:
        click.echo("\n\n".join("\n".join(record(headings, row)) for row in rows))


def fits(headings: Sequence[str], rows: Sequence[Row], width: int) -> bool:
    """Whether no column is broken but the last, which may be."""
    widths = [max(len(str(cell)) for cell in column) for column in zip(headings, *rows, strict=True)]
    return sum(widths[:-1]) + 2 * len(widths) + min(widths[-1], _LAST) <= width


def record(headings: Sequence[str], row: Row) -> list[str]:
    """Return a row as lines, each a heading and its cell, so that what is long can still be copied."""
    width = max(map(len, headings))
    return [f"{heading:{width}}  {cell}" for heading, cell in zip(headings, row, strict=True)]


def plain_table(headings: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """Return the lines of a table without any decoration."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[place]) for row in [headings, *texts]) for place in range(len(headings))]
    on_the_right = [_is_numeric(rows, place) for place in range(len(headings))]
    return [
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, on_the_right, strict=True)
        ).rstrip()
        for row in [headings, *texts]
    ]


def rich_table(headings: Sequence[str], rows: Sequence[Row]) -> Table:
    """Return the same for a terminal; a cell that is a known word gets its colour."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for place, heading in enumerate(headings):
        justify: Literal["left", "right"] = "right" if _is_numeric(rows, place) else "left"
        is_last = place == len(headings) - 1
        table.add_column(heading, justify=justify, overflow="fold", no_wrap=not is_last)
    for row in rows:
        table.add_row(*(Text(str(cell), style=COLOURS.get(str(cell), "")) for cell in row))
    return table


def _is_numeric(rows: Sequence[Row], place: int) -> bool:
    """Whether a column holds numbers, written as such or as text; a dash stands for none."""
    texts = [str(row[place]) for row in rows if row[place] != "-"]
    return bool(texts) and all(_NUMBER.fullmatch(text) for text in texts)
