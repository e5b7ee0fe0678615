"""Everything a contributor or CI runs: `nox -s tests`, `nox -s demo`, `nox -l` for the rest."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import nox

nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["lint", "types", "layers", "tests"]
nox.options.download_python = "never"
nox.options.reuse_venv = "yes"

BESIDE = ["-n", "2", "--dist", "worksteal"]  # two at a time: most tests wait more than they compute
CHECKED = ["redis_cluster_kit", "tests", "benchmarks", "examples", "docs", "deploy", "noxfile.py"]


def install(session: nox.Session, *groups: str, extras: str = "all") -> None:
    """Install the project as it stands, with extras, and the named dependency groups."""
    project = nox.project.load_toml("pyproject.toml")
    session.install("-e", f".[{extras}]", *nox.project.dependency_groups(project, *groups))


@nox.session
def tests(session: nox.Session) -> None:
    """Install everything and run the tests on the Python at hand; arguments replace `-n 2`."""
    install(session, "test", "types")
    session.run("python", "-m", "pytest", *(session.posargs or BESIDE))


@nox.session(python=["3.11", "3.12", "3.13"])
def matrix(session: nox.Session) -> None:
    """Run the tests on every supported Python that is installed."""
    install(session, "test", "types")
    session.run("python", "-m", "pytest", *(session.posargs or BESIDE))


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and spelling; Lua is checked by the tests, with its generated prologue."""
    install(session, "lint")
    session.run("ruff", "check", *CHECKED)
    session.run("ruff", "format", "--check", *CHECKED)
    texts = ["lua", "docs", "deploy", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
    flames = "*/flames-*.svg"  # names of functions, some cut short
    session.run("codespell", "--skip", flames, "redis_cluster_kit", *texts)


@nox.session
def types(session: nox.Session) -> None:
    """Check types with mypy and pyright, both strict."""
    install(session, "types", "test")
    session.run("mypy")
    session.run("pyright")


@nox.session
def layers(session: nox.Session) -> None:
    """Check that imports go downward only."""
    install(session, "layers")
    session.run("lint-imports", "--no-cache")


@nox.session
def wheel(session: nox.Session) -> None:
    """Build the wheel, install it in a clean environment and call every script it carries."""
    with tempfile.TemporaryDirectory() as folder:
        session.install("build[uv]")
        session.run("python", "-m", "build", "--installer", "uv", "--wheel", "--outdir", folder)
        (built,) = Path(folder).glob("*.whl")
        session.install(
            "--reinstall-package", "redis-cluster-kit", f"redis-cluster-kit[all] @ {built.as_uri()}"
        )
        check = Path("tests/wheel/call_every_script.py").absolute()
        session.chdir(folder)
        session.run("python", str(check))


@nox.session
def deploy(session: nox.Session) -> None:
    """Check `deploy/` against the Kubernetes schemas too, and with promtool where it is on the PATH."""
    install(session, "test", "deploy")
    session.run("python", "-m", "pytest", "tests/deploy", *session.posargs)


@nox.session
def faults(session: nox.Session) -> None:
    """The long run of the fault tests: every seed is printed, and `RCK_SEED` repeats one."""
    install(session, "test")
    session.run("python", "-m", "pytest", "tests/faults", "--long", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Run all benchmarks, or those named; exits 1 where a promise is broken."""
    install(session, "bench")
    session.run("python", "-m", "benchmarks", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation; a broken link fails."""
    install(session, "docs")
    quiet = {"NO_MKDOCS_2_WARNING": "1"}
    session.run("mkdocs", "build", "--strict", "--site-dir", session.create_tmp(), env=quiet)


@nox.session
def pages(session: nox.Session) -> None:
    """Write the generated reference pages and the dashboard; a test fails while one differs from the code."""
    install(session)
    session.run("python", "docs/generate.py")
    session.run("python", "deploy/grafana/generate.py")


@nox.session
def demo(session: nox.Session) -> None:
    """Run the demo cluster: three runners on an embedded server, one killed, one stopped politely."""
    install(session)
    session.run("rck", "demo", *session.posargs)


if __name__ == "__main__":
    sys.exit("run me with nox: pip install 'nox[uv]' && nox -s tests")
