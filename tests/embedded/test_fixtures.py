"""The fixtures' own promises: a key or a process left behind fails the run, a missing server skips a test."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil

_LEAVES_A_PROCESS = """
import subprocess
left = []
def test_leaves_a_process():
    left.append(subprocess.Popen(["sleep", "600"]))
    print("pid", left[0].pid)
"""
_LEAVES_KEYS = """
def test_of_no_kind(valkey, namespace):
    valkey.call("SET", f"rck:{{{namespace}:00}}:no-such-kind:x", "1")
def test_for_ever(valkey, namespace):
    assert valkey.call("DBSIZE") == 0
    valkey.call("SET", f"rck:{{{namespace}:00}}:version", "1")
def test_outside(valkey):
    assert valkey.call("DBSIZE") == 0
    valkey.call("SET", "nobody's", "1")
def test_inside(valkey, namespace):
    assert valkey.call("DBSIZE") == 0
    valkey.call("SET", f"plain:{namespace}:x", "1")
    valkey.call("SET", f"rck:{{{namespace}-second:00}}:born", "1")
def test_sees_no_key(valkey):
    assert valkey.call("DBSIZE") == 0
"""
_USES_EACH_SERVER = """
def test_uses(redis_server):
    assert redis_server.call("PING") == "PONG"
"""
_SAYS_WHAT_CANNOT_BE_ENCODED = """
import logging
class Reporter:
    def pytest_runtest_logreport(self, report):
        for text in (report.longreprtext, *(text for section in report.sections for text in section)):
            text.encode()
def test_before(request):
    request.config.pluginmanager.register(Reporter())
def test_logs():
    logging.getLogger("x").error("bad \\ud800")
    assert False
def test_raises():
    raise ExceptionGroup("\\ud800", [ValueError("\\ud800")])
"""


def _run(folder: Path, text: str, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    shutil.copy(Path(__file__).parents[1] / "conftest.py", folder)
    (folder / "test_it.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "-p", "no:valkey"]
    return subprocess.run(
        [*command, *options, "--rootdir", str(folder), str(folder)],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=folder,
    )


def test_process_left_behind_fails_the_run_and_is_killed(tmp_path: Path) -> None:
    done = _run(tmp_path, _LEAVES_A_PROCESS)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 passed, 1 error" in done.stdout
    assert "processes left behind" in done.stdout
    assert "sleep 600" in done.stdout
    pid = int(done.stdout.partition("pid ")[2].split()[0])
    assert not psutil.pid_exists(pid)


def test_keys_left_behind_fail_their_tests_and_are_deleted(tmp_path: Path) -> None:
    done = _run(tmp_path, _LEAVES_KEYS)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "5 passed, 3 errors" in done.stdout
    for test in ("test_of_no_kind", "test_for_ever", "test_outside"):
        assert f"ERROR test_it.py::{test}" in done.stdout
    assert "is of no kind the key space knows" in done.stdout
    assert "has no TTL and is not permanent" in done.stdout
    assert "keys outside the test's namespace: b\"nobody's\"" in done.stdout


def test_what_cannot_be_encoded_is_reported_all_the_same(tmp_path: Path) -> None:
    done = _run(tmp_path, _SAYS_WHAT_CANNOT_BE_ENCODED)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 failed, 1 passed" in done.stdout


def test_server_that_is_not_installed_skips_its_id_and_says_why(tmp_path: Path) -> None:
    done = _run(tmp_path, _USES_EACH_SERVER, "-k", "not cluster", PATH=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed, 1 skipped" in done.stdout
    assert "no redis-server on the PATH" in done.stdout
