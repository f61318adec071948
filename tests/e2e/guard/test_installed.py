"""``holdfast guard`` as a user installs it, without root: from wheels alone, in a home or in one shared folder."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.guard.guarding import nothing_is_left
from tests.support.machine_parts import ANOTHER_USER, SYSTEM_PYTHON
from tests.support.slurm_cluster import Slurm

pytestmark = [
    pytest.mark.require("root"),
    pytest.mark.require("pypi"),
    pytest.mark.require("system_python"),
    pytest.mark.timeout(1800),
]
INSTALL_S = 600.0
PIP = (SYSTEM_PYTHON, "-m", "pip", "install", "-q", "--no-warn-script-location")
REPOSITORY = Path(__file__).parents[3]
TREE = ("client", "controller", "agent", "proto", "web", "build_hooks")
FILES = ("README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml")
# Crashes once, and says whether the packages of the guard are its own too.
PROGRAM = """\
import importlib.util, os, sys
print("generation", os.environ["HOLDFAST_GENERATION"], "grpc:", importlib.util.find_spec("grpc") is not None)
sys.exit(3 if os.environ["HOLDFAST_GENERATION"] == "1" else 0)
"""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Open to all, as a test's own folder isn't."""
    made = Path(tempfile.mkdtemp(prefix="installed-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def wheels(folder: Path) -> Path:
    """This tree's and those of all that it needs, by the line of the users' page."""
    tree, made = (Path(tempfile.mkdtemp(prefix=name, dir=folder)) for name in ("tree", "wheels"))
    made.chmod(0o755)
    for name in TREE:
        unbuilt = shutil.ignore_patterns("__pycache__", "node_modules", "page")
        shutil.copytree(REPOSITORY / name, tree / name, ignore=unbuilt)
    for name in FILES:
        shutil.copy(REPOSITORY / name, tree / name)
    line = (sys.executable, "-m", "pip", "wheel", "-q", "-w", str(made), ".[controller,agent]")
    done = subprocess.run(line, cwd=tree, capture_output=True, text=True, timeout=INSTALL_S)
    assert done.returncode == 0, done.stderr
    assert {path.suffix for path in made.iterdir()} == {".whl"}, "none has to be built on a host"
    return made


def as_user(cwd: Path, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
    """What a command of another user says, who has nothing of this process's environment."""
    return subprocess.run(
        [*ANOTHER_USER, *command],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=INSTALL_S,
    )


def users(folder: Path, name: str) -> Path:
    """A folder of that user's, which no one else can read."""
    made = Path(tempfile.mkdtemp(prefix=name, dir=folder))
    shutil.chown(made, 65534, 65534)
    return made


def guards(cwd: Path, *command: str, **env: str) -> str:
    """What a program prints that crashes once under the guard, which leaves nothing but its record."""
    scratch = users(cwd.parent, "scratch")
    done = as_user(cwd, *command, TMPDIR=str(scratch), **env)
    assert done.returncode == 0, done.stderr
    assert "guard: 1 recovery" in done.stderr
    assert [path.name for path in cwd.iterdir() if path.is_dir() and not path.name.startswith(".")] == ["rec"]
    nothing_is_left({"TMPDIR": str(scratch)})
    return done.stdout


def test_it_runs_from_a_home_without_root_or_a_compiler(folder: Path, wheels: Path) -> None:
    home, path = users(folder, "home"), folder / "bin"
    path.mkdir(exist_ok=True)
    if not (path / "python3").exists():
        (path / "python3").symlink_to(SYSTEM_PYTHON)
    # A Python that its system manages takes no package without this word, not even in a home.
    managed = "--break-system-packages"
    from_wheels = ("--no-index", f"--find-links={wheels}", "holdfast[controller,agent]")

    done = as_user(home, *PIP, "--user", managed, *from_wheels, HOME=str(home))

    assert done.returncode == 0, done.stderr
    run = (f"{home}/.local/bin/holdfast", "guard", "--record", "rec", "--", "python3", "-c", PROGRAM)
    said = guards(home, *run, HOME=str(home), PATH=str(path))
    assert said == "generation 1 grpc: True\ngeneration 2 grpc: True\n"


@pytest.fixture(scope="module")
def shared(folder: Path, wheels: Path) -> Path:
    """A folder of another owner with all of it, as on a shared file system."""
    made = Path(tempfile.mkdtemp(prefix="shared", dir=folder))
    made.chmod(0o755)
    install = (*PIP, "--target", str(made), "--no-index", f"--find-links={wheels}", "holdfast[controller,agent]")
    subprocess.run(install, check=True, capture_output=True, timeout=INSTALL_S)
    return made


def test_it_runs_from_one_folder_that_others_own_and_with_no_home(folder: Path, shared: Path) -> None:
    work = users(folder, "work")
    command = (SYSTEM_PYTHON, "-m", "holdfast", "guard", "--record", "rec", "--", "env", "-u", "PYTHONPATH")
    run = (*command, SYSTEM_PYTHON, "-c", PROGRAM)
    said = guards(work, *run, HOME="/nowhere", PATH="/usr/bin:/bin", PYTHONPATH=str(shared))

    assert said == "generation 1 grpc: False\ngeneration 2 grpc: False\n"


@pytest.mark.require("slurm")
@pytest.mark.parametrize("slurm", ["parents", "cgroups"], indirect=True)
def test_a_step_of_slurm_is_guarded_for_a_user_without_root(slurm: Slurm, folder: Path, shared: Path) -> None:
    slurm.folder.chmod(0o755)  # its configuration and munge's socket are for all
    work = users(folder, "step")
    command = ("srun", "-N2", SYSTEM_PYTHON, "-m", "holdfast", "guard", "--record", "rec", "--")
    env = {"HOME": "/nowhere", "PATH": "/usr/bin:/bin", "SLURM_CONF": slurm.environment["SLURM_CONF"]}

    said = guards(work, *command, SYSTEM_PYTHON, "-c", PROGRAM, PYTHONPATH=str(shared), **env)

    # The other rank of the first generation may be stopped before it prints.
    assert said.count("generation 2") == 2 and said.count("generation 1") >= 1
