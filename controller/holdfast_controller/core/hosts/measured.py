"""Verdicts on what was measured: a host is slow that is clearly below hosts like it, twice.

The usual value of a figure is the median of the newest results of other hosts with equal hardware and software; how far
they lie apart is their median deviation. A host is low below both a margin, as equal parts always differ, and five
such deviations. One low result says little: another program may have run, or the partner of a pair was slow. So it is
measured again, of a pair with another partner, and only the second low result in a row is a finding. A result that
isn't low ends it. A check that could not be made is no result.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from holdfast._base.dataclass import dataclass
from holdfast._base.health import FIGURES, Health, shown
from holdfast_controller.core import events as ev
from holdfast_controller.core.hosts import checks
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.hosts.host import CheckStatus, FailedCheck, Host
from holdfast_controller.core.model.hosts.measurements import PREFIX, Kind, Measurement, Outcome, Why
from holdfast_controller.core.step.step import Step

FEWEST = 5
"""Other hosts whose results make a usual value."""
DEVIATIONS = 5.0
_SIGMA = 1.4826
"""Standard deviations in a median deviation of normal values."""
BROKEN = 0.5
"""Below that part of the usual value a host gets no new work; above it is only the last choice."""


@dataclass(frozen=True)
class Usual:
    """A figure of other hosts: the median, of how many, and below what a host is low."""

    value: float
    hosts: int
    low: float


def usual(hosts: Iterable[Host], name: str, figure: str, like: Measurement) -> Usual | None:
    """The usual value of a figure, by results of hosts other than ``name``; None where they are too few to say."""
    found = []
    for host in hosts:
        if host.name == name:
            continue
        newest = next((r for r in host.measured.with_figure(figure, like) if r.partner != name), None)
        if newest is not None:
            found.append(newest.figures[figure])
    if len(found) < FEWEST:
        return None
    middle = statistics.median(found)
    apart = _SIGMA * statistics.median(abs(value - middle) for value in found)
    return Usual(middle, len(found), middle - max(FIGURES[figure].margin * middle, DEVIATIONS * apart))


def judge(step: Step, host: Host, result: Measurement) -> None:
    """Open and close findings by the newest result of a host, or have it measured again."""
    again = False
    for figure in result.figures:
        compared = usual(step.cluster.hosts.values(), host.name, figure, result)
        check = PREFIX + figure
        if compared is None:
            continue
        lows = _lows(host, figure, result, compared.low)
        if not lows:
            if check in host.failed_checks:
                checks.passed(step, host, check)
        elif len(lows) > 1 and (result.kind is Kind.ALONE or len({each.partner for each in lows}) > 1):
            checks.found(step, host, _slow(host.name, figure, lows, compared, step.now.wall))
        else:
            again = True
    if again:
        step.emit(ev.HostMeasurementDue(host=host.name, at=step.now.wall, kind=result.kind, why=Why.REPEAT, by=""))


def is_suspect(host: Host) -> bool:
    """Whether a host is no good partner to tell another's fault from: its own network was low, or isn't known."""
    low = any(check.startswith(f"{PREFIX}net.") for check in host.failed_checks)
    return low or host.measured.due(Kind.PAIR) is Why.REPEAT


def _lows(host: Host, figure: str, like: Measurement, low: float) -> list[Measurement]:
    """The newest results of a host as far as they are low, all of them in a row."""
    found: list[Measurement] = []
    for each in host.measured.with_figure(figure, like):
        if each.outcome is not Outcome.MEASURED or each.figures[figure] >= low:
            break
        found.append(each)
    return found


def _slow(name: str, figure: str, lows: list[Measurement], compared: Usual, now: Wall) -> FailedCheck:
    kind = FIGURES[figure]
    value = lows[0].figures[figure]
    broken = value < BROKEN * compared.value
    partners = sorted({each.partner for each in lows if each.partner})
    where = f", with {' and with '.join(partners[:3])}" if partners else ""
    saw = (
        f"{kind.what} {shown(value)} {kind.unit}{where}, measured {len(lows)} times;"
        f" {compared.hosts} hosts like it have {shown(compared.value)}"
    )
    return FailedCheck(
        PREFIX + figure,
        CheckStatus.ERROR if broken else CheckStatus.WARNING,
        saw,
        "A gang runs as fast as its slowest host.",
        (f"once it is repaired: holdfast host check {name}",),
        now,
        keeps_work_away=broken,
        health=Health.CORDON if broken else Health.DEGRADED,
    )
