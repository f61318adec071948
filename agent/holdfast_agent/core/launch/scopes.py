"""The systemd scope that a worker gets: its name and its properties.

Theory of operation. Shims are forked by the agent and so begin in the agent's unit. A transient scope takes the
shim out of there: the worker shows in ``systemctl`` under its own name, and what is done to the agent's unit is not
done to it. The scope is delegated: below it, cgroups are the shim's (``shim/`` for itself, ``g<N>/`` for the ranks
of a generation), so systemd counts and bounds the worker as a whole while the shim bounds and kills a generation.

Scopes are ordered before the agent's unit, because a shutdown stops units in the reverse order: first the agent,
which ends the workers with their own grace and waits for them; then what is left of the scopes.
"""

from __future__ import annotations

from holdfast._base.dataclass import dataclass
from holdfast._session.reports import WorkerId

SLICE = "holdfast.slice"
NAME_MOST = 255
STOP_MARGIN_S = 60.0
"""Above the job's grace: the time in which KILL and the proof of emptiness are done with."""
SHIM_BYTES = 64 << 20
"""Memory left to the shim on top of the worker's own limit: 8 MiB and its namespaces' share, rounded up generously."""
SHIM_PIDS = 64
INFINITY = (1 << 64) - 1
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789:_.-")

Property = tuple[str, ...]
"""Name, D-Bus type, and the value's words, as ``busctl`` takes them."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Resource limits of a whole worker; 0 means no limit."""

    memory_mb: int = 0
    cpus: int = 0
    pids: int = 0


def scope_name(key: WorkerId) -> str:
    """``holdfast-JOB-WORKER.scope``, with other characters escaped as systemd-escape does; cut to 255 characters."""
    text = f"{key.job}-{key.worker}"
    plain = "".join(c if c in _PLAIN else "".join(f"\\x{byte:02x}" for byte in c.encode()) for c in text)
    return f"holdfast-{plain[: NAME_MOST - len('holdfast-.scope')]}.scope"


def properties(key: WorkerId, pid: int, grace_s: float, bounds: Bounds, agent_unit: str) -> tuple[Property, ...]:
    """Properties of the scope that takes in a worker's shim. No limit is sent as infinity: hosts have defaults."""
    memory = (bounds.memory_mb << 20) + SHIM_BYTES if bounds.memory_mb else INFINITY
    quota_us = bounds.cpus * 1_000_000 if bounds.cpus else INFINITY
    tasks = bounds.pids + SHIM_PIDS if bounds.pids else INFINITY
    return (
        ("PIDs", "au", "1", str(pid)),
        ("Description", "s", f"Worker {key.worker} of Holdfast job {key.job}"),
        ("Slice", "s", SLICE),
        ("Delegate", "b", "true"),
        ("CollectMode", "s", "inactive-or-failed"),
        ("TimeoutStopUSec", "t", str(int((grace_s + STOP_MARGIN_S) * 1e6))),
        ("TasksMax", "t", str(tasks)),
        ("MemoryMax", "t", str(memory)),
        ("CPUQuotaPerSecUSec", "t", str(quota_us)),
        *((("Before", "as", "1", agent_unit),) if agent_unit else ()),
    )


def why_none(*, wanted: bool, supervised: bool, root: bool, booted: bool) -> str:
    """Why workers get no scopes here; empty where they do, if systemd answers."""
    if not wanted:
        return "scopes = false"
    if not booted:
        return "systemd does not run this host"
    if not supervised:
        return "the agent was not started by systemd"
    return "" if root else "the agent is not root"


def unit_of(cgroup: str) -> str:
    """The unit that a cgroup path such as ``/system.slice/holdfast-agent.service`` belongs to; empty if none."""
    units = [part for part in cgroup.split("/") if part.endswith((".service", ".scope"))]
    return units[-1] if units else ""
