"""The table of the scale benchmark: each row with p50 and p99, its cost, its aim, and whether hosts were hollow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.support.report import number


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest of ``values`` that at least ``share`` of them don't exceed."""
    return sorted(values)[max(math.ceil(share * len(values)) - 1, 0)]


@dataclass
class Figures:
    """Rows, as they come in. ``aim`` is a bound on the p99 (or the only figure); ``at_least`` turns it round."""

    rows: list[tuple[str, ...]] = field(default_factory=list)

    def add(
        self,
        what: str,
        unit: str,
        values: Sequence[float],
        *,
        cost: str = "",
        aim: float | None = None,
        at_least: bool = False,
        hollow: bool = True,
    ) -> None:
        """A row of repeated measurements."""
        middle, worst = quantile(values, 0.5), quantile(values, 0.01 if at_least else 0.99)
        met = "" if aim is None else "met" if (worst >= aim if at_least else worst <= aim) else "MISSED"
        limit = "" if aim is None else number(aim) if unit else f"{aim:.2f}"
        bound = "" if aim is None else f"{'≥' if at_least else '≤'} {limit}: {met}"
        single = len(values) == 1
        self.rows.append(
            (
                what,
                "hollow" if hollow else "",
                unit,
                # An exponent has no unit, and its second decimal counts.
                number(middle) if unit else f"{middle:.2f}",
                "" if single else number(worst),
                str(len(values)),
                bound,
                cost,
            )
        )

    def print(self) -> None:
        """As Markdown, to standard output."""
        heads = ("", "hosts", "unit", "p50", "p99", "runs", "aim", "beside it")
        widths = [max(len(row[i]) for row in (heads, *self.rows)) for i in range(len(heads))]
        for row in (heads, tuple("-" * width for width in widths), *self.rows):
            cells = " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            print(f"| {cells} |", flush=True)
