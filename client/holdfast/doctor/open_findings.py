"""Which findings are worth an admin's notice, and since when each stands: reported at once, over after a while. Pure.

Theory of operation. Looks are made in rounds, of which there are several kinds: a quick one each minute, a whole one
now and then. A round replaces what the last one of its kind has found. A finding is reported as soon as it is made. It
is over only once it has not been made for ``over_s``: a disk that is full, then not, then full again is one finding.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from holdfast._base.dataclass import dataclass
from holdfast.doctor.findings import Finding, Status


@dataclass(frozen=True, slots=True)
class _Seen:
    finding: Finding
    since: float
    """Wall clock."""
    last: float
    """Monotonic."""


@dataclass
class OpenFindings:
    """The findings of one machine that stand at present."""

    over_s: float
    _seen: dict[tuple[str, str], _Seen] = field(default_factory=dict)
    """By round and check."""

    def take(self, kind: str, findings: Iterable[Finding], *, wall: float, mono: float) -> None:
        """Take in a round of that ``kind``. Times in seconds, on both clocks."""
        for finding in findings:
            key = kind, finding.check
            known = self._seen.get(key)
            since = known.since if known is not None else wall
            self._seen[key] = _Seen(finding, since, mono)
        self._seen = {
            key: seen for key, seen in self._seen.items() if key[0] != kind or mono - seen.last < self.over_s
        }

    def all(self) -> list[tuple[Finding, float]]:
        """Each check that fails, with the worst of its findings, and since when (wall clock); by name."""
        worst: dict[str, _Seen] = {}
        for (_, check), seen in sorted(self._seen.items()):
            if check not in worst or _rank(seen.finding) > _rank(worst[check].finding):
                worst[check] = seen
        return [(seen.finding, seen.since) for _, seen in sorted(worst.items())]


def notable(findings: Iterable[Finding]) -> list[Finding]:
    """The findings that admins are notified of: errors, and warnings of what gets worse by itself."""
    return [each for each in findings if each.status is Status.ERROR or each.notify]


def _rank(finding: Finding) -> tuple[bool, bool]:
    return finding.keeps_work_away, finding.status is Status.ERROR
