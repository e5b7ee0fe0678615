"""Child processes that die with their parent, even when the parent is SIGKILLed.

Starts, signals and reaps one server process; knows nothing of what the server speaks.
Linux only: the promise rests on `prctl(PR_SET_PDEATHSIG)`.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import folders

_PR_SET_PDEATHSIG = 1
_LOG_TAIL_LINES = 20
# Loaded before any fork: the forked child must not import or open anything. PyDLL, because a child that
# has only this one thread has nobody to hand the interpreter lock to.
_libc: Any = ctypes.PyDLL(None, use_errno=True) if sys.platform == "linux" else None


class ServerStartError(RuntimeError):
    """A server did not come up; the text ends with the tail of its log."""


class ServerNotInstalledError(ServerStartError):
    """The server's program is not on this machine; `hint` is the command that installs it."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what, hint)
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.what}: {self.hint}"


@dataclass(frozen=True, kw_only=True)
class ChildOptions:
    """How a child is started: who it runs as, and which signal it gets when its parent dies."""

    death_signal: signal.Signals = signal.SIGKILL
    user: int | None = None
    folder: Path | None = None
    environment: Mapping[str, str] | None = None


class ChildProcess:
    """One running child. Everything it prints goes to `log`."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, log_start: int = 0) -> None:
        self._process = process
        self._log_start = log_start
        self.log = log
        _running.add(self)

    @classmethod
    def start(cls, command: Sequence[str], *, log: Path, options: ChildOptions | None = None) -> ChildProcess:
        """Start `command`; may be called from any thread."""
        if _libc is None:
            raise ServerStartError(f"embedded servers run on Linux only, not on {sys.platform}")
        chosen = options if options is not None else ChildOptions()
        log_start = log.stat().st_size if log.exists() else 0
        return cls(_on_lasting_thread(lambda: _popen(command, log, chosen)), log, log_start)

    @property
    def pid(self) -> int:
        """The process id; kept after the process is gone."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process exists (a paused one does)."""
        return self._process.poll() is None

    @property
    def returncode(self) -> int | None:
        """The exit status, negative for a signal, None while alive."""
        return self._process.poll()

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal; a process that is gone is left alone."""
        self._process.send_signal(number)

    def stop(self, *, number: signal.Signals = signal.SIGTERM, timeout: float = 5.0) -> None:
        """Ask the process to end, and kill it if it has not within `timeout` seconds."""
        self.send_signal(number)
        self.resume()  # a stopped process would never see the signal
        try:
            # Popen.wait(timeout) looks after 63 ms, then after 113 ms: this notices within one.
            wait_until(lambda: not self.alive, timeout, "the process to end")
        except TimeoutError:
            self.kill()
        _running.discard(self)

    def kill(self) -> None:
        """SIGKILL, and return when the process is gone."""
        self._process.kill()
        self._process.wait()
        _running.discard(self)

    def pause(self) -> None:
        """SIGSTOP, and return when the process stands still."""
        self.send_signal(signal.SIGSTOP)
        wait_until(lambda: is_stopped(self.pid) or not self.alive, 5.0, "the process to stand still")

    def resume(self) -> None:
        """SIGCONT; harmless for a process that runs."""
        self.send_signal(signal.SIGCONT)

    def log_text(self) -> str:
        """What this process has written to the log (earlier runs may stand before it in the file)."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def log_tail(self) -> str:
        """The last lines of the log, for error texts."""
        return "\n".join(self.log_text().splitlines()[-_LOG_TAIL_LINES:]) or "(empty log)"


def wait_until(fact: Callable[[], bool], timeout: float, what: str) -> None:
    """Poll `fact` every millisecond, later every ten; `TimeoutError` naming `what` when it stays false."""
    began = time.monotonic()
    while not fact():
        waited = time.monotonic() - began
        if waited > timeout:
            raise TimeoutError(f"waited {timeout:g} s for {what}")
        time.sleep(0.001 if waited < 0.2 else 0.01)


def process_state(pid: int) -> tuple[str, int] | None:
    """The state letter and the parent of a process, None when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command name is in parentheses and may hold anything, spaces and parentheses too.
    state, parent = text.rpartition(")")[2].split()[:2]
    return state, int(parent)


def is_stopped(pid: int) -> bool:
    """Whether the process stands still after a SIGSTOP."""
    found = process_state(pid)
    return found is not None and found[0] == "T"


def children_of(pid: int) -> list[int]:
    """The living direct children of a process."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            state = process_state(int(entry.name))
            if state is not None and state[1] == pid and state[0] != "Z":
                found.append(int(entry.name))
    return found


def _popen(command: Sequence[str], log: Path, options: ChildOptions) -> subprocess.Popen[bytes]:
    parent = os.getpid()

    def die_with_parent() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, int(options.death_signal), 0, 0, 0)
        if os.getppid() != parent:  # it died between fork and prctl: the signal will not come
            os._exit(1)

    with log.open("ab") as output:
        # A process group of its own keeps the terminal's Ctrl-C away from the server. The session is the
        # parent's: when the parent dies, the kernel then wakes a child that was stopped.
        return subprocess.Popen(  # noqa: S603 - the commands are ours
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=options.folder,
            env=None if options.environment is None else dict(options.environment),
            user=options.user,
            group=options.user,
            extra_groups=None if options.user is None else [],
            process_group=0,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - it makes two system calls and takes no lock
        )


_Start = Callable[[], "subprocess.Popen[bytes]"]
_Request = tuple[_Start, "Future[subprocess.Popen[bytes]]"]


def _on_lasting_thread(start: _Start) -> subprocess.Popen[bytes]:
    """Fork on a thread that lives as long as the process.

    The kernel sends the death signal when the forking *thread* ends: a server started by a pool's thread
    would die when the pool lets that thread go.
    """
    if threading.current_thread() is threading.main_thread():
        return start()
    answer: Future[subprocess.Popen[bytes]] = Future()
    _starter().put((start, answer))
    return answer.result()


_starter_lock = threading.Lock()
_starter_queue: queue.SimpleQueue[_Request] | None = None


def _starter() -> queue.SimpleQueue[_Request]:
    global _starter_queue  # noqa: PLW0603 - one such thread per process is the point
    with _starter_lock:
        if _starter_queue is None:
            _starter_queue = queue.SimpleQueue()
            threading.Thread(
                target=_serve_starts, args=(_starter_queue,), name="rck-embedded-starter", daemon=True
            ).start()
        return _starter_queue


def _serve_starts(requests: queue.SimpleQueue[_Request]) -> None:
    while True:
        start, answer = requests.get()
        try:
            answer.set_result(start())
        except Exception as error:  # noqa: BLE001 - it is raised again in the thread that asked
            answer.set_exception(error)


_running: set[ChildProcess] = set()


def _forget_after_fork() -> None:
    # In a forked copy of this process the thread does not exist; servers are the original's.
    global _starter_queue, _starter_lock
    _starter_queue, _starter_lock = None, threading.Lock()
    _running.clear()


def _end_all() -> None:
    for child in list(_running):
        child.stop()
    folders.remove_all()


os.register_at_fork(after_in_child=_forget_after_fork)
atexit.register(_end_all)
