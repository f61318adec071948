"""Whether the controller can be reached, what stands in the way, and whether the clocks agree. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterator

from holdfast._base.dataclass import dataclass
from holdfast._base.identity import BACKDATED_S
from holdfast.doctor.findings import Finding, error, ok, unknown, warning

SLOW_S = 0.25
"""A round trip that takes longer is no local network's."""
TIME_KEY = "holdfast-time"
"""Under which a controller tells its clock, in seconds, with the answer to a health check."""
SKEW_S = 2.0
"""A machine with NTP is within milliseconds; logs of several hosts are read side by side."""


class Step(enum.Enum):
    """How far a call got; what comes later needs what came before."""

    NAME = "the name was resolved"
    TCP = "the connection was accepted"
    TLS = "the handshake succeeded"
    CALL = "the call was answered"


@dataclass(frozen=True, slots=True)
class ReachFacts:
    """One try. ``failed`` is the step that did not succeed, None where all did."""

    address: str
    failed: Step | None = None
    problem: str = ""
    addresses: tuple[str, ...] = ()
    round_trip_s: float = 0.0
    difference_s: float | None = None
    """The controller's clock less ours; None where it didn't tell."""
    uncertain_s: float = 0.0
    """By how much that may be wrong."""
    mute: bool = False
    """It takes connections, and nothing came on ours in time."""


def check(facts: ReachFacts) -> Iterator[Finding]:
    """The link, then the clock."""
    host, _, port = facts.address.rpartition(":")
    match facts.failed:
        case Step.NAME:
            saw = f"{host} can't be resolved: {facts.problem}"
            yield error("controller.name", saw, _CUT_OFF, f"getent hosts {host}", "Fix DNS or /etc/hosts.")
        case Step.TCP:
            yield ok("controller.name", _named(facts))
            saw = f"{facts.address} does not take connections: {facts.problem}"
            fix = (f"nc -vz {host} {port}", "Check that holdfast-controller runs there, and firewalls in between.")
            yield error("controller.tcp", saw, _CUT_OFF, *fix)
        case Step.TLS:
            yield ok("controller.tcp", f"{facts.address} takes connections")
            saw = f"no handshake with {facts.address}: {facts.problem}"
            mend = "Check the address, the clock (time.*) and the files (certificates.*)."
            if facts.mute:
                mend = "It may be overloaded or stopped. On its machine: systemctl status holdfast-controller"
            yield error("controller.tls", saw, _CUT_OFF, mend)
        case Step.CALL:
            yield ok("controller.tls", f"{facts.address} is a controller of this cluster")
            why = "It refuses this certificate, or is not well."
            yield error("controller.call", facts.problem, why, "Read the controller's log; join or log in again.")
        case None:
            yield _answered(facts)
    yield _clock(facts)


_CUT_OFF = "Without its controller this machine takes no work and tells of none."


def _named(facts: ReachFacts) -> str:
    return f"{facts.address.rpartition(':')[0]} is {', '.join(facts.addresses)}"


def _answered(facts: ReachFacts) -> Finding:
    saw = f"{facts.address} answers in {facts.round_trip_s * 1000:.0f} ms"
    if facts.round_trip_s > SLOW_S:
        why = "Heartbeats get through, but every start of a gang waits for such trips."
        return warning("controller.call", saw, why, f"mtr {facts.address.rpartition(':')[0]}")
    return ok("controller.call", saw)


def _clock(facts: ReachFacts) -> Finding:
    if facts.difference_s is None:
        if facts.failed:
            return unknown("time.controller", "the controller was not reached")
        return unknown("time.controller", "this controller does not tell its time; upgrade it")
    apart_s = abs(facts.difference_s)
    if apart_s - facts.uncertain_s <= SKEW_S:
        return ok(
            "time.controller", f"within {max(apart_s, facts.uncertain_s, 0.001) * 1000:.0f} ms of the controller"
        )
    way = "ahead of" if facts.difference_s < 0 else "behind"
    saw = f"this clock is {apart_s:.0f} s {way} the controller's"
    if apart_s >= BACKDATED_S:
        why = "Fresh certificates seem not to have begun, or to have ended."
        return error("time.controller", saw, why, "timedatectl set-ntp true")
    why = "Times in logs and tables don't match; certificates bear 5 minutes."
    return warning("time.controller", saw, why, "timedatectl set-ntp true")
