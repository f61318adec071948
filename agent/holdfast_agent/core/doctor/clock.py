"""Whether something keeps this host's clock right. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast._base.dataclass import dataclass
from holdfast.doctor.findings import Finding, ok, unknown, warning


@dataclass(frozen=True, slots=True)
class ClockFacts:
    """The kernel's view of its clock (adjtimex)."""

    synchronised: bool | None
    """None where it can't be asked."""
    most_wrong_s: float = 0.0


def check(facts: ClockFacts) -> Iterator[Finding]:
    """Whether the clock is synchronised. The controller compares it with its own (``core.hosts.checks``)."""
    if facts.synchronised is None:
        yield unknown("time.ntp", "the kernel does not say")
    elif facts.synchronised:
        yield ok("time.ntp", f"synchronised, wrong by {facts.most_wrong_s * 1000:.0f} ms at most")
    else:
        why = "Clocks drift apart: certificates seem not to have begun, logs don't fit together."
        fix = ("timedatectl set-ntp true", "or: apt install chrony")
        yield warning("time.ntp", "nothing synchronises the clock", why, *fix)
