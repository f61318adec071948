"""A run of tests that leaves processes, mounts or cgroups behind fails.

Other runs may share the machine, so only what names a directory of this run counts: its base directory, in which those
of its xdist workers lie, too.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.whole_run import verdicts

WITHIN_S = 20.0
"""A shim or a helper that was just told to end may need a moment."""


def processes(base: str) -> list[str]:
    """Processes that have a directory of the run in their arguments, environment, working directory or open files.

    Each with the first such path: its test's name is in it.
    """
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in _spared():
            continue
        with contextlib.suppress(OSError):
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            if state not in "ZX" and (path := _path_in(entry, base)):
                command = (entry / "cmdline").read_bytes().replace(bytes(1), b" ").decode(errors="replace")
                found.append(f"process {entry.name}: {command[:200].rstrip()}, of {path}")
    return found


def _path_in(process: Path, base: str) -> str | None:
    """The first path below ``base`` that a process has. Raises OSError once it is gone."""
    words = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
    if (at := words.find(base.encode())) >= 0:
        return re.split(rb"[\0:\s]", words[at:], maxsplit=1)[0].decode(errors="replace")
    links = [process / "cwd", *(process / "fd").iterdir()]
    return next(filter(None, (_leads_to(link, base) for link in links)), None)


def _leads_to(link: Path, base: str) -> str | None:
    try:
        path = os.readlink(link)
    except OSError:
        return None
    return path if path.startswith(base) else None


def _spared() -> set[int]:
    """This process and those above it."""
    pid, found = os.getpid(), set()
    while pid > 1:
        found.add(pid)
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return found


def mounts(base: str) -> list[str]:
    """Mounts of the run, in this namespace."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [f"mount {line.split()[4]}" for line in lines if base in line]


def cgroups(base: str) -> list[str]:
    """Cgroups of agents of the run, as each wrote them down in its state directory."""
    found = []
    for folder, folders, files in os.walk(base):
        if "cgroup" in files and "epoch" in files:
            root = Path(folder, "cgroup").read_text()
            if root and os.path.isdir(root):
                found.append(f"cgroup {root}, of {folder}")
        folders[:] = [name for name in folders if name not in ("workers", "scratch", "packages")]
    return found


def left(base: str) -> list[str]:
    """All that is left of the run."""
    return [*processes(base), *mounts(base), *cgroups(base)]


class Leftovers:
    """A plugin, for the process that collects the results."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        yield
        if hasattr(session.config, "workerinput"):
            return
        factory = getattr(session.config, "_tmp_path_factory", None)
        base = getattr(factory, "_basetemp", None)
        if base is None:
            return
        until = time.monotonic() + WITHIN_S
        while (found := left(f"{base}/")) and time.monotonic() < until:
            time.sleep(0.2)
        if found:
            verdicts.fail(session, "it left something behind", found)
