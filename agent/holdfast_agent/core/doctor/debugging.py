"""Whether the stacks of a hung rank can be read, and what a crash does. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast._base.dataclass import dataclass
from holdfast.doctor.findings import Finding, ok, warning

BUILT_FOR = ("x86_64", "aarch64")
"""Processors for which pystack has wheels, as in the extra ``agent``."""
_HEED_THE_LIMIT = ("systemd-coredump", "apport", "abrt-hook-ccpp")
"""Receivers of core dumps that read nothing of a process whose core limit is 0, as ranks' is."""


@dataclass(frozen=True, slots=True)
class DebuggingFacts:
    """Facts on stack dumps and core dumps. ``ptrace_scope`` is Yama's, 0 without it."""

    ptrace_scope: int = 0
    capable: bool = True
    """The agent has CAP_SYS_PTRACE."""
    agent_is_root: bool = True
    spy: bool = True
    """py-spy can be started."""
    native: bool = True
    """pystack can be started."""
    processor: str = "x86_64"
    core_pattern: str = "core"


def check(facts: DebuggingFacts) -> Iterator[Finding]:
    """Check that stacks can be read, C frames too, then where core dumps go."""
    yield _stacks(facts)
    yield _native(facts)
    yield _cores(facts)


def _stacks(facts: DebuggingFacts) -> Finding:
    why = "A hang is found all the same, but its evidence has no Python stacks."
    if not facts.spy:
        return warning("debugging.stacks", "py-spy can't be started", why, "Install the agent's package again.")
    if facts.ptrace_scope >= 3:
        fix = (
            "Remove kernel.yama.ptrace_scope=3 from /etc/sysctl.d",
            "and reboot: the kernel doesn't go back from 3",
        )
        return warning("debugging.stacks", "kernel.yama.ptrace_scope is 3: no process may trace another", why, *fix)
    if facts.agent_is_root and not facts.capable:
        mend = "Start the agent with CAP_SYS_PTRACE (container: --cap-add SYS_PTRACE)."
        return warning("debugging.stacks", "this root has no CAP_SYS_PTRACE", why, mend)
    if not facts.capable and facts.ptrace_scope >= 1:
        saw = f"the agent is not root and kernel.yama.ptrace_scope is {facts.ptrace_scope}"
        return warning("debugging.stacks", saw, why, "sysctl -w kernel.yama.ptrace_scope=0")
    return ok("debugging.stacks", f"ranks' stacks can be read (ptrace_scope {facts.ptrace_scope})")


def _native(facts: DebuggingFacts) -> Finding:
    if facts.native:
        return ok("debugging.native", "frames of C and C++ can be read as well")
    if facts.processor not in BUILT_FOR:
        return ok("debugging.native", f"no frames of C and C++: pystack has no wheel for {facts.processor}")
    why = "The evidence of a hang in NCCL, CUDA or a lock of C shows the Python line alone."
    fix = "Install the agent's package again (or: pip install 'holdfast[agent]')."
    return warning("debugging.native", "pystack can't be started", why, fix)


def _cores(facts: DebuggingFacts) -> Finding:
    pattern = facts.core_pattern.strip()
    if not pattern.startswith("|"):
        return ok("debugging.cores", "a crash leaves no core file: the limit of ranks is 0")
    program = pattern[1:].split()[0] if pattern[1:].split() else ""
    if any(name in program for name in _HEED_THE_LIMIT):
        return ok("debugging.cores", f"{program} heeds the limit of ranks, which is 0")
    why = "A rank that crashes is kept until the program has read all its memory; the relaunch waits for it."
    fix = ("sysctl -w kernel.core_pattern=core", "or see that it stops at once where the core limit (%c) is 0")
    return warning("debugging.cores", f"core dumps go to {program}", why, *fix)
