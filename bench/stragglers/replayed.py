"""Replays what ``real --record`` wrote, in virtual time: ``python -m bench.stragglers replay FOLDER [RUNS]``.

A run is put together from blocks of one recorded gang's time, drawn at random: blocks of the time in which all was
well, then blocks with the fault. So it shows what the judge makes of the same real noise in another order, and no
noise that the gang didn't have. A healthy gang's recording is drawn out to hours.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from bench.stragglers.real import CASES, HEALTHY, SCALE, SCALED, file_of, read

from holdfast.hang.pipeline.rank_times import RankTimes
from holdfast_controller.core.model.slowness import SlowWatch
from holdfast_controller.core.slowness.judge import judge
from holdfast_controller.core.slowness.pace import Look

BLOCK = 6
"""Looks in a row that stay together: a minute of the job's time."""
WELL_LOOKS, FAULT_LOOKS, HEALTHY_LOOKS = 60, 42, 1_440
"""Ten minutes of the job's time in which all is well, seven with the fault, and four hours."""


@dataclass(frozen=True)
class Piece:
    """The time between two looks with a step between them."""

    elapsed_s: float
    steps: float
    apart: bool
    grown: dict[int, tuple[str, RankTimes]]


def pieces(looks: Sequence[Look]) -> list[Piece]:
    """A recording as what passed from look to look; an agent's counters that fell are left out."""
    found, before = list[Piece](), next(iter(looks), None)
    for look in looks[1:]:
        if before is None or look.step is None or before.step is None or look.step <= before.step:
            continue
        grown = {
            rank: (host, _less(times, before.times[rank][2]))
            for rank, (host, _, times) in look.times.items()
            if rank in before.times
        }
        found.append(Piece(look.at_s - before.at_s, look.step - before.step, look.apart, grown))
        before = look
    return found


def _less(now: RankTimes, before: RankTimes) -> RankTimes:
    pairs = zip(astuple(now), astuple(before), strict=True)
    return RankTimes(*(None if a is None or b is None else a - b for a, b in pairs))  # type: ignore[arg-type]


def _more(now: RankTimes, grown: RankTimes) -> RankTimes:
    pairs = zip(astuple(now), astuple(grown), strict=True)
    return RankTimes(*(None if b is None else (a or 0) + b for a, b in pairs))  # type: ignore[arg-type]


def drawn(found: Sequence[Piece], count: int, rng: random.Random) -> Iterator[Piece]:
    """That many pieces, in blocks."""
    for _ in range(count // BLOCK):
        first = rng.randrange(max(1, len(found) - BLOCK + 1))
        yield from found[first : first + BLOCK]


def judged(well: Sequence[Piece], fault: Sequence[Piece]) -> tuple[float | None, dict[frozenset[int], float]]:
    """When the job was first called slow, and who was named when: seconds of its time since the fault."""
    watch, now_s, step, slow_s = SlowWatch(), 0.0, 0.0, None
    times: dict[int, tuple[str, float, RankTimes]] = {}
    named: dict[frozenset[int], float] = {}
    began_s = sum(piece.elapsed_s for piece in well)
    for piece in (*well, *fault):
        now_s, step = now_s + piece.elapsed_s, step + piece.steps
        for rank, (host, grown) in piece.grown.items():
            times[rank] = host, now_s, _more(times[rank][2] if rank in times else RankTimes(), grown)
        found = judge(watch, Look(now_s, step, piece.apart, dict(times)), 1, SCALED).slow
        if found is not None:
            since_s = (now_s - began_s) / SCALE
            slow_s = since_s if slow_s is None else slow_s
            if found.named:
                named.setdefault(frozenset(each.rank for each in found.named), since_s)
    return slow_s, named


def table(folder: Path, runs: int) -> str:
    """All recordings of a folder."""
    lines = [
        "| recording | runs | hours | called slow | named right | within 5 min | named wrong |",
        "|---" * 7 + "|",
    ]
    for case in CASES:
        path = file_of(folder, case)
        if not path.exists():
            continue
        looks = read(path)
        # A recording begins with what the program does before it trains.
        well = pieces([look for began, look in looks if not began])[BLOCK:]
        fault = pieces([look for began, look in looks if began])
        slow = right = in_time = wrong = 0
        hours = 0.0
        for seed in range(runs):
            rng = random.Random(seed)
            if case in HEALTHY:
                first, then = [], list(drawn(fault[BLOCK:], HEALTHY_LOOKS, rng))
            else:
                first, then = list(drawn(well, WELL_LOOKS, rng)), list(drawn(fault, FAULT_LOOKS, rng))
            hours += sum(piece.elapsed_s for piece in (*first, *then)) / SCALE / 3600
            slow_s, named = judged(first, then)
            slow += slow_s is not None
            times_s = [at_s for who, at_s in named.items() if who <= case.named]
            wrong += len(times_s) < len(named)
            right += bool(times_s)
            in_time += bool(times_s) and min(times_s) <= 300
        cells = (right, in_time) if case.named else ("", "")
        lines.append(f"| {case.name} | {runs} | {hours:.1f} | {slow} | {cells[0]} | {cells[1]} | {wrong} |")
    return "\n".join(lines)
