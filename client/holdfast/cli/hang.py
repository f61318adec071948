"""``holdfast hang …``: the detector by itself, on records; no cluster is needed."""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.commands import Commands
from holdfast.cli.console import ERR
from holdfast.cli.output import dump
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.hang.corpus import Run
    from holdfast.hang.evaluate import Interval, Score, Times

SEED = 20
"""The same stops in every evaluation, so that two of them can be compared."""


@click.group(cls=Commands)
def hang() -> None:
    """Try the hang detector on records."""


@hang.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "-o", "--output", type=click.Choice(("table", "json")), default="table", show_default=True, help="Format."
)
def evaluate(file: Path, output: str) -> None:
    """Score the detector on healthy runs, with their log lines as its only signal.

    FILE holds JSON lines, gzipped or not, one run a line, with gaps_ms, the milliseconds between its progress
    lines. Whatever is noticed or killed there is a false alarm. Into each run 20 stops are injected; their times
    count from the stop to the notice and to the kill. A run ends at its first kill; gaps over 6 h are dropped.
    """
    from holdfast.hang import corpus
    from holdfast.hang.evaluate import Learned, score
    from holdfast.hang.tuning import Tuning

    try:
        runs = _counted(corpus.read(file))
        found = score(runs, Learned(Tuning()), random.Random(SEED).random)
    except OSError as error:
        raise HoldfastError(f"{file} can't be read: {error.strerror or error}.") from error
    if not found.runs:
        raise HoldfastError(f"{file} holds no run.")
    if output == "json":
        dump(_finite(found.record()), "json")
    else:
        click.echo("\n".join(_page(found)))


def _counted(runs: Iterable[Run]) -> Iterator[Run]:
    """The runs as they are, with a count on a terminal's stderr meanwhile."""
    shown = os.isatty(ERR)
    told = time.monotonic()
    count = 0
    for count, run in enumerate(runs, 1):
        if shown and time.monotonic() - told > 0.2:
            click.echo(f"\r{count} runs", nl=False, err=True)
            told = time.monotonic()
        yield run
    if shown and count:
        click.echo("\r\x1b[K", nl=False, err=True)


def _finite(value: object) -> object:
    """JSON has no infinity: a bound that isn't known is null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and math.isinf(value) else value


def _page(found: Score) -> Iterator[str]:
    hours = f"{found.hours:,.0f} h" if found.hours >= 10 else f"{found.hours:.1f} h"
    yield f"{found.runs:,} healthy run{'' if found.runs == 1 else 's'}, {hours}, log lines only"
    yield ""
    yield f"{'':14}{'count':>6}  {'runs':>6}  {'of runs (95 %)':>20}  {'per 24 h (95 %)':>20}"
    for name, count, runs, share, rate in (
        ("false notices", found.notices, found.runs_with_notice, found.notice_share_of_runs, found.notices_per_24h),
        ("false kills", found.kills, found.runs_with_kill, found.kill_share_of_runs, found.kills_per_24h),
    ):
        yield f"{name:14}{count:>6}  {runs:>6}  {_percent(share):>20}  {_rate(rate):>20}"
    yield ""
    yield f"{'after a stop':14}{'p50':>6}  {'p90':>6}  {'p99':>6}"
    for name, times in (("noticed", found.notice_s), ("killed", found.kill_s)):
        yield f"{name:14}{_times(times)}"


def _percent(interval: Interval) -> str:
    return f"{interval.estimate:.1%} ({interval.low:.1%}-{interval.high:.1%})"


def _rate(interval: Interval) -> str:
    return f"{interval.estimate:.2f} ({interval.low:.2f}-{interval.high:.2f})"


def _times(times: Times) -> str:
    each = (times.p50, times.p90, times.p99)
    return "  ".join(f"{'-' if math.isnan(time_s) else f'{time_s:.0f} s':>6}" for time_s in each)
