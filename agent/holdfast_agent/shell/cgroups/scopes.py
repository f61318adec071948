"""Workers in systemd's scopes: asks systemd for one, and moves the shim to its place in it.

By ``busctl``, 5 ms a call, beside the rest of a preparation. A worker whose scope can't be had runs on without.
"""

from __future__ import annotations

import os
import subprocess
import time
from functools import partial
from pathlib import Path

import anyio.to_thread

from holdfast._base.dataclass import dataclass
from holdfast._daemon import log
from holdfast._session.assignment import Assignment
from holdfast._session.reports import WorkerId
from holdfast_agent.core.launch.scopes import SLICE, Bounds, properties, scope_name, unit_of, why_none
from holdfast_agent.shell.config import Config
from holdfast_agent.shim.walls import cgroup

PATIENCE_S = 1.0
"""systemd answers in milliseconds; when it doesn't, a launch waits no longer than this."""
LOOK_AGAIN_S = 0.002
BOOTED = Path("/run/systemd/system")
_MANAGER = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager")


@dataclass(frozen=True, slots=True)
class Scopes:
    """Scopes of this host's workers. ``tree`` is the mount of cgroup v2, empty where there are none; see ``why``."""

    tree: str = ""
    why: str = ""
    agent_unit: str = ""
    pids: int = 0
    """Bounds of each scope come from its job's machineSpec where this is set: threads of one worker."""

    def directory(self, key: WorkerId, shim_pid: int) -> str:
        """The cgroup of the worker, if its shim is in a scope; else empty."""
        path = f"/{SLICE}/{scope_name(key)}"
        inside = self.tree and f"{_cgroup(shim_pid)}/".endswith(f"{path}/shim/")
        return self.tree + path if inside else ""

    def left(self, key: WorkerId) -> str:
        """The cgroup of a worker whose shim may be dead, if there still is one; else empty."""
        path = f"{self.tree}/{SLICE}/{scope_name(key)}"
        return path if self.tree and os.path.isdir(path) else ""

    async def take_in(self, desired: Assignment, shim_pid: int) -> None:
        """Have the worker's shim in a scope. What goes wrong is logged."""
        if not self.tree or not shim_pid or self.directory(desired.key, shim_pid):
            return
        problem = await anyio.to_thread.run_sync(partial(self._take_in, desired, shim_pid), abandon_on_cancel=True)
        if problem:
            log.warning("scope.unavailable", worker=str(desired.key), error=problem)

    def _take_in(self, desired: Assignment, shim_pid: int) -> str:
        launch = desired.launch
        bounds = Bounds(launch.memory_mb, launch.cpu_count, self.pids) if launch and self.pids else Bounds()
        wanted = properties(desired.key, shim_pid, desired.grace_s, bounds, self.agent_unit)
        name, deadline = scope_name(desired.key), time.monotonic() + PATIENCE_S
        words = [word for entry in wanted for word in entry]
        call = ["StartTransientUnit", "ssa(sv)a(sa(sv))", name, "fail", str(len(wanted)), *words, "0"]
        while problem := _busctl("call", *_MANAGER, *call):
            # An earlier shim's, of which systemd has not noticed yet that it is empty.
            if ("exists" not in problem and "loaded" not in problem) or time.monotonic() > deadline:
                return problem
            time.sleep(LOOK_AGAIN_S * 10)
        scope = f"{self.tree}/{SLICE}/{name}"
        while not _cgroup(shim_pid).endswith(f"/{SLICE}/{name}"):
            if time.monotonic() > deadline:
                return f"systemd has not moved the shim within {PATIENCE_S:g} s"
            time.sleep(LOOK_AGAIN_S)
        return _settle(scope, shim_pid)


def _settle(scope: str, shim_pid: int) -> str:
    """Move the shim one down: processes and limits for those below don't go together in one cgroup."""
    try:
        os.makedirs(f"{scope}/shim", mode=0o755, exist_ok=True)
        with open(f"{scope}/shim/cgroup.procs", "wb", buffering=0) as file:
            file.write(b"%d" % shim_pid)
        cgroup.enable(scope)
    except OSError as error:
        return f"{error.filename or scope}: {error.strerror}"
    return ""


def find(settings: Config, tree: str, *, supervised: bool, pids: int) -> Scopes:
    """Whether workers get scopes on this host. ``tree`` is where cgroup v2 is mounted, empty where it isn't."""
    booted = BOOTED.is_dir()
    why = why_none(wanted=settings.scopes, supervised=supervised, root=os.geteuid() == 0, booted=booted)
    if not why and not tree:
        why = "cgroup v2 is not mounted"
    why = why or _busctl("get-property", *_MANAGER, "Version")
    if why:
        return Scopes(why=why)
    return Scopes(tree, agent_unit=unit_of(_cgroup(os.getpid())), pids=pids if settings.scope_limits else 0)


def _busctl(*words: str) -> str:
    """Why a call failed; empty when it worked. Waits for the bus no longer than ``PATIENCE_S``."""
    command = ["busctl", "--system", "--quiet", f"--timeout={PATIENCE_S:g}", *words]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False
        )
    except OSError as error:
        return f"busctl: {error.strerror}"
    except subprocess.TimeoutExpired:
        return "systemd did not answer"
    return "" if done.returncode == 0 else done.stderr.strip() or f"busctl ended with {done.returncode}"


def _cgroup(pid: int) -> str:
    """A process's path in the v2 tree; empty where it has none."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return ""
    return next((line[3:] for line in lines if line.startswith("0::")), "")
