"""``holdfast job series``: what the ranks of a job did over time, as small charts, JSON or CSV."""

from __future__ import annotations

import csv
import datetime
import io
import math
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from holdfast._base.printable import one_line
from holdfast._base.proto_values import seconds
from holdfast._series.figures import BY_NAME, Figure, Join, throttle_words
from holdfast.cli.kit.calls import with_client
from holdfast.cli.kit.console import say, say_text
from holdfast.cli.kit.durations import local, span
from holdfast.cli.kit.job_names import on_job
from holdfast.cli.kit.output import dump
from holdfast.cli.kit.parameters import Count, job_argument, moment

if TYPE_CHECKING:
    from holdfast.client import Client
    from holdfast.v1 import job_pb2

CHART = 48
"""Columns of a chart."""
_BARS = "▁▂▃▄▅▆▇█"
_SCALES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@click.command()
@job_argument()
@click.option("--rank", "ranks", type=Count(0), multiple=True, help="Only this rank; may be repeated.")
@click.option("--figure", "figures", multiple=True, metavar="NAME", help="Such as gpu_util; may be repeated.")
@click.option("--since", type=moment, metavar="SPAN|TIME", help="From then on: 2h, or 2026-11-01T08:00.")
@click.option("--until", type=moment, metavar="SPAN|TIME", help="Up to then.")
@click.option("--recording", default="", metavar="NAME", help="What went before a hang or a failing exit, at 2 s.")
@click.option("--points", type=Count(1, 2000), default=CHART, show_default=True, help="Of each series, at most.")
@click.option("-o", "--output", type=click.Choice(("table", "json", "csv")), default="table", show_default=True)
def series(
    word: str,
    ranks: tuple[int, ...],
    figures: tuple[str, ...],
    since: Any,
    until: Any,
    recording: str,
    points: int,
    output: str,
) -> None:
    """Show what the ranks of a job did over time.

    Means of a minute or longer of GPUs, links, CPU and steps; a blank is a time of which nothing is known. Of each
    failing exit and each hang there is a recording of the quarter of an hour before it.
    """

    async def work(client: Client) -> tuple[str, list[job_pb2.GetSeriesResponse]]:
        async def read(job_id: str) -> list[job_pb2.GetSeriesResponse]:
            answers = client.series(
                job_id,
                ranks=ranks,
                figures=figures,
                since=_time(since),
                until=_time(until),
                points=points,
                recording=recording,
            )
            return [answer async for answer in answers]

        return await on_job(client, word, read)

    job_id, pages = with_client(work)
    if output == "json":
        from holdfast._sdk import json_view

        dump([json_view.series(page) for page in pages], "json")
    elif output == "csv":
        say_text(_csv(pages))
        say(*(one_line(page.problem) for page in pages[-1:] if page.problem), err=True)
    else:
        say(*page_lines(job_id, pages))


def _time(given: float | datetime.datetime | None) -> float | None:
    if given is None:
        return None
    return given.timestamp() if isinstance(given, datetime.datetime) else time.time() - given


def _csv(pages: Iterable[job_pb2.GetSeriesResponse]) -> str:
    held = io.StringIO()
    writer = csv.writer(held, lineterminator="\n")
    writer.writerow(("time", "figure", "unit", "rank", "quantile", "mean", "least", "most"))
    for page in pages:
        begins, step = seconds(page.since), seconds(page.step)
        for one in page.series:
            name = one_line(one.figure), one_line(one.unit)
            rank = one.rank if one.HasField("rank") else ""
            quantile = round(one.quantile, 3) if one.HasField("quantile") else ""
            for at, mean in enumerate(one.mean):
                if math.isnan(mean):
                    continue
                extremes = [values[at] if at < len(values) else mean for values in (one.least, one.most)]
                writer.writerow((begins + at * step, *name, rank, quantile, mean, *extremes))
    return held.getvalue().rstrip("\n")


def page_lines(job_id: str, pages: Sequence[job_pb2.GetSeriesResponse]) -> Iterator[str]:
    """Yield the lines of a job's charts: a row a figure, on average over the ranks that are shown."""
    values: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    ranks: set[int] = set()
    for page in pages:
        begins, step = seconds(page.since), seconds(page.step)
        many = {one.figure for one in page.series if one.HasField("quantile")}
        for one in page.series:
            if one.HasField("rank"):
                ranks.add(one.rank)
            if one.figure in many and round(one.quantile, 3) != 0.5:
                continue  # its median is shown
            for at, mean in enumerate(one.mean):
                if math.isfinite(mean):
                    values[one.figure][begins + at * step].append(mean)
    times = [at for found in values.values() for at in found]
    if times:
        since, until = min(times), max(times) + max(seconds(page.step) for page in pages)
        who = "1 rank" if len(ranks) == 1 else f"{len(ranks)} ranks"
        yield f"{one_line(job_id)}  {local(since)} to {local(until)} ({span(until - since)}), {who}"
        yield f"  {'FIGURE':<13} {'LEAST':>8} {'MEAN':>8} {'MOST':>8} {'UNIT':<8}"
        for name, found in values.items():
            yield _row(name, found, since, until)
    else:
        yield f"{one_line(job_id)}: nothing is known of this time."
    for page in pages[-1:]:
        if page.problem:
            yield f"  {one_line(page.problem)}"
        if page.recordings:
            yield "Recordings (--recording NAME):"
        for kept in page.recordings:
            why = f"exit of rank {kept.rank}" if kept.HasField("rank") else "hang"
            yield f"  {one_line(kept.name):<28} until {local(seconds(kept.until))}  {why}"


def _row(name: str, found: dict[float, list[float]], since: float, until: float) -> str:
    figure = BY_NAME.get(name)
    columns: list[list[float]] = [[] for _ in range(CHART)]
    for at, means in found.items():
        columns[min(CHART - 1, int((at - since) / max(until - since, 1e-9) * CHART))] += means
    every = [value for means in found.values() for value in means]
    if figure is Figure.THROTTLE:
        bits = 0
        for value in every:
            bits |= int(value)
        slowed = ["!" if any(throttle_words(int(value)) for value in column) else "·" for column in columns]
        chart = "".join(mark if column else " " for mark, column in zip(slowed, columns, strict=True))
        return f"  {one_line(name):<13} {'':>8} {'':>8} {'':>8} {'':<8} {chart}  {throttle_words(bits)}".rstrip()
    means = [sum(column) / len(column) if column else math.nan for column in columns]
    unit = one_line(figure.form.unit) if figure is not None else ""
    mean = "" if figure is not None and figure.form.join is Join.LAST else _short(sum(every) / len(every))
    words = f"{_short(min(every)):>8} {mean:>8} {_short(max(every)):>8} {unit:<8}"
    return f"  {one_line(name):<13} {words} {spark(means, 100.0 if unit == '%' else None)}".rstrip()


def spark(means: Sequence[float], top: float | None = None) -> str:
    """A line of bars from 0, or from the least value where all are close to the most; blanks for NaN."""
    known = [value for value in means if math.isfinite(value)]
    if not known:
        return ""
    high = max(known) if top is None else max(top, *known)
    low = 0.0 if top is not None or min(known) < 0.7 * high else min(known)
    scale = (high - low) or 1.0
    return "".join(
        _BARS[min(7, max(0, int((value - low) / scale * 7.999)))] if math.isfinite(value) else " "
        for value in means
    )


def _short(value: float) -> str:
    """Three digits or so, such as ``71.2G``."""
    for size, prefix in _SCALES:
        if value >= size and (size > 1e3 or value >= 1e5):
            return f"{_three(value / size)}{prefix}"
    return _three(value)


def _three(value: float) -> str:
    return f"{value:.0f}" if value >= 99.95 or value == int(value) else f"{value:.3g}"
