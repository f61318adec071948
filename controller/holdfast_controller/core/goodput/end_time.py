"""The end of a training, as an interval: what is left to do, by the pace of its steps so far.

The estimate is the steps that are left times the mean time of a step over the newer half of the history, evaluations
and saves included. How far the truth lies from it depends on how uneven the pace was and on how far it is carried
on: ``_scale``. The bounds in units of that scale are quantiles over recorded public trainings, chosen so that
those of a benchmark that was left out are covered, too (``bench/end_time.py`` finds and tests them). The training
mostly gets slower, so that the later bound is further away.

Interruptions come on top: their number in the time that is left follows from those so far (negative binomial: a
Poisson rate with Jeffreys' prior), each costs what those so far have cost. A job that had none is taken to have none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast_controller.core.model.goodput import LONGEST_MS, SHORTEST_MS, Stretch

CHANCE_PCT = 80
LEAST_STRETCHES = 4
MOST_LEFT = 10.0
"""Steps left for each step that was seen: from about a tenth on there is an estimate."""
UNEVEN = 0.02
FARTHER = 0.4
EARLIER, LATER = -0.644, 3.65
MOST_SCALE = 0.5
"""Beyond, the later bound is several times the estimate: the pace says too little."""
_LOW, _HIGH = 0.1, 0.9
_MOST_INTERRUPTIONS = 10_000
_MOST_APART = 1e9
"""So many times the mean is uneven enough, and its square is a number."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The history of a training's pace; ``ms`` is the time of the newer half of it."""

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
    newer_ms, newer_steps = 0, 0.0
    for each in reversed(stretches):
        newer_ms, newer_steps = newer_ms + each.ms, newer_steps + each.steps
        if 2 * newer_ms >= total_ms:
            break
    return Pace(newer_ms / newer_steps, _scale(variance, left), newer_ms)


def ms_left(pace: Pace, steps_left: float, interruptions: Interruptions) -> tuple[float, float]:
    """The bounds of the time that is left, in ms. Each end of the interval is passed with a chance of a tenth."""
    estimate = pace.step_ms * steps_left
    earliest, latest = (estimate * math.exp(bound * pace.scale) for bound in (EARLIER, LATER))
    if interruptions.number and interruptions.ms > 0:
        earliest += interruptions.cost_ms * _expected(interruptions, earliest, _LOW)
        latest += interruptions.cost_ms * _expected(interruptions, latest, _HIGH)
    return earliest, latest


def _scale(variance: float, left: float) -> float:
    farther: float = (1 + left) ** FARTHER
    return math.sqrt(UNEVEN**2 + variance) * farther


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
