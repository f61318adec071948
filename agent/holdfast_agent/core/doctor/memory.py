"""Shared memory, swap, and what the kernel does with pages meanwhile. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast._base.dataclass import dataclass
from holdfast.doctor.findings import Finding, error, ok, warning
from holdfast_agent.core.launch.preflight import MIB

SHM_WANTED = 1 << 30
"""NCCL takes some 33 MB for each rank, loaders of images take gigabytes."""


@dataclass(frozen=True, slots=True)
class MemoryFacts:
    """Sizes in bytes; text as the kernel has it, empty where it hasn't."""

    shm_bytes: int | None = None
    """None where /dev/shm is not a file system of its own."""
    shm_free_bytes: int = 0
    private_shm: bool = True
    """Each generation gets one of its own, as large as the host's."""
    shm_least_mb: int = 16
    swap_bytes: int = 0
    numa_nodes: int = 1
    numa_balancing: bool = False
    huge_defrag: str = ""
    """Of transparent huge pages, the chosen word."""


def check(facts: MemoryFacts) -> Iterator[Finding]:
    """Check shared memory, then settings that make trainings stall."""
    yield _shared(facts)
    yield _swap(facts)
    yield _pages(facts)


_LARGER = (
    "mount -o remount,size=50% /dev/shm",
    "echo 'tmpfs /dev/shm tmpfs rw,nosuid,nodev,size=50% 0 0' >> /etc/fstab",
)


def _shared(facts: MemoryFacts) -> Finding:
    why = "NCCL and loaders of data put gigabytes there: a bus error without a word is what comes of it."
    if facts.shm_bytes is None:
        fix = ("mount -t tmpfs -o nosuid,nodev,size=50% tmpfs /dev/shm",)
        return error("memory.shm", "/dev/shm is not mounted", why, *fix)
    counts = facts.shm_bytes if facts.private_shm else facts.shm_free_bytes
    saw = f"/dev/shm has {facts.shm_bytes // MIB} MiB, {facts.shm_free_bytes // MIB} of them free"
    if counts < facts.shm_least_mb * MIB:
        none = "No worker starts here ([checks] shm_free_mb)."
        return error("memory.shm", saw, none, *_LARGER, notify=True, keeps_work_away=True)
    if facts.shm_free_bytes < facts.shm_least_mb * MIB:
        own = "Jobs have one of their own; whatever else runs here can't use it, and it holds memory."
        return warning("memory.shm", saw, own, "ls -lS /dev/shm | head", notify=True)
    if counts < SHM_WANTED:
        return warning("memory.shm", saw, why, *_LARGER)
    return ok("memory.shm", saw)


def _swap(facts: MemoryFacts) -> Finding:
    if not facts.swap_bytes:
        return ok("memory.swap", "none")
    why = "A training that is swapped out does not fail, it crawls: it looks like a hang."
    fix = ("swapoff -a", "and take the swap lines out of /etc/fstab")
    return warning("memory.swap", f"{facts.swap_bytes // MIB} MiB", why, *fix)


def _pages(facts: MemoryFacts) -> Finding:
    if facts.numa_balancing and facts.numa_nodes > 1:
        why = "The kernel moves pages between nodes while ranks use them: steps take longer now and then."
        mend = "echo kernel.numa_balancing=0 > /etc/sysctl.d/91-holdfast.conf; sysctl --system"
        return warning("memory.pages", f"NUMA balancing over {facts.numa_nodes} nodes", why, mend)
    if facts.huge_defrag == "always":
        why = "Allocations wait while the kernel compacts memory: steps stall for seconds."
        mend = "echo madvise > /sys/kernel/mm/transparent_hugepage/defrag"
        return warning("memory.pages", "huge pages are made while programs wait", why, mend)
    return ok("memory.pages", "nothing moves pages behind programs' backs")
