"""Tables: plain where nobody looks, in colours where somebody does."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from redis_cluster_kit.cli import output

HEADINGS = ("name", "count", "verdict")
ROWS = [("one", 5, "ok"), ("twenty [bold]", 1000, "problem")]


def test_plain() -> None:
    assert output.plain_table(HEADINGS, ROWS) == [
        "name           count  verdict",
        "one                5  ok",
        "twenty [bold]   1000  problem",
    ]
    assert output.plain_table(HEADINGS, []) == ["name  count  verdict"]


def test_on_a_terminal() -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, color_system="standard", width=60)
    console.print(output.rich_table(HEADINGS, ROWS))
    text = written.getvalue()
    assert "\x1b[31mproblem\x1b[0m" in text
    assert "\x1b[32mok" in text
    assert "twenty [bold]" in text  # what stands in a cell is no markup


def test_a_narrow_terminal_gets_a_line_for_each_cell(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An identifier that is broken in two cannot be copied; only the last column is ever broken."""
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "64")
    id, error = "a" * 30, "what went wrong, in many words " * 3
    output.show_table(("message", "count", "error"), [(id, 5, error)])
    shown = capsys.readouterr().out
    assert id in shown
    assert max(map(len, shown.splitlines())) <= 64
    monkeypatch.setenv("COLUMNS", "50")
    output.show_table(("message", "count", "error"), [(id, 5, error), (id, 6, "-")])
    assert capsys.readouterr().out.splitlines() == [
        f"message  {id}",
        "count    5",
        f"error    {error}",
        "",
        f"message  {id}",
        "count    6",
        "error    -",
    ]


def test_which_one_is_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_table(HEADINGS, ROWS)
    assert capsys.readouterr().out.splitlines() == output.plain_table(HEADINGS, ROWS)
