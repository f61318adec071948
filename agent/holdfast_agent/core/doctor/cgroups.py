"""Whether workers can be bounded and ended by cgroup v2. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast._base.dataclass import dataclass
from holdfast.doctor.findings import Finding, needs_root, ok, warning

MEMORY, PIDS, CPU = "memory", "pids", "cpu"
_BOOT = (
    "/etc/default/grub: add systemd.unified_cgroup_hierarchy=1 to GRUB_CMDLINE_LINUX",
    "update-grub && reboot",
)


@dataclass(frozen=True, slots=True)
class CgroupFacts:
    """The cgroup v2 tree. ``mount`` is empty where there is none."""

    wanted: bool = True
    mount: str = ""
    above: str = ""
    """Where the agent's own would be made."""
    controllers: tuple[str, ...] = ()
    writable: bool = True
    denied: bool = False
    """Not writable only because this is not root."""
    kill: bool = True
    version1: tuple[str, ...] = ()
    """Controllers that a version 1 tree holds."""


def check(facts: CgroupFacts) -> Iterator[Finding]:
    """Check that cgroup v2 is mounted, then its controllers."""
    if not facts.wanted:
        why = "Memory of a job isn't bounded, and a fork bomb takes the host along."
        yield warning("cgroups.tree", "cgroups = false", why, "agent.toml: remove cgroups = false")
        return
    if not facts.mount:
        why = "Memory isn't bounded, running out of it isn't reported, and orphans are found by a mark alone."
        yield warning("cgroups.tree", "cgroup v2 is not mounted", why, *_BOOT)
        return
    yield _tree(facts)
    yield _controllers(facts)


def _tree(facts: CgroupFacts) -> Finding:
    if facts.denied:
        return needs_root("cgroups.tree", f"{facts.above} may be written by root")
    if not facts.writable:
        why = "The agent can't make cgroups for its workers."
        mend = "Start the agent by its unit (Delegate=yes), or name a delegated cgroup_root in agent.toml"
        return warning("cgroups.tree", f"{facts.above} can't be written", why, mend)
    if not facts.kill:
        why = "A generation can't be ended as a whole, so workers run without cgroups."
        return warning("cgroups.tree", "the kernel has no cgroup.kill", why, "Upgrade to Linux 5.14 or later.")
    return ok("cgroups.tree", f"version 2 at {facts.mount}")


def _controllers(facts: CgroupFacts) -> Finding:
    missing = [name for name in (MEMORY, PIDS) if name not in facts.controllers]
    if not missing:
        return ok("cgroups.controllers", ", ".join(sorted(facts.controllers)))
    held = [name for name in missing if name in facts.version1]
    saw = f"{' and '.join(missing)} can't be bounded"
    if held:
        saw += f": version 1 of cgroups holds {' and '.join(held)}"
    why = "memoryMb isn't enforced and running out of memory can't be distinguished from other kills."
    if missing == [PIDS]:
        why = "A fork bomb takes the host along."
    return warning("cgroups.controllers", saw, why, *(_BOOT if held else ("Boot a kernel that has them.",)))
