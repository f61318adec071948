"""The file systems on which a daemon writes: the look, and what is made of it.

``look`` reads; everything else is pure.
"""

from __future__ import annotations

import errno
import os
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from holdfast._base.dataclass import dataclass
from holdfast.doctor.findings import Finding, Status, error, needs_root, ok, warning

MIB = 1 << 20
SLOW_SYNC_S, VERY_SLOW_SYNC_S = 0.1, 1.0
"""Each launch and each exit waits for a few."""
PLENTY = 10
"""Times the minimum."""
FULL_BYTES = 4096
"""Where no minimum is set: not a page is left."""
NEARLY_FULL = 0.1
"""Share of the disk that is left; a small disk with half of it free is not nearly full."""
FEW_INODES = 0.05
SYNCS, SYNC_BYTES = 3, 4096
_REMOTE = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "glusterfs", "lustre", "ceph", "beegfs")
_IN_MEMORY = ("tmpfs", "ramfs")
_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(r"\\([0-7]{3})")
"""How the kernel writes a blank in a name; what else Python takes for one, or for a line's end, is left as it is."""


@dataclass(frozen=True, slots=True)
class DiskFacts:
    """A folder, or where it will be made. ``setting`` names it in the daemon's settings."""

    setting: str
    path: str
    problem: str = ""
    """Why nothing could be read."""
    denied: bool = False
    kind: str = ""
    options: tuple[str, ...] = ()
    """Of the mount, such as ``ro``, ``noexec``."""
    bytes: int = 0
    """In all; 0 where that is not known."""
    free_bytes: int = 0
    inodes: int = 0
    """In all; 0 where the file system has no such bound."""
    free_inodes: int = 0
    least_mb: int = 1024
    durable: bool = False
    """What lies there must survive a reboot."""
    executes: bool = False
    """Programs are started from there."""
    sync_s: float | None = None
    """How long a small write took to be durable; None where it was not tried."""
    without_space: str = "No worker starts here (agent.toml: [checks] disk_free_mb)."
    """What comes of too little free space."""
    keeps_work_away: bool = False
    """No worker can be started without it."""


def look(
    setting: str, path: Path, *, least_mb: int, durable: bool = False, executes: bool = False, sync: bool = True
) -> DiskFacts:
    """Free space of a folder, or of its nearest existing parent. ``sync``: try how long a small write takes."""
    facts = {"setting": setting, "path": str(path), "least_mb": least_mb, "durable": durable, "executes": executes}
    there = path
    try:
        while not there.exists() and there != there.parent:
            there = there.parent
        found = os.statvfs(there)
        kind, options = _mount_of(there)
        tried = sync and durable and there == path and "ro" not in options
        sync_s = _sync_s(there) if tried else None
    except OSError as problem:
        denied = isinstance(problem, PermissionError)
        return DiskFacts(**facts, problem=problem.strerror or str(problem), denied=denied)  # type: ignore[arg-type]
    return DiskFacts(
        **facts,  # type: ignore[arg-type]
        kind=kind,
        options=options,
        bytes=found.f_blocks * found.f_frsize,
        free_bytes=found.f_bavail * found.f_frsize,
        inodes=found.f_files,
        free_inodes=found.f_favail,
        sync_s=sync_s,
    )


def check(facts: DiskFacts) -> Iterator[Finding]:
    """Check one folder: whether it can be used, its free space, and its speed."""
    name = f"disk.{facts.setting}"
    if facts.problem:
        if facts.denied:
            yield needs_root(name, f"{facts.path}: {facts.problem}")
        else:
            yield error(
                name,
                f"{facts.path}: {facts.problem}",
                "The daemon writes there.",
                f"ls -ld {facts.path}; dmesg",
                notify=True,
                keeps_work_away=facts.keeps_work_away,
            )
        return
    mounted, space = _mount(name, facts), _space(name, facts)
    yield _both(space, mounted) if mounted is not None and space.why else mounted or space
    if facts.sync_s is not None:
        yield _speed(facts, facts.sync_s)


def _both(one: Finding, other: Finding) -> Finding:
    """Two findings about a folder as one: a check has one result."""
    worst = Status.ERROR if Status.ERROR in (one.status, other.status) else Status.WARNING
    return Finding(
        one.check,
        worst,
        f"{one.saw}; {other.saw}",
        f"{one.why} {other.why}",
        (*one.fix, *other.fix),
        one.notify or other.notify,
        one.keeps_work_away or other.keeps_work_away,
    )


def _mount(name: str, facts: DiskFacts) -> Finding | None:
    if "ro" in facts.options:
        fix = (f"findmnt -T {facts.path}; dmesg | tail", f"mount -o remount,rw … (of {facts.path})")
        saw = f"{facts.path} is mounted read-only"
        away = facts.keeps_work_away
        return error(name, saw, "The daemon can't keep what it must.", *fix, notify=True, keeps_work_away=away)
    if facts.executes and "noexec" in facts.options:
        why = "Environments of packaged code hold programs, which can't be started there."
        fix = (f"mount -o remount,exec … (of {facts.path})", "or agent.toml: [packages] cache_dir elsewhere")
        return error(name, f"{facts.path} is mounted noexec", why, *fix)
    if facts.durable and facts.kind in _IN_MEMORY:
        why = "After a reboot no exit and no fencing number is known any more."
        mend = f"agent.toml: {facts.setting} on a local disk"
        return error(name, f"{facts.path} lies in memory ({facts.kind})", why, mend)
    if facts.durable and facts.kind in _REMOTE:
        why = "Locks and durability depend on a server; when it is away the agent stands still."
        mend = f"agent.toml: {facts.setting} on a local disk"
        return warning(name, f"{facts.path} lies on {facts.kind}", why, mend)
    return None


def _space(name: str, facts: DiskFacts) -> Finding:
    free = f"{facts.path} has {_size(facts.free_bytes)} free"
    find, away = f"du -xh --max-depth=2 {facts.path} | sort -h | tail", facts.keeps_work_away
    if facts.free_bytes < facts.least_mb * MIB:
        saw = f"{free} of the {facts.least_mb} MiB that it must have"
        return error(name, saw, facts.without_space, find, notify=True, keeps_work_away=away)
    if facts.free_bytes < FULL_BYTES:
        return error(name, f"{facts.path} is full", "Nothing can be written there.", find, notify=True)
    saw = f"{facts.path} has {facts.free_inodes} inodes left of {facts.inodes}"
    why = "No file can be made when they are used up, however much space is left."
    count = f"du -x --inodes --max-depth=2 {facts.path} | sort -n | tail"
    if facts.inodes and facts.free_inodes < max(1000, facts.inodes // 100):
        return error(name, saw, why, count, notify=True, keeps_work_away=away)
    if facts.inodes and facts.free_inodes < facts.inodes * FEW_INODES:
        return warning(name, saw, why, count, notify=True)
    if facts.free_bytes < facts.least_mb * MIB * PLENTY:
        nearly = not facts.bytes or facts.free_bytes < facts.bytes * NEARLY_FULL
        why = f"Below {facts.least_mb} MiB: {facts.without_space[0].lower()}{facts.without_space[1:]}"
        return warning(name, free, why, find, notify=nearly)
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


def _mount_of(path: Path) -> tuple[str, tuple[str, ...]]:
    """File system and options of the mount that holds a path; of several mounts at one point the last counts."""
    real, best = os.path.realpath(path), ("", "", ())
    try:
        table = os.fsdecode(_MOUNTS.read_bytes())
    except OSError:
        table = ""
    for line in table.split("\n"):
        mount, _, source = line.partition(" - ")
        fields, about = mount.split(" "), source.split(" ")
        if len(fields) < 6 or len(about) < 3:
            continue
        target = _ESCAPED.sub(lambda found: chr(int(found[1], 8)), fields[4])
        inside = real == target or real.startswith(target.rstrip("/") + "/")
        if inside and len(target) >= len(best[0]):
            options = (*fields[5].split(","), *about[-1].split(","))
            best = (target, about[0], options)  # type: ignore[assignment]
    return best[1], best[2]


def _sync_s(folder: Path) -> float | None:
    """How long a small write takes to be durable: the middle of a few. The file never has a name.

    None on a full disk, which has a finding of its own.
    """
    took = []
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            for _ in range(SYNCS):
                began = time.monotonic()
                file.write(os.urandom(SYNC_BYTES))
                os.fsync(file.fileno())
                took.append(time.monotonic() - began)
    except OSError as problem:
        if problem.errno in (errno.ENOSPC, errno.EDQUOT):
            return None
        raise
    return sorted(took)[SYNCS // 2]
