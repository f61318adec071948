"""Whatever agents report and clocks read, the ledger's sums are those of the allocations, and nothing is negative."""

from __future__ import annotations

from typing import Any

from bench.costs.goodput import story as restarts_of
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.controller.ledger.goodput_story import Story

from holdfast._session.reports import ExitReason
from holdfast.hang.pipeline.features import OutputFeatures, WorkerFeatures
from holdfast_controller.core import events as ev
from holdfast_controller.core.fold.job import fold
from holdfast_controller.core.goodput.progress import observe, recorded
from holdfast_controller.core.goodput.view import as_of_now, totals
from holdfast_controller.core.model.clock import Mono, Now
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.goodput import ProgressWatch
from holdfast_controller.core.model.recovery import EndReason

STEPS = st.none() | st.floats(0, allow_nan=False, allow_infinity=False) | st.integers(0, 60).map(float)
TIMES = st.floats(-1e9, 1e9)
OUTPUTS = st.builds(
    OutputFeatures,
    last_progress_s=st.none() | TIMES,
    step=STEPS,
    last_checkpoint_s=st.none() | TIMES,
    checkpoint_open=st.booleans(),
    step_total=STEPS,
    step_fell=st.booleans(),
    phase=st.sampled_from(["", "save", "evaluate"]),
    saved_step=STEPS,
    resumed_step=STEPS,
    bar_step=STEPS,
    step_s=st.none() | TIMES,
    first_step=STEPS,
    first_step_s=st.none() | TIMES,
    began_work=st.none() | st.booleans(),
)
VECTORS = st.lists(st.tuples(st.integers(0, 1), TIMES, OUTPUTS, st.sampled_from(["", "waits"])), max_size=12)
JUMPS = st.floats(-5000, 5000)


def lied(story: Story, generation: int, vectors: list[Any], end_s: float) -> Any:
    """The progress of a generation of which agents reported these vectors."""
    watch = ProgressWatch(generation)
    for number, (index, at_s, output, idle) in enumerate(vectors):
        vector = WorkerFeatures(f"workerpool0-{index}", "h1", at_s, (), output, idle)
        observe(watch, index, vector, Now(Mono(20.0 + number), story.wall(20.0 + number)))
    return recorded(watch, story.ms(15), story.ms(end_s))


@settings(max_examples=300, deadline=None)
@given(VECTORS, VECTORS, JUMPS, st.booleans())
def test_agents_that_lie_and_clocks_that_jump_change_no_sum(
    first: list[Any], second: list[Any], jump_s: float, succeeds: bool
) -> None:
    story = Story(snapshot_every=10)
    story.run()
    for generation, vectors, end_s in ((1, first, 60.0), (2, second, 60.0 + jump_s)):
        progress = lied(story, generation, vectors, end_s)
        if progress is not None:
            assert all(mark.start < mark.end for mark in progress.apart)
            story.of_job(end_s, ev.ProgressRecorded, generation=generation, progress=progress)
        if generation == 1:
            story.restart(end_s, EndReason.NONZERO_EXIT, end_s + jump_s)
            story.launch(61 + jump_s)
            story.start(62 + jump_s)
    story.exit(200 + jump_s, ExitReason.COMPLETED if succeeds else ExitReason.NONZERO_EXIT)
    story.end(201 + jump_s)
    # The oracle integrates the allocations by itself, and compares at each event.
    assert all(seconds >= 0 for seconds in story.sums().values())


@settings(max_examples=100, deadline=None)
@given(VECTORS, TIMES)
def test_a_look_at_a_running_job_adds_up_and_changes_nothing(vectors: list[Any], at_s: float) -> None:
    story = Story(snapshot_every=10)
    story.run()
    watch = ProgressWatch(1)
    for number, (index, taken_s, output, idle) in enumerate(vectors):
        vector = WorkerFeatures(f"workerpool0-{index}", "h1", taken_s, (), output, idle)
        observe(watch, index, vector, Now(Mono(20.0 + number), story.wall(20.0 + number)))
    job = story.oracle.cluster.jobs["a"]
    assert job.ledger is not None
    before = repr(job.ledger)
    shown = as_of_now(job, watch, story.ms(at_s), {"h1": story.ms(at_s / 2)})
    assert shown is not None
    weight = sum(tape.weight for tape in shown.live)
    assert sum(totals(shown).values()) == weight * (shown.clock - shown.since)
    assert repr(job.ledger) == before


def test_what_a_silent_host_does_is_unseen_until_it_is_heard() -> None:
    story = Story()
    story.run()
    watch = ProgressWatch(1)
    for at_s in (20.0, 40.0):
        vector = WorkerFeatures("workerpool0-0", "h1", at_s, (), OutputFeatures(at_s, at_s))
        observe(watch, 0, vector, Now(Mono(at_s), story.wall(at_s)))
    job = story.oracle.cluster.jobs["a"]

    def unseen(**silent_s: float) -> int:
        since = {host: story.ms(at_s) for host, at_s in silent_s.items()}
        shown = as_of_now(job, watch, story.ms(100), since)
        assert shown is not None
        sums = totals(shown)
        assert sum(sums.values()) == 8 * (shown.clock - shown.since)
        return sum(ms for key, ms in sums.items() if key.split("|")[1] == "unseen")

    assert unseen() == 0
    assert unseen(h1=60.0) == 4 * 40_000
    assert unseen(h1=60.0, h2=70.0) == 4 * 40_000 + 4 * 30_000
    # The other host reported a step since: it is one of all.
    assert unseen(h2=30.0) == 4 * 60_000


def test_a_job_of_8192_ranks_that_restarts_stays_one_tape_and_adds_up() -> None:
    cluster = Cluster()
    for event in restarts_of(1024, 2):
        fold(cluster, event)
    ledger = cluster.jobs["a"].ledger
    assert ledger is not None
    assert (len(ledger.live), len(ledger.gone), ledger.interruption) == (1, 0, 2)
    assert sum(totals(ledger).values()) == 8192 * (ledger.clock - ledger.since)
