"""The daemons of a dev cluster as processes: which ones run, starting one, ending some.

A daemon is recognised by its arguments, which name its settings file: no pid file can be stale, and a daemon
is found even when its pid file was lost. The pid files are for people and scripts.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from holdfast._base.job_file import rank_variables
from holdfast.dev import processes
from holdfast.dev.layout import Layout
from holdfast.dev.plan import Cluster
from holdfast.dev.processes import Process

GRACE_S = 10.0
"""Time between TERM and KILL for a daemon."""
KILL_S = 5.0
"""Time for a killed process to be gone."""
_TAIL_LINES = 20
_TAIL_BYTES = 16384


def running(layout: Layout, cluster: Cluster) -> dict[str, Process]:
    """The daemons that live, by name: ``controller`` and the hosts'."""
    return processes.find({name: layout.command(name) for name in cluster.daemons})


def launch(layout: Layout, name: str) -> Process:
    """Start a daemon, detached, with its output appended to its log, and write its pid file."""
    strange = (*rank_variables.MARKS, "HOLDFAST_CONFIG")
    env = {key: value for key, value in os.environ.items() if key not in strange}
    process = processes.spawn((sys.executable, *layout.command(name)), layout.log(name), env)
    path = layout.pid_file(name)
    temporary = path.with_suffix(".pid.new")
    temporary.write_text(f"{process.pid}\n")
    temporary.replace(path)
    return process


def end(layout: Layout, daemons: Mapping[str, Process]) -> set[Process]:
    """TERM to these daemons, KILL after ten seconds; their workers run on. Returns those that still live."""
    everyone = daemons.values()
    for process in everyone:
        processes.send(process, signal.SIGTERM)
    for process in processes.wait_all(everyone, GRACE_S):
        processes.send(process, signal.SIGKILL)
    left = processes.wait_all(everyone, KILL_S)
    for name, process in daemons.items():
        if process not in left:
            processes.exit_status(process)
            layout.pid_file(name).unlink(missing_ok=True)
    return left


def log_size(path: Path) -> int:
    """Bytes in the log at present; 0 where there is none."""
    return path.stat().st_size if path.exists() else 0


def log_tail(path: Path, offset: int) -> str:
    """The last lines that were written after ``offset``, indented; empty when there are none."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        # Shorter than it was: the daemon has begun a new one since.
        file.seek(max(offset if offset <= end else 0, end - _TAIL_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
    return "".join(f"\n    {line}" for line in lines[-_TAIL_LINES:])
