"""What must hold of a story: of what users heard, of what ran, and of what the controllers say in the end."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.v1 import job_pb2


@dataclass(frozen=True)
class Fault:
    """One fault of a story: its kind, and when it began, by the clock that all processes share."""

    kind: str
    at: float
    mended: float


def history(directory: Path) -> list[dict[str, Any]]:
    """Every line that the users have written."""
    return [json.loads(line) for line in (directory / "history.jsonl").read_text().splitlines()]


def problems(directory: Path, lease_s: float) -> list[str]:
    """Everything that must not be, in sentences; empty where all is well."""
    lines = history(directory)
    return [
        *_submissions(directory, lines),
        *_reads(lines),
        *_streams(directory, lines),
        *_gangs(directory, lines, lease_s),
        *_refusals(lines),
    ]


def first_commits(directory: Path, faults: list[Fault]) -> dict[str, list[float]]:
    """By kind: how long after the beginning of a fault the first submission that began after it was acknowledged."""
    acknowledged = sorted((each["ended"], each["begun"]) for each in history(directory) if _done(each, "submit"))
    found = defaultdict(list)
    for fault in faults:
        later = [ended - fault.at for ended, begun in acknowledged if begun >= fault.at]
        found[fault.kind].append(later[0] if later else float("inf"))
    return found


def outcome(directory: Path, faults: list[Fault], seed: int, found: list[str]) -> dict[str, Any]:
    """A story in figures, for a file that keeps them."""
    lines = history(directory)
    return {
        "seed": seed,
        "first_commits_s": first_commits(directory, faults),
        "jobs": sum(_done(line, "submit") for line in lines),
        "exits": sum(len(line["exits"]) for line in lines if line["what"] == "end"),
        "reads": sum(_done(line, "get") + _done(line, "list") for line in lines),
        "events": sum(line["what"] == "event" for line in lines),
        "uploads": sum(_done(line, "upload") for line in lines),
        "launches": len([*(directory / "alive").iterdir()]),
        "problems": found,
    }


def _done(line: dict[str, Any], what: str) -> bool:
    return bool(line["what"] == what and line["ok"])


def _submissions(directory: Path, lines: list[dict[str, Any]]) -> list[str]:
    """Each job that was acknowledged ran once, and ended as it did; of the others none ran twice."""
    ends = {line["name"]: line for line in lines if line["what"] == "end"}
    listed = next(line["jobs"] for line in lines if line["what"] == "all")
    ids = defaultdict(set)
    for name, job in listed:
        ids[name].add(job)
    found = [f"{name} was made {len(made)} times" for name, made in ids.items() if len(made) > 1]
    for line in lines:
        if line["what"] != "submit" or line["name"] in ("keep", "replace", "counts"):
            continue
        name, ran = line["name"], directory / "ran" / line["name"]
        times = len(ran.read_text().splitlines()) if ran.exists() else 0
        if not line["ok"]:
            if times > 1:
                found.append(f"{name}, which was not acknowledged, ran {times} times")
            continue
        if ids[name] != {line["job"]}:
            found.append(f"{name} was acknowledged as {line['job']} and is listed as {sorted(ids[name])}")
        if times != 1:
            found.append(f"{name} ran {times} times")
        wanted = job_pb2.JOB_STATE_FAILED if line["status"] else job_pb2.JOB_STATE_SUCCEEDED
        end = ends.get(name)
        exits = [exit_[1:] for exit_ in end["exits"]] if end is not None else []
        if end is None or end["state"] != wanted or exits != [[0, line["status"]]]:
            found.append(f"{name} exited with {line['status']} and is told of as {end}")
    return found


def _reads(lines: list[dict[str, Any]]) -> list[str]:
    """What was acknowledged is there at every later read, and what has ended stays so."""
    found: list[str] = []
    ended: dict[str, tuple[float, int]] = {}
    for line in sorted((each for each in lines if _done(each, "get")), key=lambda each: each["ended"]):
        before = ended.get(line["name"])
        if before is not None and before[0] <= line["begun"] and before[1] != line["state"]:
            found.append(f"{line['name']} had ended as {before[1]} and was then {line['state']}")
        if line["state"] in (job_pb2.JOB_STATE_SUCCEEDED, job_pb2.JOB_STATE_FAILED):
            ended.setdefault(line["name"], (line["ended"], line["state"]))
    found += [f"jobs were missing in a list: {each['missing']}" for each in lines if each.get("missing")]
    missing = (each for each in lines if each["what"] == "get" and not each["ok"] and not each["away"])
    return [*found, *(f"{each['name']} was not found: {each['error']}" for each in missing)]


def _refusals(lines: list[dict[str, Any]]) -> list[str]:
    """A controller that can't answer is away; it never says that what was asked is wrong."""
    wrong = (each for each in lines if each["what"] in ("submit", "list", "upload") and not each["ok"])
    return [f"{each['what']} was refused: {each['error']}" for each in wrong if not each["away"]]


def _streams(directory: Path, lines: list[dict[str, Any]]) -> list[str]:
    """No event and no byte of output is missed or told twice."""
    found, cursors = [], defaultdict(list)
    for line in lines:
        if line["what"] == "event":
            cursors[line["name"]].append(line["cursor"])
        if line["what"] == "problem":
            found.append(f"the output of {line['name']} has a problem: {line['said']}")
    found += [f"events of {name}: {seen}" for name, seen in cursors.items() if seen != sorted(set(seen))]
    text = (directory / "counts.followed").read_text().split("\n")
    numbers = len(text) - 2
    if text != [*map(str, range(numbers)), f"end {numbers}", ""]:
        wrong = next((n for n, each in enumerate(text) if each != str(n)), None)
        found.append(f"the followed output is wrong from line {wrong}: {text[wrong or 0 :][:4]}, {numbers} lines")
    return found


def _gangs(directory: Path, lines: list[dict[str, Any]], lease_s: float) -> list[str]:
    """No rank is touched, and never do two generations of one live at a time.

    The gang that is stopped once its hosts hear nothing for the length of their lease may be replaced where no
    controller can have led for that long.
    """
    names = {line["job"]: line["name"] for line in lines if line["what"] == "submit" and line["ok"]}
    lives: dict[tuple[str, str], list[tuple[float, float, int]]] = defaultdict(list)
    for path in (directory / "alive").iterdir():
        job, rank, generation, _ = path.name.split("@")
        beats = [line.split() for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        if beats:
            lives[names.get(job, job), rank].append((float(beats[0][0]), float(beats[-1][0]), int(generation)))
    found = []
    acknowledged = sorted(line["ended"] for line in lines if _done(line, "submit"))
    silences = [(a, b) for a, b in itertools.pairwise(acknowledged) if b - a > lease_s / 2]
    for (name, rank), tenants in lives.items():
        tenants.sort()
        for one, other in itertools.pairwise(tenants):
            if one[1] >= other[0]:
                found.append(f"two generations of {name}, rank {rank}, lived at once: {one} and {other}")
            silent = any(begun <= one[1] <= ended + lease_s for begun, ended in silences)
            if name == "keep" or not silent:
                found.append(f"{name}, rank {rank}, was relaunched: {one}, then {other}")
    if {name for name, _ in lives} != {"keep", "replace"}:
        found.append(f"gangs that ran: {sorted(lives)}")
    return found
