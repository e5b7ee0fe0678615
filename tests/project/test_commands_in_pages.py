"""Every `rck …` that a page shows is a command that exists, with the options it has."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from redis_cluster_kit.cli.program import rck

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SHOWN = re.compile(r"(?:^\$ (?:\w+=\S+ )*|`(?:\w+=\S+ )*)(rck [^`\n]+)", re.MULTILINE)


def _shown() -> list[tuple[str, str]]:
    return [
        (str(page.relative_to(ROOT)), command.partition("#")[0].strip())
        for page in PAGES
        for command in SHOWN.findall(page.read_text())
    ]


def test_commands_are_found() -> None:
    commands = {command for _, command in _shown()}
    assert {"rck doctor", "rck status", "rck deadletters list --type printer"} <= commands


@pytest.mark.parametrize(("page", "shown"), _shown())
def test_a_command_that_a_page_shows_exists(page: str, shown: str) -> None:
    command: click.Command = rck
    for word in shown.split()[1:]:
        if isinstance(command, click.Group) and word in command.commands:
            command = command.commands[word]
        elif word.startswith("--"):
            options = {name for option in command.params for name in option.opts}
            assert word.partition("=")[0] in {*options, "--help", "--version"}, f"{page}: {shown}"
        else:
            groups_only = isinstance(command, click.Group) and word not in ("…", "…`")
            assert not groups_only, f"{page}: {shown}: no command {word!r}"
