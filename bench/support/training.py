"""A rank's figures as those of a training vary: made up, each with noise of its own."""

from __future__ import annotations

import random
from dataclasses import dataclass

from holdfast.hang.pipeline.samples import GpuSample

GIB = 1 << 30
GPU_LOOKS = (0, 4, 10)
"""GPUs are read every five seconds: at these seconds of ten, as looks of two seconds fall."""


@dataclass
class RankCounters:
    """Counters of one rank's process and of its GPU."""

    dice: random.Random
    number: int
    cpu_s: float = 0.0
    _energy_j: float = 0.0
    _pcie: float = 0.0
    _nvlink: float = 0.0

    def go_on(self, for_s: float, *, saves: bool) -> None:
        """Work for a while; a rank that saves lets its GPU rest."""
        self._energy_j += for_s * self.dice.gauss(180 if saves else 640, 25)
        self._pcie += for_s * self.dice.lognormvariate(21, 0.5)
        self._nvlink += for_s * self.dice.lognormvariate(25, 0.3)
        self.cpu_s += for_s * self.dice.uniform(0.9, 1.4)

    def gpu(self, at_s: float, *, saves: bool) -> GpuSample:
        """What a look at the GPU finds now."""
        dice = self.dice
        return GpuSample(
            at_s,
            self._energy_j,
            util_pct=max(0.0, min(100.0, dice.gauss(20 if saves else 96, 3))),
            memory_util_pct=max(0.0, min(100.0, dice.gauss(55, 6))),
            sm_pct=max(0.0, min(100.0, dice.gauss(70, 5))),
            memory_used_bytes=round(dice.gauss(71 * GIB, GIB / 4)),
            temperature_c=round(dice.gauss(64 + self.number, 1.5)),
            sm_clock_mhz=round(dice.gauss(1710, 40)),
            throttle=4 if dice.random() < 0.1 else 0,
            pcie_bytes=self._pcie,
            nvlink_bytes=self._nvlink,
        )
