"""`rck run` on real processes: they serve, signals reach them, crashes are told and mended."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from redis_cluster_kit.cli import supervisor
from redis_cluster_kit.cli.commands import CannotError
from redis_cluster_kit.cli.hosted import load_cluster
from redis_cluster_kit.cli.supervisor import Place
from redis_cluster_kit.clock import Clock
from redis_cluster_kit.testing import until

from .conftest import APP, COMMAND, Rck

PATIENCE = 60.0


class Running:
    """A supervisor that runs, and the events it has told."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.events: list[dict[str, Any]] = []
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.errors = ""
        assert process.stdout is not None
        assert process.stderr is not None
        self._threads = [
            threading.Thread(target=self._read, args=(process.stdout,), daemon=True),
            threading.Thread(target=self._read_errors, args=(process.stderr,), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, stream: Any) -> None:
        for line in stream:
            self._lines.put(line)

    def _read_errors(self, stream: Any) -> None:
        for line in stream:
            self.errors += line

    def told(self, event: str) -> list[dict[str, Any]]:
        with contextlib.suppress(queue.Empty):
            while True:
                self.events.append(json.loads(self._lines.get_nowait()))
        return [one for one in self.events if one["event"] == event]

    async def wait_for(self, event: str, count: int = 1) -> list[dict[str, Any]]:
        def enough() -> bool:
            return len(self.told(event)) >= count

        try:
            await until(enough, timeout=PATIENCE, what=f"{count} × {event}")
        except AssertionError as error:
            raise AssertionError(f"{error}; told: {self.events}; errors: {self.errors}") from None
        return self.told(event)

    def close(self) -> None:
        for thread in self._threads:
            thread.join(10)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()

    async def end(self) -> int:
        await until(lambda: self.process.poll() is not None, timeout=PATIENCE, what="its end")
        for thread in self._threads:
            thread.join(10)
        self.told("")
        assert self.process.returncode is not None
        return self.process.returncode


@contextmanager
def running(rck: Rck, folder: Path, *words: str, **variables: str) -> Iterator[Running]:
    process = subprocess.Popen(
        [*COMMAND, "run", *words, "--json"],
        env=rck.environment(**variables),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    children: list[psutil.Process] = []
    run: Running | None = None
    try:
        run = Running(process)
        yield run
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.wait()
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        if run is not None:
            run.close()


async def test_processes_serve_and_leave_on_sigterm(rck: Rck, app_folder: Path) -> None:
    with running(rck, app_folder, "app:cluster", "--processes", "2") as run:
        joined = await run.wait_for("joined", 2)
        runners = {event["runner"] for event in joined}
        assert len(runners) == 2

        async def both_own() -> bool:
            found = (await rck("shards", "--json")).data
            return {item["owner"] for item in found} == runners

        await until(both_own, timeout=PATIENCE, every=0.1)
        run.process.send_signal(signal.SIGTERM)
        assert await run.end() == 0
        assert run.told("signal")[0]["signal"] == "SIGTERM"
        assert run.told("crashed") == []
        data = (await rck("status", "--json")).data
        assert data["groups"]["default"] == {"shards": 4, "free": 4}
        assert data["runners"] == []  # they left, nobody had to expire


async def test_a_killed_process_is_told_and_replaced(rck: Rck, app_folder: Path) -> None:
    with running(rck, app_folder, "app:make") as run:
        (first,) = await run.wait_for("joined")
        os.kill(first["pid"], signal.SIGKILL)
        (crash,) = await run.wait_for("crashed")
        assert crash["code"] == -signal.SIGKILL
        assert "was killed by SIGKILL" in crash["text"]
        _, second = await run.wait_for("joined", 2)
        assert second["runner"] != first["runner"]
        run.process.send_signal(signal.SIGINT)
        assert await run.end() == 0


async def test_a_crash_says_why_and_pauses_grow(rck: Rck, app_folder: Path) -> None:
    secret = "redis://:s3cret@127.0.0.1:1/0"
    with running(rck, app_folder, "app:cluster", RCK_REDIS=secret) as run:
        crashes = await run.wait_for("crashed", 2)
        assert [crash["pause"] for crash in crashes[:2]] == [1.0, 2.0]
        assert "cannot connect to 127.0.0.1:1" in crashes[0]["text"]
        run.process.send_signal(signal.SIGTERM)
        assert await run.end() == 0
        assert "s3cret" not in str(run.events) + run.errors
        assert "Traceback" not in run.errors


def test_pauses_end_at_a_bound_and_begin_anew_after_a_calm_time() -> None:
    place = Place(1)
    pauses = [place.pause() for _ in range(8)]
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]
    place.joined_at = Clock.boot() - supervisor.CALM - 1
    assert place.pause() == 1


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("app", "module:attribute"),
        ("nothing_here:cluster", "no module 'nothing_here'"),
        ("app:nothing", "no 'nothing' in app"),
        ("app:settings", "is a Settings, not a Cluster"),
        ("app:Cluster", "not a Cluster"),
    ],
)
def test_what_names_no_cluster(
    rck: Rck, app_folder: Path, monkeypatch: pytest.MonkeyPatch, target: str, said: str
) -> None:
    monkeypatch.syspath_prepend(app_folder)
    monkeypatch.delitem(sys.modules, "app", raising=False)
    for name, value in rck.variables.items():
        monkeypatch.setenv(name, value)
    with warnings.catch_warnings(), pytest.raises(CannotError, match=said):
        load_cluster(target)


async def test_it_is_refused_once_and_for_all_processes(rck: Rck, app_folder: Path) -> None:
    with running(rck, app_folder, "app:nothing", "-n", "2") as run:
        assert await run.end() == 2
        assert "cannot serve: 'app:nothing': no 'nothing' in app" in run.told("refused")[0]["text"]
        assert run.told("crashed") == []
        assert "Traceback" not in run.errors


async def test_an_app_that_breaks_shows_its_traceback(rck: Rck, app_folder: Path) -> None:
    (app_folder / "broken.py").write_text("import nowhere_to_be_found\n")
    with running(rck, app_folder, "broken:cluster") as run:
        (told,) = await run.wait_for("refused")
        assert "'broken:cluster' cannot be loaded: ModuleNotFoundError" in told["text"]
        assert await run.end() == 2
        assert "nowhere_to_be_found" in run.errors
        assert "broken.py" in run.errors
        assert "importlib" not in run.errors


async def test_one_that_ends_by_itself_is_not_started_again(rck: Rck, app_folder: Path) -> None:
    text = (app_folder / "app.py").read_text()
    (app_folder / "brief.py").write_text(
        f"{text}\nasync def done():\n    return\n\ncluster.run_forever = done\n"
    )
    with running(rck, app_folder, "brief:cluster") as run:
        assert await run.end() == 0
        assert len(run.told("started")) == len(run.told("ended")) == 1


async def test_a_second_signal_ends_at_once(rck: Rck, app_folder: Path) -> None:
    """A lifespan that takes for ever to close holds up the first."""
    text = (app_folder / "app.py").read_text()
    (app_folder / "slow.py").write_text(
        f"{text}\n"
        "from contextlib import asynccontextmanager\nimport anyio\n"
        "@asynccontextmanager\n"
        "async def stuck(cluster):\n"
        "    yield\n"
        "    open('closing', 'w').close()\n"
        "    await anyio.sleep_forever()\n"
        "cluster._lifespan = stuck\n"
    )
    with running(rck, app_folder, "slow:cluster") as run:
        await run.wait_for("joined")
        run.process.send_signal(signal.SIGTERM)
        await until((app_folder / "closing").exists, timeout=PATIENCE, what="the lifespan closes")
        assert run.process.poll() is None
        run.process.send_signal(signal.SIGTERM)
        assert await run.end() == 128 + signal.SIGTERM
        assert len(run.told("signal")) == 2


async def test_a_signal_before_the_joining_is_done(rck: Rck, app_folder: Path) -> None:
    text = (app_folder / "app.py").read_text()
    (app_folder / "long.py").write_text(
        f"{text}\n"
        "from contextlib import asynccontextmanager\nimport anyio\n"
        "@asynccontextmanager\n"
        "async def long(cluster):\n"
        "    open('joining', 'w').close()\n"
        "    await anyio.sleep_forever()\n"
        "    yield\n"
        "cluster._lifespan = long\n"
    )
    with running(rck, app_folder, "long:cluster") as run:
        await until((app_folder / "joining").exists, timeout=PATIENCE, what="it joins")
        run.process.send_signal(signal.SIGTERM)
        assert await run.end() == 0
        assert run.told("joined") == []


async def test_processes_leave_when_the_supervisor_is_killed(rck: Rck, app_folder: Path) -> None:
    with running(rck, app_folder, "app:cluster") as run:
        (joined,) = await run.wait_for("joined")
        child = psutil.Process(joined["pid"])
        run.process.kill()
        await until(lambda: not child.is_running() or child.status() == "zombie", timeout=PATIENCE)

        async def left() -> bool:
            return (await rck("status", "--json")).data["runners"] == []

        await until(left, timeout=PATIENCE, every=0.05)


async def test_reload(rck: Rck, app_folder: Path) -> None:
    with running(rck, app_folder, "app:cluster", "--reload") as run:
        (first,) = await run.wait_for("joined")
        (app_folder / "app.py").write_text("this is no Python")
        (crashed,) = await run.wait_for("crashed")
        assert "SyntaxError" in crashed["text"]
        assert "starts again when a file changes" in crashed["text"]
        (app_folder / "app.py").write_text("cluster = 'none'\n")
        await until(
            lambda: any("not a Cluster" in one["text"] for one in run.told("crashed")), timeout=PATIENCE
        )
        (app_folder / "app.py").write_text(APP)
        _, second = await run.wait_for("joined", 2)
        assert second["runner"] != first["runner"]
        assert {event["file"] for event in run.told("changed")} == {"app.py"}
        run.process.send_signal(signal.SIGTERM)
        assert await run.end() == 0
