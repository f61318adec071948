"""The resource limits that ranks inherit from the agent. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from holdfast._base.dataclass import dataclass
from holdfast.doctor.findings import Finding, error, ok, warning
from holdfast_agent.core.launch.preflight import Minimums

NOFILE_WANTED = 65_536
"""A rank of a thousand has a socket for each peer and channel, and its loaders their own files."""
TASKS_WANTED = 32_768
PID_MAX_WANTED = 131_072


@dataclass(frozen=True, slots=True)
class LimitFacts:
    """Soft limits in the kernel's own units; None for unlimited. ``source`` says whose they are."""

    source: str
    nofile: int | None = None
    memlock: int | None = None
    stack: int | None = None
    nproc: int | None = None
    tasks: int | None = None
    """Processes and threads that the agent's cgroup, or its unit, allows."""
    pid_max: int = 4_194_304
    default_memlock: str = ""
    """DefaultLimitMEMLOCK of systemd's configuration; empty where it isn't set."""
    counted: bool = True
    """The worker's processes and pinned memory count: it is not root."""
    minimums: Minimums = field(default_factory=Minimums)


def check(facts: LimitFacts) -> Iterator[Finding]:
    """Check each resource limit."""
    yield _files(facts)
    yield _pinned(facts)
    yield _tasks(facts)
    yield _stack(facts)


def _raise(name: str, value: str) -> tuple[str, ...]:
    return (
        "mkdir -p /etc/systemd/system/holdfast-agent.service.d && cd $_",
        f"printf '[Service]\\n{name}={value}\\n' > {name}.conf",
        "systemctl daemon-reload; systemctl restart holdfast-agent    # workers run on",
    )


def _files(facts: LimitFacts) -> Finding:
    saw = f"{facts.source}: {_shown(facts.nofile)} open files"
    why = "Each peer, channel and loader of a rank takes some: large jobs die of EMFILE."
    if facts.nofile is not None and facts.nofile < facts.minimums.nofile:
        return error(
            "limits.nofile", saw, "No worker starts here ([checks] nofile).", *_raise("LimitNOFILE", "1048576")
        )
    if facts.nofile is not None and facts.nofile < NOFILE_WANTED:
        return warning("limits.nofile", saw, why, *_raise("LimitNOFILE", "1048576"))
    return ok("limits.nofile", saw)


def _pinned(facts: LimitFacts) -> Finding:
    if facts.memlock is None:
        return ok("limits.memlock", f"{facts.source}: memory may be pinned without limit")
    saw = f"{facts.source}: {facts.memlock // 1024} KiB may be pinned"
    if not facts.counted:
        return ok("limits.memlock", f"{saw}, which root's processes may exceed")
    why = "RDMA and GPUDirect pin buffers; NCCL over InfiniBand fails in ibv_reg_mr."
    fix = _raise("LimitMEMLOCK", "infinity")
    if facts.default_memlock:
        fix = (
            *fix,
            f"DefaultLimitMEMLOCK={facts.default_memlock} is set for all units in /etc/systemd/system.conf",
        )
    return warning("limits.memlock", saw, why, *fix)


def _tasks(facts: LimitFacts) -> Finding:
    least = min((n for n in (facts.tasks, facts.nproc if facts.counted else None) if n is not None), default=None)
    saw = f"{facts.source}: {_shown(least)} processes and threads"
    why = "A worker of 8 ranks with loaders has thousands of threads; then nothing can be forked."
    if least is not None and facts.counted and facts.nproc == least and least < facts.minimums.nproc:
        return error(
            "limits.tasks", saw, "No worker starts here ([checks] nproc).", *_raise("LimitNPROC", "infinity")
        )
    if least is not None and least < TASKS_WANTED:
        name = "TasksMax" if least == facts.tasks else "LimitNPROC"
        return warning("limits.tasks", saw, why, *_raise(name, "infinity"))
    if facts.pid_max < PID_MAX_WANTED:
        mend = "echo kernel.pid_max=4194304 > /etc/sysctl.d/90-holdfast.conf; sysctl --system"
        return warning("limits.tasks", f"kernel.pid_max is {facts.pid_max}", why, mend)
    return ok("limits.tasks", saw)


def _stack(facts: LimitFacts) -> Finding:
    if facts.stack is not None and facts.stack < facts.minimums.stack_kb * 1024:
        saw = f"{facts.source}: a stack of {facts.stack // 1024} KiB"
        why = "No worker starts here ([checks] stack_kb)."
        return error("limits.stack", saw, why, *_raise("LimitSTACK", "8388608"))
    if facts.stack is None:
        why = "With an unlimited stack glibc gives each thread 2 MiB only, and mmap is laid out in the old way."
        return warning("limits.stack", f"{facts.source}: unlimited stack", why, *_raise("LimitSTACK", "8388608"))
    return ok("limits.stack", f"{facts.source}: a stack of {facts.stack // 1024} KiB")


def _shown(limit: int | None) -> str:
    return "unlimited" if limit is None else str(limit)
