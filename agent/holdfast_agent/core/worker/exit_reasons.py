"""Reasons for exits that no shim recorded, and for exits that a taken port caused. Never invents an exit code."""

from __future__ import annotations

from holdfast._session.reports import Exit, ExitReason
from holdfast_agent.core.worker.events import Journal

PORT_TAKEN_WITHIN_S = 60.0
"""Rendezvous happens early; a later "address in use" is about some port of the program's own."""
_PORT_TAKEN = ("EADDRINUSE", "Address already in use", "address already in use")


def unseen_exits(journal: Journal | None, generation: int, ranks: tuple[int, ...], found: int) -> tuple[Exit, ...]:
    """Exits for those of ``ranks`` that have none in the journal, once the worker is proven empty.

    ``found`` is the number of processes that had to be killed. NOT_STARTED is said only where nothing at all points
    to a start; a boot in between hides such signs, so it is never said then.
    """
    known = {exit_.rank for exit_ in journal.exits} if journal else set()
    reason, message = _why(journal, found)
    return tuple(Exit(0, generation, rank, reason, message=message) for rank in ranks if rank not in known)


def _why(journal: Journal | None, found: int) -> tuple[ExitReason, str]:
    if journal is None:
        return ExitReason.NOT_STARTED, "never started: its shim was gone before it could launch anything"
    if journal.other_boot:
        return ExitReason.LOST_REBOOT, "the host rebooted before its end was recorded"
    ran = journal.forked or journal.started or journal.exits or journal.wrote_output or found
    if not ran:
        return ExitReason.NOT_STARTED, "never started: its shim died between the intent and the launch"
    return ExitReason.LOST_SHIM_DIED, "its shim died, so it is unknown how it ended"


def port_was_taken(exit_: Exit, launched_at: float | None, now: float) -> bool:
    """Whether a rank ended by itself because a port that it was given was in use."""
    if (
        exit_.reason is not ExitReason.NONZERO_EXIT
        or launched_at is None
        or now - launched_at > PORT_TAKEN_WITHIN_S
    ):
        return False
    return any(sign in line for line in exit_.stderr_tail for sign in _PORT_TAKEN)
