"""A finding: what one check saw, why it matters, and what to type. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any

from holdfast._base.dataclass import dataclass
from holdfast._base.health import Health


class Status(enum.Enum):
    """Status of a check's result."""

    OK = "ok"
    UNKNOWN = "unknown"
    """Could not be looked at; ``saw`` says why."""
    WARNING = "warning"
    """Work runs, though worse or less safely than it could."""
    ERROR = "error"
    """Work can't run here, or will fail in time."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check. ``check`` is its stable name for programs, AREA.NAME; ``fix`` is lines to type or write."""

    check: str
    status: Status
    saw: str
    why: str = ""
    fix: tuple[str, ...] = ()
    notify: bool = False
    """It comes by itself and gets worse, so admins are notified even where it is a warning."""
    keeps_work_away: bool = False
    """No work can be started on this host while it stands."""
    health: Health | None = None
    """Its class, where it is about the health of hardware."""

    @property
    def area(self) -> str:
        """Subject, such as ``gpus``."""
        return self.check.partition(".")[0]


def ok(check: str, saw: str) -> Finding:
    """A passed check."""
    return Finding(check, Status.OK, saw)


def unknown(check: str, why_not: str, *fix: str) -> Finding:
    """A check that could not be made."""
    return Finding(check, Status.UNKNOWN, f"couldn't look: {why_not}", fix=fix)


def needs_root(check: str, what: str) -> Finding:
    """A check that only root can make."""
    return unknown(check, what, "Run it as root to look at everything.")


def warning(check: str, saw: str, why: str, *fix: str, notify: bool = False) -> Finding:
    """A finding worth fixing, though work runs."""
    return Finding(check, Status.WARNING, saw, why, fix, notify)


def error(
    check: str, saw: str, why: str, *fix: str, notify: bool = False, keeps_work_away: bool = False
) -> Finding:
    """A finding that must be fixed."""
    return Finding(check, Status.ERROR, saw, why, fix, notify, keeps_work_away)


def exit_status(findings: Iterable[Finding]) -> int:
    """0 if nothing must be fixed, else 1."""
    return int(any(finding.status is Status.ERROR for finding in findings))


def counts(findings: Iterable[Finding]) -> dict[Status, int]:
    """How many of each status."""
    every = [finding.status for finding in findings]
    return {status: every.count(status) for status in Status}


def view(subject: str, version: str, findings: Iterable[Finding]) -> dict[str, Any]:
    """All findings as JSON values. ``subject`` is the host, or the client's settings file."""
    every = list(findings)
    return {
        "subject": subject,
        "version": version,
        "summary": {status.value: count for status, count in counts(every).items()},
        "findings": [
            {
                "check": finding.check,
                "status": finding.status.value,
                "saw": finding.saw,
                "why": finding.why,
                "fix": list(finding.fix),
                "notify": finding.notify,
                "keepsWorkAway": finding.keeps_work_away,
            }
            for finding in every
        ],
    }


def from_view(said: Any) -> list[Finding]:
    """The findings that ``view`` was given. Raises ``KeyError``, ``TypeError`` or ``ValueError`` for anything else."""
    return [
        Finding(
            str(each["check"]),
            Status(each["status"]),
            str(each["saw"]),
            str(each["why"]),
            tuple(map(str, each["fix"])),
            bool(each["notify"]),
            bool(each["keepsWorkAway"]),
        )
        for each in said["findings"]
    ]
