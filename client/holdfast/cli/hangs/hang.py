"""``holdfast hang …``: the detector by itself, on records. Only making one needs a cluster."""

from __future__ import annotations

import math
import random
import textwrap
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast._base.printable import one_line
from holdfast.cli.hangs.hang_record import record
from holdfast.cli.kit.console import say, transient
from holdfast.cli.kit.durations import span
from holdfast.cli.kit.group import Commands
from holdfast.cli.kit.output import dump
from holdfast.cli.kit.parameters import duration, pattern
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.hang.records.corpus import Run
    from holdfast.hang.records.evaluate import Interval, Score, Times
    from holdfast.hang.replay import Moment

SEED = 20
"""The same stops in every evaluation, so that two of them can be compared."""


@click.group(cls=Commands)
def hang() -> None:
    """Try the hang detector on records."""


hang.add_command(record)


@hang.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "-o", "--output", type=click.Choice(("table", "json")), default="table", show_default=True, help="Format."
)
def evaluate(file: Path, output: str) -> None:
    """Score the detector on records of healthy runs.

    The log lines of a run are its only signal. FILE holds JSON lines, gzipped or not, one run a line, with gaps_ms,
    the milliseconds between its progress lines. Whatever is noticed or killed there is a false alarm. Into each run
    20 stops are injected; their times count from the stop to the notice and to the kill. A run ends at its first
    kill; gaps over 6 h are dropped.
    """
    from holdfast.hang.records import corpus
    from holdfast.hang.records.evaluate import Learned, score
    from holdfast.hang.thresholds import Tuning

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
        say(*_page(found))


@hang.command()
@click.argument(
    "file", nargs=-1, required=True, metavar="FILE...", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--timeout", type=duration, help="As hangDetection.timeout in a job file.")
@click.option("--floor", type=duration, help="As hangDetection.floor.")
@click.option("--ceiling", type=duration, help="As hangDetection.ceiling.")
@click.option("--startup-timeout", type=duration, help="As hangDetection.startupTimeout.")
@click.option("--lone-work-timeout", type=duration, help="As hangDetection.loneWorkTimeout.")
@click.option("--external-timeout", type=duration, help="As hangDetection.externalTimeout.")
@click.option("--step-pattern", type=pattern, help="As hangDetection.stepPattern.")
@click.option(
    "-o", "--output", type=click.Choice(("table", "json")), default="table", show_default=True, help="Format."
)
def replay(
    file: tuple[Path, ...],
    timeout: float | None,
    floor: float | None,
    ceiling: float | None,
    startup_timeout: float | None,
    lone_work_timeout: float | None,
    external_timeout: float | None,
    step_pattern: str | None,
    output: str,
) -> None:
    """Run the detector over recorded vectors, in virtual time.

    One FILE for each worker of one job, as `holdfast hang record` wrote it. Says what would have been noticed and
    when, and when the gang would have been relaunched. The job's settings are in the files; an option takes the
    place of one of them. Stack dumps are not recorded, so what they would say is left out.
    """
    from holdfast.hang.records import reader
    from holdfast.hang.records.recording import RecordingError
    from holdfast.hang.replay import replay as replayed
    from holdfast.hang.thresholds import HangSettings

    asked = {
        "timeout_s": timeout,
        "floor_s": floor,
        "ceiling_s": ceiling,
        "startup_timeout_s": startup_timeout,
        "lone_work_timeout_s": lone_work_timeout,
        "external_timeout_s": external_timeout,
        "step_pattern": step_pattern,
    }
    try:
        recorded = reader.settings_of(file[0]) or HangSettings()
        given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
        settings = replace(recorded, **given)
        moments = list(replayed([reader.read(each) for each in file], settings))
    except (OSError, UnicodeDecodeError) as error:
        raise RecordingError(f"The recording can't be read: {error}.") from error
    if not moments:
        raise RecordingError(f"{file[0]} holds no whole sample.")
    if output == "json":
        dump([_moment_view(each) for each in moments], "json")
        return
    from holdfast.cli.kit.table import terminal_width

    width = terminal_width()
    for each in moments:
        say(*_moment_lines(each, width))


def _moment_view(moment: Moment) -> dict[str, object]:
    return {
        "atSeconds": round(moment.at_s, 3),
        "generation": moment.generation,
        "turn": moment.turn.name,
        "rule": moment.rule,
        "sentence": moment.sentence,
        "suspects": list(moment.suspects),
    }


def _moment_lines(moment: Moment, width: int | None) -> list[str]:
    """One line such as: 12m 3s  generation 1  noticed    R3: no rank moves; suspect: workerpool0-0 rank 1."""
    head = f"{span(moment.at_s):>8}  generation {moment.generation}  {moment.turn.value:<9}  "
    suspects = f"; suspect: {' and '.join(moment.suspects)}" if moment.suspects else ""
    text = f"{moment.rule}: {moment.sentence}{suspects}" if moment.rule else moment.sentence
    room = max(20, width - len(head)) if width else 1_000_000
    lines = textwrap.wrap(one_line(text), room) or [""]
    return [(head if index == 0 else " " * len(head)) + line for index, line in enumerate(lines)]


def _counted(runs: Iterable[Run]) -> Iterator[Run]:
    """The runs as they are, with a count on a terminal's stderr meanwhile."""
    told = time.monotonic()
    count = 0
    for count, run in enumerate(runs, 1):
        if time.monotonic() - told > 0.2:
            transient(f"{count} runs")
            told = time.monotonic()
        yield run
    if count:
        transient("")


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
