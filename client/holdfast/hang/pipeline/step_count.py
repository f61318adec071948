"""How far a worker is, of how much, as its program or its output says. Only what is shown of a job follows from it.

A total is believed while the steps rise towards it. One below the step, or beside a step that has fallen without a
word of a resumption (a count of each epoch's own), is no total of the job's.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

BARS_MOST = 32
MAX_LINE = 512
_BAR = re.compile(r"(\d{1,15})/(\d{1,15}) \[\d{1,9}:\d\d")
_BEFORE = ("", " ", "|", "\t")
"""Before the count of a bar: nothing, or one of these."""


@dataclass
class StepCount:
    """The newest step of each rank, and the total reported beside it. Mutable; made of plain values."""

    newest: dict[str, float] = field(default_factory=dict)
    # The step that the count must exceed before it is believed again.
    fell_from: float | None = None
    total: float | None = None

    def take(self, rank: int, step: float | None, total: float | None) -> None:
        """One more step of a rank; None is one that could not be read."""
        before = self.newest.pop(str(rank), None)
        if step is not None:
            self.newest[str(rank)] = step
        if before is not None and (step is None or step < before):
            self.fell_from = before if self.fell_from is None else max(before, self.fell_from)
        elif self.fell_from is not None and step is not None and step > self.fell_from:
            self.fell_from = None
        self.total = total

    def resume(self) -> None:
        """The program has said that its steps fall, and why."""
        self.newest.clear()
        self.fell_from = None

    def total_beside(self, step: float | None) -> float | None:
        """The total, where it is one for that step."""
        if self.total is None or step is None or self.fell_from is not None:
            return None
        return self.total if math.isfinite(self.total) and self.total >= max(step, 1.0) else None


@dataclass
class _Bar:
    done: float
    total: float
    starts_over: bool = False


class ProgressBars:
    """Bars as tqdm draws them, ``3/10 [00:01<00:02``: the one that began first of those that aren't full.

    An inner bar begins after the outer one, and an evaluation's after the training's. A bar that starts over, or
    whose label counts (``Epoch 3``), is one of each epoch's: its total isn't the job's.
    """

    def __init__(self) -> None:
        self._bars: dict[tuple[int, str, float], _Bar] = {}

    def take(self, rank: int, line: str) -> None:
        """One more line of a rank's output, whether it holds a bar or not."""
        line = line[:MAX_LINE]
        found = _BAR.search(line) if "/" in line and " [" in line else None
        if found is None or line[: found.start()][-1:] not in _BEFORE:
            return
        label = line[: found.start()].partition("%")[0].rstrip("0123456789.").strip(": ")
        done, total = float(found[1]), float(found[2])
        key = (rank, re.sub(r"\d+", "#", label), total)
        bar = self._bars.get(key)
        if bar is None:
            if len(self._bars) < BARS_MOST and 0 < done <= total:
                self._bars[key] = _Bar(done, total, starts_over="#" in key[1])
            return
        bar.starts_over |= done < bar.done or done > total
        bar.done = done

    def shown(self) -> tuple[float, float] | None:
        """(Steps done, total) of the bar that tells most of the job; None where none does."""
        whole = [bar for bar in self._bars.values() if not bar.starts_over]
        unfinished = [bar for bar in whole if bar.done < bar.total]
        best = unfinished[0] if unfinished else whole[-1] if whole else None
        return (best.done, best.total) if best else None
