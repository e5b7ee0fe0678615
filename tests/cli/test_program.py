"""The program as a whole: its reference page, its completion, its way in."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from redis_cluster_kit.cli.program import rck as program
from redis_cluster_kit.cli.reference import reference_page

from .conftest import COMMAND, Rck

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def test_the_reference_page_is_up_to_date() -> None:
    assert PAGE.read_text() == reference_page(program), (
        "write cli.reference.reference_page(cli.program.rck) to docs/reference/cli.md"
    )


@pytest.mark.parametrize("name", list(program.commands))
def test_every_command_and_option_is_explained(name: str) -> None:
    text = PAGE.read_text().partition(f"## rck {name}\n")[2].partition("\n## ")[0]
    command = program.commands[name]
    assert command.help
    for parameter in command.params:
        assert all(f"`{option}`" in text for option in parameter.opts if option.startswith("-")), (
            parameter.name
        )
    shown = CliRunner().invoke(program, [name, "--help"])
    assert shown.exit_code == 0
    assert f"Usage: rck {name}" in shown.output


def commands(group: click.Group) -> Iterator[click.Command]:
    for command in group.commands.values():
        if isinstance(command, click.Group):
            yield from commands(command)
        else:
            yield command


def test_every_command_answers_in_json() -> None:
    silent = {
        str(command.name)
        for command in commands(program)
        if "as_json" not in {parameter.name for parameter in command.params}
    }
    assert silent == {"completion"}


@pytest.mark.parametrize(
    ("words", "place", "expected"),
    [
        ("rck sta", "1", "status"),
        ("rck status --wa", "2", "--watch"),
        ("rck completion ", "2", "zsh"),
    ],
)
def test_completion(words: str, place: str, expected: str) -> None:
    environment = Rck().environment(_RCK_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=place)
    done = subprocess.run(COMMAND, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert f"plain,{expected}" in done.stdout.splitlines()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_completion_scripts(shell: str) -> None:
    if shell == "bash" and shutil.which("bash") is None:
        pytest.skip("no bash on the PATH")
    answer = await Rck()("completion", shell)
    assert answer.code == 0
    assert f"_RCK_COMPLETE={shell}_complete" in answer.out


async def test_usage_errors_are_short() -> None:
    answer = await Rck().process("status", "--no-such-option")
    assert answer.code == 2
    assert "No such option" in answer.err
    assert "Traceback" not in answer.err


def test_without_its_extra_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['click'] = None; from redis_cluster_kit.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr == "rck: its extra is not installed: pip install 'redis-cluster-kit[cli]'\n"


def test_ctrl_c_while_it_loads_is_no_traceback() -> None:
    code = (
        "import sys, importlib.abc\n"
        "class Interrupt(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'redis_cluster_kit.cli.program': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from redis_cluster_kit.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (130, "")


def test_a_plain_answer_loads_no_more_than_it_needs() -> None:
    """Each of these takes longer to load than most commands take to answer."""
    code = (
        "import sys; from redis_cluster_kit.cli.program import rck;"
        "print([name for name in sys.modules if name in ('rich', 'redis', 'redis_cluster_kit.testing')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n"
