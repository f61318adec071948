"""``holdfast dev stop``: end a dev cluster's daemons and workers, and prove that no process is left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from holdfast.dev import daemons, family, processes
from holdfast.dev import layout as files
from holdfast.dev.layout import Layout
from holdfast.dev.plan import CONTROLLER, Cluster
from holdfast.dev.processes import Process, Stat
from holdfast.errors import ConfigError, Unavailable

WORKERS_S = 20.0
"""Time for all workers to be gone after the first SIGKILL."""
_LOOK_S = 0.05


def stop(directory: Path) -> None:
    """End the daemons (TERM, KILL after 10 s), then every process of the workers (KILL at once).

    Files stay, so that a later start finds the same ports, identities and jobs. Stopping a stopped cluster is
    fine. Says on stderr what it did. Raises ``ConfigError`` where there is no dev cluster, ``WrongState``
    while a start or another stop is at work there, and ``Unavailable``, naming them, when processes are left.
    """
    layout = Layout(directory.expanduser().resolve())
    if not layout.record.exists():
        raise ConfigError(f"There is no dev cluster in {layout.directory}.", fix="Name its folder with --dir.")
    files.check_own(layout)
    with files.locked(layout):
        cluster = files.load(layout)
        assert cluster is not None, "the record exists"
        running = daemons.running(layout, cluster)
        # Whatever the agents have started besides workers must not survive either; found while they live.
        known = _descendants(running)
        for some in ({CONTROLLER}, running.keys() - {CONTROLLER}):
            known |= daemons.end(layout, {name: p for name, p in running.items() if name in some})
        ended = _end_workers(layout, cluster, known)
        _remove_cgroups(layout)
        for name in cluster.daemons:
            layout.pid_file(name).unlink(missing_ok=True)
    _say(layout, len(running), ended)


def _descendants(running: Mapping[str, Process]) -> set[Process]:
    table = processes.snapshot()
    return {table[pid].process for pid in family.descendants(table, [p.pid for p in running.values()])}


def _end_workers(layout: Layout, cluster: Cluster, known: set[Process]) -> int:
    """Kill each process of the workers, and those in ``known``, until none is left; return how many there were."""
    deadline = time.monotonic() + WORKERS_S
    jobs = _jobs(layout)
    hosts = {host.name for host in cluster.hosts}
    ended: set[Process] = set()
    while True:
        table = processes.snapshot()
        shims = _shims(layout)
        known |= _marked(table, jobs, hosts)
        # Who asks may itself be marked, in a shell that was started by a rank.
        sparing = family.ancestors(table, os.getpid())
        alive = family.members(table, shims=shims, known=known, sparing=sparing)
        if not alive:
            return len(ended)
        if time.monotonic() > deadline:
            raise Unavailable(f"Processes are left: {_described(table, alive)}.")
        known |= alive - shims
        ended |= alive
        targets = family.next_to_end(alive, shims)
        for process in targets:
            with contextlib.suppress(PermissionError):
                processes.send(process, signal.SIGKILL)
        processes.wait_all(targets, _LOOK_S)


def _remove_cgroups(layout: Layout) -> None:
    """Remove those of the agents: an agent that ends leaves the cgroups in which its workers run on."""
    for path in layout.directory.glob("hosts/*/state/cgroup"):
        root = path.read_text()
        if "/holdfast/" not in root:
            continue  # the host has none
        for folder in (*(below for below, _, _ in os.walk(root, topdown=False)), os.path.dirname(root)):
            with contextlib.suppress(OSError):  # the last is shared with other agents
                os.rmdir(folder)


def _shims(layout: Layout) -> set[Process]:
    """The workers' shims of this boot, dead or alive, as they wrote themselves down."""
    boot_id = processes.boot_id()
    found = set()
    for path in layout.directory.glob("hosts/*/state/workers/*/*/shim.json"):
        try:
            said = json.loads(path.read_text())
            if said["boot_id"] == boot_id:
                found.add(Process(int(said["pid"]), int(said["start_ticks"])))
        except (OSError, ValueError, KeyError, TypeError):
            # Gone meanwhile, or torn by a crash: then no shim has passed this point.
            continue
    return found


def _jobs(layout: Layout) -> set[str]:
    """Ids of all jobs that ever had a worker here and whose files were not removed."""
    places = ("hosts/*/state/workers/*", "hosts/*/logs/*")
    return {path.name for place in places for path in layout.directory.glob(place)}


def _marked(table: Mapping[int, Stat], jobs: set[str], hosts: set[str]) -> set[Process]:
    """Processes whose environment says that they are ranks of these jobs on these hosts, or come from one."""
    found = set()
    for each in table.values():
        env = processes.environment(each.process.pid)
        if env.get("HOLDFAST_JOB") in jobs and env.get("HOLDFAST_HOST") in hosts:
            found.add(each.process)
    return found


def _described(table: Mapping[int, Stat], alive: set[Process]) -> str:
    stats = [table[p.pid] for p in sorted(alive, key=lambda p: p.pid) if p.pid in table]
    return ", ".join(f"{s.process.pid} ({s.name}, {_why(s)})" for s in stats)


def _why(left: Stat) -> str:
    if left.state == "D":
        return "waits in the kernel and can't be killed until that ends"
    return f"outlives SIGKILL or belongs to another user, state {left.state}"


def _say(layout: Layout, daemon_count: int, worker_count: int) -> None:
    sys.stderr.write(summary(str(layout.directory), daemon_count, worker_count) + "\n")


def summary(directory: str, daemon_count: int, worker_count: int) -> str:
    """A sentence listing the stopped processes."""
    if not daemon_count and not worker_count:
        return f"The dev cluster in {directory} is not running."
    what = [f"{daemon_count} daemon{'s' * (daemon_count != 1)}"] if daemon_count else []
    what += [f"{worker_count} process{'es' * (worker_count != 1)} of workers"] if worker_count else []
    return f"Stopped in {directory}: {' and '.join(what)}. Nothing is left."
