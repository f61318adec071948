"""The figures that are recorded of each rank: name, unit, resolution, and how values of a time are put together.

Of a rank with several GPUs: the busiest one's utilisation, the hottest one's temperature, the slowest one's clock, the
throttle reasons of any, and the sum of memory, power and links.
"""

from __future__ import annotations

import enum
import functools
import math

from holdfast._base.dataclass import dataclass

LOG_STEPS = 16
"""Stored steps within a doubling, of figures that range over many orders of magnitude: 4.4 % each."""
MOST = 32_766
"""The largest number that is stored: from -1, an unknown one, to it is the longest way that two bytes hold."""
_BITS = 0x7FFF


class Join(enum.Enum):
    """How values of a figure become one."""

    # Mean, least and most.
    MEAN = "mean"
    SUM = "sum"
    # Bits that were set at any time.
    ANY = "any"
    # The newest value.
    LAST = "last"


@dataclass(frozen=True, slots=True)
class Form:
    """``scale``: the stored unit, 0 for a logarithmic one."""

    name: str
    unit: str
    scale: float
    join: Join = Join.MEAN


class Figure(enum.IntEnum):
    """Numbers are part of the stored form: they are never used again."""

    # Looks at the rank that the others are made of.
    SAMPLES = 0
    GPU_UTIL = 1
    SM_UTIL = 2
    MEMORY_UTIL = 3
    MEMORY_USED = 4
    POWER = 5
    TEMPERATURE = 6
    SM_CLOCK = 7
    # Bits of NVML's clocks event reasons.
    THROTTLE = 8
    NVLINK = 9
    PCIE = 10
    # Of the rank's process and all below it.
    CPU = 11
    STEP = 12

    @property
    def form(self) -> Form:
        """Name, unit and stored form."""
        return _FORMS[self]


_FORMS = {
    Figure.SAMPLES: Form("samples", "", 1, Join.SUM),
    Figure.GPU_UTIL: Form("gpu_util", "%", 1),
    Figure.SM_UTIL: Form("sm_util", "%", 1),
    Figure.MEMORY_UTIL: Form("memory_util", "%", 1),
    Figure.MEMORY_USED: Form("memory_used", "bytes", 128 << 20),
    Figure.POWER: Form("power", "W", 2),
    Figure.TEMPERATURE: Form("temperature", "C", 1),
    Figure.SM_CLOCK: Form("sm_clock", "MHz", 15),
    Figure.THROTTLE: Form("throttle", "bits", 1, Join.ANY),
    Figure.NVLINK: Form("nvlink", "bytes/s", 0),
    Figure.PCIE: Form("pcie", "bytes/s", 0),
    Figure.CPU: Form("cpu", "cores", 0.05),
    Figure.STEP: Form("step", "", 1, Join.LAST),
}
BY_NAME = {form.name: figure for figure, form in _FORMS.items()}
ASKED_FOR = tuple(figure for figure in Figure if figure is not Figure.SAMPLES)
"""In the order in which they are shown."""
_REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
}
"""Those of NVML's reasons that slow work down against its will; idle and chosen clocks are none."""


def throttle_words(bits: int) -> str:
    """Words for what held the clocks down, such as ``power cap, hardware thermal``; empty where nothing did."""
    return ", ".join(word for bit, word in _REASONS.items() if bits & bit)


def stored(figure: Figure, value: float) -> int:
    """The number that stands for a value; -1 for an unknown or impossible one."""
    if not (math.isfinite(value) and value >= 0):
        return -1
    form = figure.form
    if figure is Figure.STEP:
        return min(int(value), (1 << 53) - 1)
    if form.join is Join.ANY:
        return min(MOST, int(min(value, 1 << 53)) & _BITS)
    return min(MOST, round(value / form.scale) if form.scale else round(LOG_STEPS * math.log2(1 + value)))


def values_of(figure: Figure, numbers: list[int]) -> list[float]:
    """The values that stored numbers stand for; NaN for a negative one."""
    scale = figure.form.scale
    if scale:
        if min(numbers, default=0) >= 0:
            return [number * scale for number in numbers]
        return [number * scale if number >= 0 else math.nan for number in numbers]
    return [_power(number) for number in numbers]


@functools.lru_cache(2_048)
def _power(number: int) -> float:
    """The value of a logarithmic number; the largest that there is where it is beyond that."""
    if number < 0:
        return math.nan
    return math.pow(2, min(number / LOG_STEPS, 1_023)) - 1
