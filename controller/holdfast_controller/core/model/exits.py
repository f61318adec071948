"""Exits of ranks as they are reported, and the error that a job ends with."""

from __future__ import annotations

import re

from holdfast._base.dataclass import dataclass
from holdfast._session.reports import Exit, ExitReason, ExitReport

OURS = frozenset({ExitReason.STOPPED, ExitReason.HANG_KILLED, ExitReason.NOT_STARTED, ExitReason.LOST_RECORD})
"""Ends that we brought about, or that tell nothing of themselves."""

_RAISED = re.compile(r"^(?:\[rank\d+\]:\s*)?(?P<kind>[A-Za-z_][\w.]*)(?::\s|$)(?P<text>.*)")
"""The last line of a Python traceback: ``ValueError: no such key``; torch puts ``[rank3]:`` before it."""

_NAMES = re.compile(r"(Error|Exception|Interrupt|Exit|Warning|Timeout|Iteration|Abort|Failure|BdbQuit)$")


@dataclass(frozen=True)
class ExitsReported:
    """An agent reports how ranks ended, in one message; it repeats that until acknowledged."""

    host: str
    session: int
    reports: tuple[ExitReport, ...]


@dataclass(frozen=True)
class JobError:
    """The first cause of a job's end. ``code`` is a google.rpc.Code."""

    code: int
    message: str
    details: tuple[str, ...] = ()
    exit_code: int | None = None
    rank: int | None = None
    """Whose end it is about, if it is about one."""
    raised: str = ""
    """The exception that the rank ended with, such as ``ValueError: bad batch``."""
    why_final: str = ""
    """Why it isn't tried again, where that is no spent budget; a sentence."""


def exception(tail: tuple[str, ...]) -> str:
    """The Python exception that a rank's last lines end with, such as "ValueError: no such key"; empty without one.

    The traceback's head need not be among the lines, since long ones are cut.
    """
    found = ""
    for line in tail:
        match = _RAISED.match(line.rstrip())
        if match and _NAMES.search(match["kind"].rpartition(".")[2]):
            found = line.rstrip().removeprefix(line[: match.start("kind")])
    return found


def raised_by(exit_: Exit) -> str:
    """The exception that a rank ended with: the recorded one, or else the one that it printed."""
    return exit_.raised or exception(exit_.stderr_tail)


def shown_raised(exit_: Exit) -> str:
    """The exception that explains a rank's end; empty where it finished, or was stopped by us and recorded none."""
    if exit_.raised or not exit_.stderr_tail:
        return exit_.raised
    return "" if exit_.ok or exit_.reason in OURS else exception(exit_.stderr_tail)
