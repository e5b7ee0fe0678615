"""Plays a page with terminals: writes its files, types its commands, and compares what they print.

A block titled with a file's name is that file; a block titled otherwise is a terminal. In a terminal `$ …` is
typed, `^C` is pressed, everything else is output. Ids, pids and times differ from those on the page: what the
page calls `one-5e0c74a1d2b3` must be one and the same runner everywhere.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

BLOCK = re.compile(r'^```(?:python|console|yaml) title="([^"]+)"\n(.*?)^```$', re.DOTALL | re.MULTILINE)
NAMED = re.compile(r"\b(?:one|two)-[0-9a-f]{12}\b|\b4\d0\d\b")
"""Runner ids and pids: each stands for one value, to be learnt where it is shown first."""
FREE = re.compile(r"\blaptop\b|\b\d+\.\d s\b|(?<=round )\d+|(?<=^fence )\d+|\b\d\d:\d\d:\d\d\b")
"""The host's name, durations, counts that depend on how fast one types, times of day."""
PATIENCE = 40.0


class Terminal:
    """A shell's environment, and what runs in its foreground."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.variables = {name: value for name, value in os.environ.items() if not name.startswith("RCK_")}
        self.variables["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{self.variables['PATH']}"
        self.running: subprocess.Popen[str] | None = None
        self.printed: list[str] = []
        self.seen = 0
        self._reading: threading.Thread | None = None

    def start(self, command: str) -> None:
        """Type a command and leave it running."""
        self.running = subprocess.Popen(
            f"exec env {command}",
            shell=True,
            cwd=self.folder,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=_hear_ctrl_c,  # noqa: PLW1509 - it only sets a signal, and takes no lock
        )
        self._reading = threading.Thread(target=self._read, args=(self.running,))
        self._reading.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.printed.append(line.rstrip())
        process.stdout.close()

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        assert self.running is not None
        self.running.send_signal(signal.SIGINT)

    def ended(self) -> int:
        """Wait until what runs has ended; return its exit code."""
        assert self.running is not None
        assert self._reading is not None
        code = self.running.wait(PATIENCE)
        self._reading.join(PATIENCE)
        self.running = None
        return code

    def close(self) -> None:
        """End what still runs, as a terminal that is closed would not: nothing is left behind."""
        if self.running is not None:
            self.interrupt()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.ended()
        if self.running is not None:
            os.killpg(self.running.pid, signal.SIGKILL)  # with what it has started
            self.ended()


def _hear_ctrl_c() -> None:
    """Begin as in a terminal: who runs these tests in the background ignores Ctrl-C, and hands that on."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Play:
    """One page on its stage."""

    def __init__(self, page: Path, folder: Path, replaced: dict[str, str]) -> None:
        self.folder = folder
        self.terminals: dict[str, Terminal] = {}
        self.known: dict[str, str] = {}
        self.commands: list[str] = []
        self._text = page.read_text()
        for shown, value in replaced.items():
            assert shown in self._text
            self._text = self._text.replace(shown, value)

    def run(self) -> None:
        """Play every block, in order."""
        try:
            for title, body in BLOCK.findall(self._text):
                if "." in title:
                    (self.folder / title).write_text(body)
                else:
                    terminal = self.terminals.setdefault(title, Terminal(self.folder))
                    for line, output in _exchanges(body):
                        self._exchange(terminal, line, output, is_left=title != "you")
        finally:
            for name in reversed(self.terminals):
                self.terminals[name].close()

    def _exchange(self, terminal: Terminal, line: str, output: list[str], *, is_left: bool) -> None:
        if line == "^C":
            terminal.interrupt()
            self._await(terminal, output)
            terminal.ended()
        elif not line:
            self._await(terminal, output)
        else:
            command = NAMED.sub(lambda found: self.known.get(found[0], found[0]), line)
            self.commands.append(command)
            if is_left:
                terminal.start(command)
                self._await(terminal, output)
            else:
                self._type(terminal, command, output)

    def _type(self, terminal: Terminal, command: str, output: list[str]) -> None:
        """Run to its end what is typed between the pods; what only looks may be asked again."""
        if command.startswith("export "):
            terminal.variables |= dict(pair.split("=", 1) for pair in command.split()[1:])
            return
        if command.startswith(("python3 -m venv", "pip install")):
            return  # this environment is what they make
        deadline = time.monotonic() + PATIENCE
        while True:
            done = subprocess.run(
                command,
                shell=True,
                cwd=terminal.folder,
                env=terminal.variables,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
            printed = done.stdout.splitlines()
            is_alike = len(printed) == len(output) and all(map(self._is_alike, output, printed))
            if is_alike and done.returncode == 0:
                return
            may_wait = command.startswith("rck ") and time.monotonic() < deadline
            assert may_wait, f"$ {command}\nshown: {output}\nprinted ({done.returncode}): {printed}"
            time.sleep(0.2)

    def _await(self, terminal: Terminal, output: list[str]) -> None:
        """Wait until the lines have come, in this order; what is printed between them is not on the page."""
        deadline = time.monotonic() + PATIENCE
        for shown in output:
            while True:
                found = next(
                    (
                        place
                        for place in range(terminal.seen, len(terminal.printed))
                        if self._is_alike(shown, terminal.printed[place])
                    ),
                    None,
                )
                if found is not None:
                    terminal.seen = found + 1
                    break
                assert time.monotonic() < deadline, f"no {shown!r} in {terminal.printed[terminal.seen :]}"
                time.sleep(0.02)

    def _is_alike(self, shown: str, printed: str) -> bool:
        """Compare a line, learning what the page's ids and pids stand for."""
        pattern = re.compile(self._pattern(shown))
        found = pattern.fullmatch(re.sub(r" +", " ", printed))
        if found is None:
            return False
        names = NAMED.findall(re.sub(r" +", " ", shown))
        self.known |= dict(zip(names, found.groups(), strict=True))
        return True

    def _pattern(self, shown: str) -> str:
        line = re.sub(r" +", " ", shown)
        parts: list[str] = []
        at = 0
        for found in re.finditer(f"{NAMED.pattern}|{FREE.pattern}", line):
            parts += [re.escape(line[at : found.start()]), self._value(found[0])]
            at = found.end()
        return "".join([*parts, re.escape(line[at:])])

    def _value(self, shown: str) -> str:
        if NAMED.fullmatch(shown):
            if shown in self.known:
                return f"({re.escape(self.known[shown])})"
            return r"(\d+)" if shown.isdigit() else f"({shown[:3]}-[0-9a-f]{{12}})"
        if shown == "laptop":
            return r"\S+"
        if ":" in shown:
            return r"\d\d:\d\d:\d\d"
        return r"\d+\.\d s" if shown.endswith(" s") else r"\d+"


def _exchanges(body: str) -> Iterator[tuple[str, list[str]]]:
    """Yield what is typed (nothing, where a terminal just goes on printing) with the output below it."""
    typed, output = "", list[str]()
    for line in body.splitlines():
        if line.startswith("$ ") or line == "^C":
            if typed or output:
                yield typed, output
            typed, output = line.removeprefix("$ "), []
        else:
            output.append(line)
    yield typed, output
