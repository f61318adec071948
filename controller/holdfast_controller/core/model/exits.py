"""Exits of ranks as they are reported, and the error that a job ends with."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast._session.reports import ExitReport


@dataclass(frozen=True)
class ExitReported:
    """An agent reports how a rank ended; it repeats that until acknowledged."""

    host: str
    session: int
    report: ExitReport


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
