"""The end of a training, as an interval: what is left to do, by the pace of its steps so far.

The estimate is the steps that are left times the mean time of a step over the newest third of the history, evaluations
and saves included. How far the truth lies from it the training itself shows: how wrong the same rule would have
been at four earlier moments about the time until now, and how uneven the stretches are. It grows with how far it is
carried on. Where all four say that the training was faster than expected, it is taken to get faster on. The bounds in
units of that scale are quantiles over recorded public trainings, chosen so that those of a benchmark that was left out
are covered, too (``bench/end_time.py`` finds and tests them). The training mostly gets slower, so that the later bound
is further away.

Interruptions come on top: their number in the time that is left follows from those so far (negative binomial: a
Poisson rate with Jeffreys' prior), each costs what those so far have cost. A job that had none is taken to have none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.model.goodput import LONGEST_MS, SHORTEST_MS, Stretch

CHANCE_PCT = 80
LEAST_STRETCHES = 4
MOST_LEFT = 10.0
"""Steps left for each step that was seen: from about a tenth on there is an estimate."""
UNEVEN = 0.02
FARTHER, NEAREST = 0.4, 0.3
NEWEST = 0.35
"""The part of a history, by its time, that its pace is taken from."""
MOMENTS = (0.3, 0.45, 0.6, 0.75)
"""Parts of the steps so far after which the rule is tried on what came then."""
MOST_WRONG = 3.0
EARLIER, LATER = -0.531, 3.467
MOST_SCALE = 0.5
"""Beyond, the later bound is several times the estimate: the pace says too little."""
_LOW, _HIGH = 0.1, 0.9
_MOST_INTERRUPTIONS = 10_000
_MOST_MS = 1e100
_MOST_APART = 1e9
"""So many times the mean is uneven enough, and its square is a number."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The history of a training's pace; ``ms`` is the time of the newest third of it."""

    step_ms: float
    scale: float
    ms: int

    @property
    def is_too_uneven(self) -> bool:
        """Whether an interval from it would be too wide to be of use."""
        return self.scale > MOST_SCALE


@dataclass(frozen=True, slots=True)
class Interruptions:
    """Interruptions of a job in ``ms`` of its life, and the mean cost of one until it was where it had been."""

    number: int = 0
    ms: int = 0
    cost_ms: float = 0.0


def pace_of(stretches: Sequence[Stretch], steps_left: float) -> Pace | None:
    """The pace to carry on over so many steps; None where too little of it was seen."""
    steps, total_ms = sum(each.steps for each in stretches), sum(each.ms for each in stretches)
    if len(stretches) < LEAST_STRETCHES or not 0 < steps < math.inf or total_ms <= 0:
        return None
    left = steps_left / steps
    if not left <= MOST_LEFT:
        return None
    mean = total_ms / steps
    if not SHORTEST_MS < mean < LONGEST_MS:
        return None
    apart = ((each.steps / steps, min(each.ms / each.steps / mean, _MOST_APART)) for each in stretches)
    variance = sum(share * (times - 1) ** 2 for share, times in apart)
    wrong = [_wrong(stretches, part * steps) for part in MOMENTS]
    step_ms, ms = _newest(stretches)
    if max(wrong) <= 0:
        step_ms *= math.exp(median(wrong) * min(left, 1.0))
    uneven = UNEVEN**2 + sum(each**2 for each in wrong) / len(wrong) + variance / 4
    farther: float = (NEAREST + left) ** FARTHER
    return Pace(step_ms, math.sqrt(uneven) * farther, ms)


def _newest(stretches: Sequence[Stretch]) -> tuple[float, int]:
    """The mean time of a step over the newest part of a history, and the time of that part."""
    whole, ms, steps = sum(each.ms for each in stretches), 0, 0.0
    for each in reversed(stretches):
        ms, steps = ms + each.ms, steps + each.steps
        if ms >= NEWEST * whole:
            break
    return ms / steps, ms


def _wrong(stretches: Sequence[Stretch], after: float) -> float:
    """The logarithm of how much longer than expected the rest took, to who looked after so many steps."""
    seen, number = 0.0, 0
    while number < len(stretches) - 1 and (not number or seen < after):
        seen, number = seen + stretches[number].steps, number + 1
    rest = stretches[number:]
    expected = _newest(stretches[:number])[0] * sum(each.steps for each in rest)
    wrong = math.log(max(sum(each.ms for each in rest), 1) / min(max(expected, SHORTEST_MS), _MOST_MS))
    return min(max(wrong, -MOST_WRONG), MOST_WRONG)


def ms_left(pace: Pace, steps_left: float, interruptions: Interruptions) -> tuple[float, float]:
    """The bounds of the time that is left, in ms. Each end of the interval is passed with a chance of a tenth."""
    estimate = pace.step_ms * steps_left
    earliest, latest = (estimate * math.exp(bound * pace.scale) for bound in (EARLIER, LATER))
    if interruptions.number and interruptions.ms > 0:
        earliest += interruptions.cost_ms * _expected(interruptions, earliest, _LOW)
        latest += interruptions.cost_ms * _expected(interruptions, latest, _HIGH)
    return earliest, latest


def _expected(interruptions: Interruptions, ms: float, chance: float) -> int:
    """Interruptions in ``ms`` that are not exceeded with that chance."""
    shape, share = interruptions.number + 0.5, ms / (ms + interruptions.ms)
    log_mass, log_share = shape * math.log1p(-share), math.log(share)
    mass = 0.0
    for number in range(_MOST_INTERRUPTIONS):
        mass += math.exp(log_mass)
        if mass >= chance:
            return number
        log_mass += log_share + math.log((number + shape) / (number + 1))
    return _MOST_INTERRUPTIONS
