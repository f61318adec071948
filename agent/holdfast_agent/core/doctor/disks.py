"""The file systems on which the agent and its workers write. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.doctor.findings import Finding, error, needs_root, ok, warning
from holdfast_agent.core.launch.preflight import MIB

SLOW_SYNC_S, VERY_SLOW_SYNC_S = 0.1, 1.0
"""Each launch and each exit waits for a few."""
PLENTY = 10
"""Times the minimum."""
_REMOTE = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "glusterfs", "lustre", "ceph", "beegfs")
_IN_MEMORY = ("tmpfs", "ramfs")


@dataclass(frozen=True, slots=True)
class DiskFacts:
    """A folder, or where it will be made. ``setting`` of agent.toml names it."""

    setting: str
    path: str
    problem: str = ""
    """Why nothing could be read."""
    denied: bool = False
    kind: str = ""
    options: tuple[str, ...] = ()
    """Of the mount, such as ``ro``, ``noexec``."""
    free_bytes: int = 0
    inodes: int = 0
    """In all; 0 where the file system has no such bound."""
    free_inodes: int = 0
    least_mb: int = 1024
    """[checks] disk_free_mb."""
    durable: bool = False
    """What lies there must survive a reboot."""
    executes: bool = False
    """Programs are started from there."""
    sync_s: float | None = None
    """How long a small write took to be durable; None where it was not tried."""


def check(facts: DiskFacts) -> Iterator[Finding]:
    """Check one folder: whether it can be used, its free space, and its speed."""
    name = f"disk.{facts.setting}"
    if facts.problem:
        if facts.denied:
            yield needs_root(name, f"{facts.path}: {facts.problem}")
        else:
            yield error(
                name, f"{facts.path}: {facts.problem}", "The agent writes there.", f"ls -ld {facts.path}; dmesg"
            )
        return
    yield from _mount(name, facts) or (_room(name, facts),)
    if facts.sync_s is not None:
        yield _speed(facts, facts.sync_s)


def _mount(name: str, facts: DiskFacts) -> list[Finding]:
    if "ro" in facts.options:
        fix = (f"findmnt -T {facts.path}; dmesg | tail", f"mount -o remount,rw … (of {facts.path})")
        return [error(name, f"{facts.path} is mounted read-only", "The agent can't keep what it must.", *fix)]
    if facts.executes and "noexec" in facts.options:
        why = "Environments of packaged code hold programs, which can't be started there."
        fix = (f"mount -o remount,exec … (of {facts.path})", "or agent.toml: [packages] cache_dir elsewhere")
        return [error(name, f"{facts.path} is mounted noexec", why, *fix)]
    if facts.durable and facts.kind in _IN_MEMORY:
        why = "After a reboot no exit and no fencing number is known any more."
        mend = f"agent.toml: {facts.setting} on a local disk"
        return [error(name, f"{facts.path} lies in memory ({facts.kind})", why, mend)]
    if facts.durable and facts.kind in _REMOTE:
        why = "Locks and durability depend on a server; when it is away the agent stands still."
        mend = f"agent.toml: {facts.setting} on a local disk"
        return [warning(name, f"{facts.path} lies on {facts.kind}", why, mend)]
    return []


def _room(name: str, facts: DiskFacts) -> Finding:
    free = f"{facts.path} has {_size(facts.free_bytes)} free"
    look = f"du -xh --max-depth=2 {facts.path} | sort -h | tail"
    if facts.free_bytes < facts.least_mb * MIB:
        saw = f"{free} of the {facts.least_mb} MiB that it must have"
        why = "No worker starts here (agent.toml: [checks] disk_free_mb)."
        return error(name, saw, why, look)
    if facts.inodes and facts.free_inodes < max(1000, facts.inodes // 100):
        saw = f"{facts.path} has {facts.free_inodes} inodes left of {facts.inodes}"
        why = "No file can be made when they are used up, however much room is left."
        return error(name, saw, why, f"du -x --inodes --max-depth=2 {facts.path} | sort -n | tail")
    if facts.free_bytes < facts.least_mb * MIB * PLENTY:
        return warning(name, free, f"Below {facts.least_mb} MiB no worker starts here.", look)
    return ok(name, f"{free} ({facts.kind})")


def _speed(facts: DiskFacts, sync_s: float) -> Finding:
    saw = f"a write to {facts.path} is durable after {sync_s * 1000:.1f} ms"
    name = f"disk.{facts.setting}_sync"
    if sync_s < SLOW_SYNC_S:
        return ok(name, saw)
    why = "Every launch and every exit waits for that, several times."
    fix = ("iostat -x 1", "Put it on a disk that jobs don't write to.")
    return (error if sync_s >= VERY_SLOW_SYNC_S else warning)(name, saw, why, *fix)


def _size(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB" if count >= 10 << 30 else f"{count // MIB} MiB"
