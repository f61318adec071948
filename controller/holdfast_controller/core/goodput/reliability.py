"""MTBF and MTTR of hosts, with intervals, and which hosts fail more often than their fleet explains.

Theory of operation. Failures of a host are a Poisson process, with one rate while it works and another while it is
idle. The fleet's two rates give the failures that a host's time leads one to expect; the ratio of what was counted to
that is taken to follow one of two gamma distributions (empirical Bayes): that of sound hosts, of mean 1 and a shape
that the fleet's own counts tell, or the wide one of lemons, which few hosts are. A host is a lemon if the lower bound
of its ratio, by all that is known then, is above ``LEMON_RATIO``. The fleet's rate is that of the *other* hosts, so
that one bad host of a few doesn't hide itself, and one failure more is assumed of them, so that few prove little.
What speaks against a host is measured as surprise: the bits of the chance that a sound host fails so often. A fleet has
many hosts, so a lemon's surprise must be one that no sound host of that fleet has. And each is judged often: in a large
fleet the counts must also be so many times likelier for a lemon as there are hosts in 5 %, which a sound host of the
fleet reaches at any look in at most 5 % of fleets (Ville's inequality).

Intervals are exact: Garwood's for a Poisson rate, and the gamma interval of the mean of exponential times.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import field

from holdfast._base.dataclass import dataclass

CHANCE = 0.95
"""Of an interval to hold the true value."""
LEMON_CHANCE = 0.95
"""Of the ratio to lie above its lower bound."""
LEMON_RATIO = 2.0
"""A lemon fails more than so many times as often as the others."""
LEMONS_SHARE = 0.01
"""Of hosts, before anything is known of them."""
FLEET_CHANCE = 0.05
"""Of any sound host of a whole fleet to be as surprising as a lemon, at one look."""
MANY = 500
"""Hosts of a fleet whose common rate is known well. What it costs in surprise that the rate of few is known badly pays
for looking at them every day; for many, evidence is asked for that holds at any number of looks."""
FEWEST_FAILURES = 3
"""Of a lemon: two may always be one cause."""
_LEMON_SHAPE, _LEMON_MEAN = 2.0, 10.0
"""Most lemons fail 3 to 25 times as often as others; of Meta's, those of a host in 100 made 13 % of jobs fail."""
_SHAPES = tuple(2.0**power for power in range(-1, 13))
"""Shapes of sound hosts' distribution that are tried, from very different hosts to equal ones."""


@dataclass(slots=True)
class HostTotals:
    """Counts and times of a host; times in ms, by whether it had work (``[False]``, ``[True]``)."""

    since: int = 0
    up_ms: list[int] = field(default_factory=lambda: [0, 0])
    failures: list[int] = field(default_factory=lambda: [0, 0])
    kinds: dict[str, int] = field(default_factory=dict)
    """Failures by kind."""
    repairs: int = 0
    repair_ms: int = 0


@dataclass(frozen=True)
class Interval:
    """A mean with the interval in which it lies by ``CHANCE``; infinite where nothing bounds it."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Reliability:
    """MTBF, MTTR and ratio of a host. Times in ms."""

    since: int
    up_ms: int
    failures: int
    kinds: dict[str, int]
    mtbf: Interval | None
    """None before it was up; its mean is infinite before the first failure."""
    repairs: int
    mttr: Interval | None
    ratio: float
    """Failures per failure of the other hosts in the same time, as the fleet makes likely."""
    ratio_low: float
    """0 with too few failures to tell."""
    surprise: float
    """Bits: -log2 of the chance that a sound host of this fleet fails so often in the same time."""
    lemon: bool


def judge(fleet: Mapping[str, HostTotals], former: Iterable[HostTotals] = ()) -> dict[str, Reliability]:
    """The reliability of each host of a fleet. ``former`` hosts, or times before a repair, count for the fleet only."""
    everyone = [*fleet.values(), *former]
    up = [sum(host.up_ms[busy] for host in everyone) for busy in (False, True)]
    failures = [sum(host.failures[busy] for host in everyone) for busy in (False, True)]
    shape = _shape([(sum(host.failures), _expected(host, up, failures)) for host in everyone])
    size = max(len(fleet), 1)
    return {name: _of_host(host, up, failures, shape, size) for name, host in fleet.items()}


def _of_host(host: HostTotals, up: list[int], failures: list[int], shape: float, hosts: int) -> Reliability:
    count, up_ms = sum(host.failures), sum(host.up_ms)
    others_up = [whole - own for whole, own in zip(up, host.up_ms, strict=True)]
    others = [whole - own for whole, own in zip(failures, host.failures, strict=True)]
    expected = _expected(host, others_up, others, more=1)
    known, bits = _Posterior(shape, count, expected), surprise(shape, count, expected)
    low = known.quantile(1 - LEMON_CHANCE) if count >= FEWEST_FAILURES else 0.0
    least, known_well = math.log2(hosts / FLEET_CHANCE), math.log2(hosts / MANY)
    return Reliability(
        since=host.since,
        up_ms=up_ms,
        failures=count,
        kinds=host.kinds,
        mtbf=interval_of_rate(count, up_ms) if up_ms else None,
        repairs=host.repairs,
        mttr=interval_of_mean(host.repairs, host.repair_ms) if host.repairs else None,
        ratio=known.mean,
        ratio_low=low,
        surprise=bits,
        lemon=low > LEMON_RATIO
        and bits >= least
        and evidence(shape, count, expected) >= least + min(0.0, known_well),
    )


def evidence(shape: float, count: int, expected: float) -> float:
    """Bits by which a count is likelier for a lemon than for a sound host."""
    lemon = _likelihood(_LEMON_SHAPE, _LEMON_MEAN, count, expected)
    return (lemon - _likelihood(shape, 1.0, count, expected)) / math.log(2)


def surprise(shape: float, count: int, expected: float) -> float:
    """Bits of the chance that a sound host fails at least ``count`` times; 0 where nothing was to be expected."""
    if count <= 0 or expected <= 0:
        return 0.0
    term = math.exp(_likelihood(shape, 1.0, count, expected))
    total, at = term, count
    share = expected / (shape + expected)
    while term > total * 1e-12 and at < count + 100_000:
        term *= share * (shape + at) / (at + 1)
        total, at = total + term, at + 1
    return max(0.0, -math.log2(min(max(total, 1e-300), 1.0)))


def _expected(host: HostTotals, up: list[int], failures: list[int], more: int = 0) -> float:
    """Failures that a host's time leads one to expect by the rates of a fleet, and ``more`` failures of that."""
    whole = sum(up)
    found = sum(own * n / time for own, n, time in zip(host.up_ms, failures, up, strict=True) if time)
    return found + (more * sum(host.up_ms) / whole if whole else 0.0)


class _Posterior:
    """Distribution of a host's ratio given its count: a mixture of two gamma distributions."""

    def __init__(self, shape: float, count: int, expected: float) -> None:
        sound = (1 - LEMONS_SHARE) * math.exp(_likelihood(shape, 1.0, count, expected))
        lemon = LEMONS_SHARE * math.exp(_likelihood(_LEMON_SHAPE, _LEMON_MEAN, count, expected))
        self._lemon = lemon / (sound + lemon) if sound + lemon else 1.0
        self._parts = (
            (shape + count, shape + expected),
            (_LEMON_SHAPE + count, _LEMON_SHAPE / _LEMON_MEAN + expected),
        )

    @property
    def mean(self) -> float:
        """The ratio to be expected."""
        sound, lemon = (shape / rate for shape, rate in self._parts)
        return (1 - self._lemon) * sound + self._lemon * lemon

    def quantile(self, chance: float) -> float:
        """The ratio below which it lies with a chance, to a thousandth."""
        low, high = 0.0, 1.0
        while self._below(high) < chance:
            low, high = high, 2 * high
        while high - low > 1e-3 * high and high > 1e-6:
            middle = (low + high) / 2
            low, high = (middle, high) if self._below(middle) < chance else (low, middle)
        return low

    def _below(self, ratio: float) -> float:
        sound, lemon = (gamma_below(shape, rate * ratio) for shape, rate in self._parts)
        return (1 - self._lemon) * sound + self._lemon * lemon


def _shape(counts: list[tuple[int, float]]) -> float:
    """The shape of sound hosts' distribution that makes the counts likeliest; ``counts`` are (n, expected)."""
    known = [(count, expected) for count, expected in counts if expected > 0]
    lemons = [LEMONS_SHARE * math.exp(_likelihood(_LEMON_SHAPE, _LEMON_MEAN, *each)) for each in known]

    def likelihood(shape: float) -> float:
        sound = ((1 - LEMONS_SHARE) * math.exp(_likelihood(shape, 1.0, *each)) for each in known)
        return sum(math.log(one + other + 1e-300) for one, other in zip(sound, lemons, strict=True))

    return max(_SHAPES, key=likelihood)


def _likelihood(shape: float, mean: float, count: int, expected: float) -> float:
    """Logarithm of the chance of a count where the ratio is gamma-distributed (negative binomial)."""
    if not expected:
        return 0.0
    rate = shape / mean
    found = shape * math.log(rate / (rate + expected)) + count * math.log(expected / (rate + expected))
    return found + math.lgamma(shape + count) - math.lgamma(shape) - math.lgamma(count + 1)


def interval_of_rate(count: int, time: float) -> Interval:
    """The mean time between ``count`` events of a Poisson process in a time."""
    tail = (1 - CHANCE) / 2
    low = time / gamma_quantile(1 - tail, count + 1)
    if not count:
        return Interval(math.inf, low, math.inf)
    return Interval(time / count, low, time / gamma_quantile(tail, count))


def interval_of_mean(count: int, total: float) -> Interval:
    """The mean of ``count`` exponential times that add up to ``total``."""
    tail = (1 - CHANCE) / 2
    return Interval(total / count, total / gamma_quantile(1 - tail, count), total / gamma_quantile(tail, count))


@functools.lru_cache(4_096)
def gamma_quantile(chance: float, shape: float) -> float:
    """The value below which a gamma variable of scale 1 lies with a chance, to ten digits."""
    low, high = 0.0, max(1.0, 2 * shape)
    while gamma_below(shape, high) < chance:
        low, high = high, 2 * high
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        if gamma_below(shape, middle) < chance:
            low = middle
        else:
            high = middle
        if high < 1e-300:
            break
    return high


def gamma_below(shape: float, value: float) -> float:
    """The regularised lower incomplete gamma function: by its series, or the continued fraction of its complement."""
    if value <= 0:
        return 0.0
    scale = math.exp(shape * math.log(value) - value - math.lgamma(shape))
    if value < shape + 1:
        term = total = 1 / shape
        step = shape
        while term > total * 1e-15:
            step += 1
            term *= value / step
            total += term
        return total * scale
    tiny = 1e-300
    divisor = value + 1 - shape
    fraction = found = 1 / (divisor if divisor else tiny)
    last = 1 / tiny
    for number in range(1, 10_000):
        factor = -number * (number - shape)
        divisor += 2
        fraction = 1 / (_not_zero(factor * fraction + divisor))
        last = _not_zero(divisor + factor / last)
        found *= last * fraction
        if abs(last * fraction - 1) < 1e-15:
            break
    return 1 - scale * found


def _not_zero(value: float) -> float:
    """For Lentz's method: a value that may be divided by."""
    return value if abs(value) > 1e-300 else 1e-300
