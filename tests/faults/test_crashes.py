"""Daemons and shims die at their failpoints while a job runs: nothing is lost, invented, doubled or left behind."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.faults.points import NEW_CONTROLLER, POINTS, Point
from tests.faults.story import Fire, under_fire


@pytest.fixture(scope="module")
def fire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fire]:
    with under_fire(tmp_path_factory.mktemp("fire")) as cluster:
        yield cluster


QUICK: tuple[Mapping[str, str], ...] = (
    {},
    {"controller.commit.written": "exit@2"},
    {"controller.commit.after": "exit@3", "agent.epoch.synced": "exit"},
    {"controller.commit.after": "error@4"},
    {"shim.intent.after": "exit", "agent.ends.written": "exit"},
    {"shim.sync.before": "error@3", "agent.report.after": "stop@2"},
)
"""Each actor, each kind of fault, a pair of every two actors."""
QUICK_IN_PROCESS: tuple[Mapping[str, str], ...] = (
    {"agent.stop.after": "exit", "controller.exit_ack.before": "exit"},
    {"agent.launch.before": "exit@2", "shim.unwind.after": "exit"},
    {"shim.survivor.after": "exit", "agent.exit.before": "exit"},
)
"""Daemons and shims that die while ranks leave their work, wait, and are to go on."""


@pytest.mark.parametrize("armed", QUICK, ids=lambda armed: " ".join(armed) or "calm")
def test_story_ends_well_though_its_actors_die(fire: Fire, tmp_path: Path, armed: Mapping[str, str]) -> None:
    outcome = fire.tell(tmp_path, armed)
    assert outcome.problems == ()
    assert outcome.unreached == ()


@pytest.mark.parametrize("armed", QUICK_IN_PROCESS, ids=" ".join)
def test_story_of_ranks_that_go_on_in_process_ends_well(
    fire: Fire, tmp_path: Path, armed: Mapping[str, str]
) -> None:
    outcome = fire.tell(tmp_path, armed, in_process=True)
    assert outcome.problems == ()
    assert outcome.unreached == ()


def singles() -> list[dict[str, str]]:
    """Every point of the story by itself, at its first pass and at a later one."""
    return [_with_cause(point, action) for point in STORY for action in ("exit", "exit@2")]


def pairs() -> list[dict[str, str]]:
    """Each point of either actor with some point of the other, for every two actors."""
    found = []
    for one, other in itertools.combinations(("controller", "agent", "shim"), 2):
        ones, others = ([p for p in STORY if p.actor == actor] for actor in (one, other))
        count = max(len(ones), len(others))
        # The second list is walked with a stride, lest neighbours in the code always meet their like.
        for i in range(count):
            first, second = ones[i % len(ones)], others[(i * 7 + 3) % len(others)]
            found.append(_with_cause(first, "exit") | _with_cause(second, "exit"))
    return found


STORY = [point for point in POINTS if point.in_story]
WARM = [point for point in POINTS if point.name.split(".")[1] in ("release", "handover", "unwind", "survivor")]


def _with_cause(point: Point, action: str) -> dict[str, str]:
    # The cause comes in the middle of the story, whatever comes at its end.
    cause = {point.after: "exit@4" if point.after == NEW_CONTROLLER else "exit"} if point.after else {}
    return cause | {point.name: action}


@pytest.mark.crash
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("in_process", [False, True])
def test_every_point_alone_and_in_pairs(fire: Fire, tmp_path: Path, in_process: bool) -> None:
    """In process each point alone, and those that only such a job passes: which of them it does is up to chance."""
    only = os.environ.get("CRASH", "")
    every = [{point.name: "exit"} for point in WARM] + singles() if in_process else [*singles(), *pairs()]
    stories = [armed for armed in every if any(only in name for name in armed)]
    crashes, missed, failed = 0, [], []
    for number, armed in enumerate(stories, 1):
        text = " ".join(f"{name}={action}" for name, action in armed.items())
        try:
            outcome = fire.tell(tmp_path / str(number), armed, in_process=in_process)
        except AssertionError as error:
            failed.append(f"{text}: {error}")
            print(f"{number:>3}/{len(stories)} {text}: {error}", flush=True)
            continue
        crashes += len(outcome.fired)
        missed += [text for name in outcome.unreached if armed[name] == "exit"]
        failed += [f"{text}: {problem}" for problem in outcome.problems]
        said = "; ".join((*outcome.problems, *(f"never at {name}" for name in outcome.unreached))) or "ok"
        print(f"{number:>3}/{len(stories)} {text}: {said}", flush=True)
    alone = [text for text in missed if len(text.split()) == 1]
    print(f"{len(stories)} stories, {crashes} crashes, {len(failed)} broken promises, {len(missed)} points not met")
    assert failed == []
    assert in_process or alone == [], "every point is passed by the story"
