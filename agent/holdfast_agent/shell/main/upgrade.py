"""``holdfast-agent upgrade``: waits for operations in flight, and verifies that every process stays the same."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

from holdfast import __version__
from holdfast._session.reports import Exit, ExitReason
from holdfast.errors import Denied, StoreError, Unavailable
from holdfast_agent.core.upgrade import handover
from holdfast_agent.core.upgrade.handover import Picture, Process, Verdict, WorkerProcesses
from holdfast_agent.shell.config import Config
from holdfast_agent.shell.doctor import status_client
from holdfast_agent.shell.shims import shim_files

FILE = "upgrade.json"
QUIET_S = 3.0
"""Between the steps of a relaunch an agent has nothing to do for moments; so long nothing at all is an end."""
LOOK_S = 0.25
_JOURNAL = re.compile(r"g(\d+)\.journal")


def before(settings: Config, max_wait_s: float) -> int:
    """Return once nothing is in flight or the time is up, with every pid written down.

    0 where nothing was interrupted, 1 where the wait was given up. Raises ``StoreError``, ``Denied``.
    """
    gave_up = _wait_until_quiet(settings, max_wait_s)
    found = take(settings.state_dir)
    path = settings.state_dir / FILE
    fresh = path.with_suffix(".new")
    try:
        fresh.write_text(json.dumps(handover.to_json(found)) + "\n")
        os.replace(fresh, path)
    except PermissionError as error:
        raise Denied(f"{path} can't be written.", fix="Run it as root.") from error
    except OSError as error:
        raise StoreError(f"{path} can't be written: {error.strerror}.") from error
    running = [worker for worker in found.workers if worker.ranks]
    for worker in running:
        pids = ", ".join(f"rank {rank} {process.pid}" for rank, process in sorted(worker.ranks.items()))
        _say(f"{worker.name}: shim {worker.shim.pid if worker.shim else 'gone'}, {pids}")
    if not running:
        _say("nothing runs here")
    return int(gave_up)


def after(settings: Config, max_wait_s: float) -> int:
    """Compare with what ``before`` wrote, once the agent is there.

    0 where every process is the same or has ended by itself; 1 where not, or where no agent is connected in time.
    Raises ``StoreError``, ``Denied``.
    """
    path = settings.state_dir / FILE
    there, problem = _wait_until_there(settings, max_wait_s)
    try:
        earlier = handover.from_json(json.loads(path.read_text()))
    except FileNotFoundError:
        _say("nothing was written down before; nothing to compare")
        return int(bool(problem))
    except PermissionError as error:
        raise Denied(f"{path} can't be read.", fix="Run it as root.") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is damaged: {error}.", fix="Remove it.") from error
    rows = handover.compare(earlier, take(settings.state_dir))
    if rows:
        sys.stdout.write(handover.table(rows))
    lost = [row for row in rows if row.verdict is Verdict.LOST]
    left_out = _not_adopted(there, rows)
    same = sum(row.verdict is Verdict.UNCHANGED for row in rows)
    _say(f"agent {earlier.version} -> {there.get('version', 'none')}: {same} of {len(rows)} processes unchanged")
    for text in (problem, *left_out):
        if text:
            _say(text)
    if not (lost or left_out or problem):
        path.unlink(missing_ok=True)
    return int(bool(lost or left_out or problem))


def take(state_dir: Path) -> Picture:
    """The workers of a host as the journals and /proc show them. Raises ``StoreError``, ``Denied``."""
    found = []
    try:
        for folder in sorted(path for path in (state_dir / "workers").glob("*/*") if path.is_dir()):
            try:
                found.append(_worker(folder))
            except FileNotFoundError:
                continue  # forgotten in this moment
    except PermissionError as error:
        raise Denied(f"{error.filename} can't be read.", fix="Run it as root.") from error
    except (OSError, ValueError) as error:
        raise StoreError(f"What is kept of the workers can't be read: {error}.") from error
    return Picture(shim_files.boot_id(), _version(state_dir), tuple(found))


def _version(state_dir: Path) -> str:
    try:
        return str(status_client.ask(state_dir).get("version", __version__))
    except (Unavailable, Denied):
        return "unknown"


def _worker(folder: Path) -> WorkerProcesses:
    name = f"{folder.parent.name}/{folder.name}"
    started: dict[int, Process] = {}
    ends: dict[tuple[int, int], str] = {}
    newest = 0
    for generation, path in sorted(
        (int(found[1]), path) for path in folder.iterdir() if (found := _JOURNAL.fullmatch(path.name))
    ):
        for record in shim_files.read_journal(path):
            match record:
                case shim_files.Intent():
                    newest, started = generation, {}
                case shim_files.Started(rank, pid, start_ticks):
                    started[rank] = Process(pid, start_ticks)
                case Exit():
                    ends[generation, record.rank] = _how(record)
    living = {rank: each for rank, each in started.items() if shim_files.start_ticks(each.pid) == each.start_ticks}
    shim_id = shim_files.read_shim_id(folder / "shim.json")
    shim = None
    if shim_id is not None and shim_files.is_alive(shim_id):
        shim = Process(shim_id.pid, shim_id.start_ticks)
    return WorkerProcesses(name, newest, shim, living, ends)


def _how(exit_: Exit) -> str:
    reason = exit_.reason.value
    if exit_.signal is not None:
        return f"{reason}, signal {exit_.signal}"
    if exit_.exit_code is not None:
        return f"{reason}, code {exit_.exit_code}"
    return reason if exit_.reason is ExitReason.NOT_STARTED else f"LOST ({reason})"


def _wait_until_quiet(settings: Config, max_wait_s: float) -> bool:
    """Whether it was given up. Says what is waited for, when that changes."""
    deadline = time.monotonic() + max_wait_s
    quiet_since: float | None = None
    said = ""
    while True:
        try:
            busy = status_client.ask(settings.state_dir)["busy"]
        except Unavailable as error:
            _say(f"{error.message} Not waiting: the operations in flight are unknown")
            return False
        now = time.monotonic()
        if not busy:
            quiet_since = now if quiet_since is None else quiet_since
            if now - quiet_since >= (QUIET_S if said else QUIET_S / 3):
                return False
        else:
            quiet_since = None
            said = _say_news(said, "; ".join(f"{each['worker']}: {each['doing']}" for each in busy), max_wait_s)
        if now >= deadline:
            _say(f"not waiting any longer than {max_wait_s:g} s; the next agent takes it up: {said}")
            return True
        time.sleep(LOOK_S)


def _wait_until_there(settings: Config, max_wait_s: float) -> tuple[dict[str, Any], str]:
    """The agent's status, and the reason if there is none."""
    deadline = time.monotonic() + max_wait_s
    found: dict[str, Any] = {}
    problem = ""
    while True:
        try:
            found = status_client.ask(settings.state_dir)
            problem = "" if found["connected"] else f"the agent has not reached {found['controller']}"
        except Unavailable as error:
            problem = f"{error.message} {error.fix}"
        if not problem:
            return found, ""
        if time.monotonic() >= deadline:
            return found, f"after {max_wait_s:g} s: {problem}"
        time.sleep(LOOK_S)


def _not_adopted(there: dict[str, Any], rows: list[handover.Row]) -> list[str]:
    """A sentence for each worker whose processes live on but which the agent has not taken up."""
    if not there:
        return []
    known = {each["worker"]: each["shimPid"] for each in there["workers"]}
    return [
        f"the agent has not taken up {row.worker} (shim {row.after})"
        for row in rows
        if row.process == "shim" and row.verdict is Verdict.UNCHANGED and known.get(row.worker) != row.after
    ]


def _say_news(said: str, news: str, max_wait_s: float) -> str:
    if news != said:
        _say(f"waiting, {max_wait_s:g} s at most: {news}")
    return news


def _say(text: str) -> None:
    print(f"holdfast-agent: {text}", flush=True)  # noqa: T201
