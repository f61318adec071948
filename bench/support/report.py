"""What every benchmark prints: tables of medians with their spread, on which machine, by which command."""

from __future__ import annotations

import os
import platform
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def spread(values: Sequence[float]) -> str:
    """``min–max`` of a few values, ``p10–p90`` of twenty or more."""
    if len(values) < 20:
        return f"{number(min(values))}–{number(max(values))} (min–max)"
    tenths = statistics.quantiles(values, n=10, method="inclusive")
    return f"{number(tenths[0])}–{number(tenths[-1])} (p10–p90)"


def number(value: float) -> str:
    """Three digits that count, and no more."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 1 else f"{value:.1f}"


@dataclass
class Table:
    """Rows of measured values. Print it as Markdown, so that it can be kept."""

    title: str
    unit: str
    rows: list[tuple[str, str, str, str]] = field(default_factory=list)

    def add(self, what: str, values: Sequence[float], remark: str = "") -> None:
        """A row of repeated measurements, or of none that came back."""
        if not values:
            self.rows.append((what, "none", "", remark))
            return
        runs = f"{len(values)} run{'s' if len(values) > 1 else ''}"
        extent = f"{spread(values)}, " if len(values) > 1 else ""
        self.rows.append((what, number(statistics.median(values)), f"{extent}{runs}", remark))

    def print(self) -> None:
        """To standard output."""
        print(f"\n### {self.title}\n")
        heads = ("", f"median, {self.unit}", "spread", "remark")
        widths = [max(len(row[i]) for row in (heads, *self.rows)) for i in range(4)]
        for row in (heads, tuple("-" * width for width in widths), *self.rows):
            print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |")
        sys.stdout.flush()


def progress(text: str) -> None:
    """What is going on, on standard error."""
    print(f"  … {text}", file=sys.stderr, flush=True)


@contextmanager
def framed() -> Iterator[None]:
    """Print the command and the machine first, and last what else the machine had to do meanwhile."""
    module = ".".join(Path(sys.argv[0]).resolve().relative_to(ROOT).with_suffix("").parts)
    print(f"    python -m {module} {' '.join(sys.argv[1:])}".rstrip())
    print(f"    {machine()}")
    before = _busy()
    yield
    others = _others(before, _busy())
    print(f"\n    load average {', '.join(f'{load:.1f}' for load in os.getloadavg())} at the end; {others}\n")


def machine() -> str:
    """One line about where this runs."""
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return (
        f"{os.cpu_count()} cores of {model}, {memory_gib:.0f} GiB, Linux {platform.release()}, "
        f"Python {platform.python_version()}"
    )


def _busy() -> tuple[float, float, float]:
    """Seconds of CPU that the machine has spent, that we and our waited-for children have, and that were stolen."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    ticks = os.sysconf("SC_CLK_TCK")
    spent = sum(int(value) for i, value in enumerate(fields[:8]) if i not in (3, 4)) / ticks
    times = os.times()
    return spent, sum(times[:4]), int(fields[7]) / ticks


def _others(before: tuple[float, float, float], after: tuple[float, float, float]) -> str:
    spent, ours, stolen = (b - a for a, b in zip(before, after, strict=True))
    return (
        f"the machine spent {spent:.0f} s of CPU meanwhile ({ours:.0f} s this script's own, {stolen:.1f} s stolen)"
    )
