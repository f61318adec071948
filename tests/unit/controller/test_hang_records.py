"""What is kept of a hang, what users see of it, and what it changes in the orders to the hosts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.controller.examples import EVENTS, HOST_EVENTS
from tests.unit.controller.job_examples import GANG, JOB_EVENTS

from holdfast._session.reports import Exit, ExitReason
from holdfast.hang.judge.finding import Rule
from holdfast.hang.pipeline.features import Motion, OutputFeatures, RankFeatures, WorkerFeatures
from holdfast.hang.pipeline.nccl_ras import Mismatch
from holdfast_controller.core import events as ev
from holdfast_controller.core.fold.job import fold
from holdfast_controller.core.hangs.evidence import counts_of
from holdfast_controller.core.hangs.features import of_member, vectors_of
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hang import Hang, HangOutcome, Standstill
from holdfast_controller.core.model.hosts.host import Place
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.placement import Placement
from holdfast_controller.core.model.recovery import EndReason, RankName, of_rank
from holdfast_controller.core.model.runtime import Runtime
from holdfast_controller.core.step.assignment import desired
from holdfast_controller.shell.convert.job_to_proto import hang_to_proto, health_of


def folded(until: type[ev.Event] | None = None, count: int = 1) -> Cluster:
    """The examples' history up to the ``count``-th event of a type, or all of it."""
    cluster, seen = Cluster(), 0
    for event in EVENTS:
        fold(cluster, event)
        seen += until is not None and isinstance(event, until)
        if until is not None and seen == count:
            break
    return cluster


def test_that_it_would_have_been_restarted_stays_on_record_when_it_moves_again() -> None:
    first, second, third = folded().jobs["a"].hangs
    assert (first.outcome, first.note, first.judged_at, first.over_at, first.open) == (
        HangOutcome.WOULD_RESTART,
        "last progress 0 s ago",
        8.78,
        8.8,
        False,
    )
    assert (second.number, second.outcome, second.open) == (2, HangOutcome.RESTARTED, False)
    assert (third.number, third.generation, third.outcome) == (3, 3, HangOutcome.BUDGET_SPENT)


def test_suspects_that_the_dumps_name_replace_those_of_the_notice_and_none_replaces_nothing() -> None:
    first, second, _ = folded().jobs["a"].hangs
    assert (first.suspects, first.hosts) == ((RankName("workerpool1-0", 2),), ("h1",))
    assert (second.suspects, second.stacks) == ((RankName("workerpool1-0", 2),), "")


def test_hang_that_moves_again_before_it_was_judged_is_over() -> None:
    cluster = Cluster()
    over = ev.HangOver(job_id="a", at=Wall(9.0), note="it prints")
    noticed = ev.HangNoticed(
        job_id="a",
        at=Wall(8.0),
        generation=1,
        since=Wall(7.0),
        rule=Rule.GPUS_IDLE,
        sentence="still",
        suspects=(),
        hosts=(),
    )
    for event in (*HOST_EVENTS, *JOB_EVENTS[:5], noticed, over):
        fold(cluster, event)
    hang = cluster.jobs["a"].hangs[0]
    assert (hang.outcome, hang.note, hang.judged_at) == (HangOutcome.OVER, "it prints", 9.0)


@pytest.mark.parametrize(
    ("end", "note"),
    [
        (ev.JobEnding(job_id="a", at=Wall(9.0), outcome=JobState.CANCELLED), "the job was cancelled"),
        (ev.JobEnding(job_id="a", at=Wall(9.0), outcome=JobState.FAILED), "the job failed"),
        (ev.JobEnding(job_id="a", at=Wall(9.0), outcome=JobState.SUCCEEDED), "the job ended"),
        (
            ev.RestartDecided(
                job_id="a",
                at=Wall(9.0),
                generation=2,
                end_reason=EndReason.SIGNALED,
                related=of_rank("workerpool0-0", 0),
                stop_reason=ExitReason.STOPPED,
                failed_at=Wall(8.9),
                charged=0,
            ),
            "the gang was relaunched before: workerpool0-0 rank 0 (SIGNALED)",
        ),
    ],
)
@pytest.mark.parametrize("judged", [None, HangOutcome.SUPPRESSED, HangOutcome.WOULD_RESTART])
def test_hang_that_is_open_when_its_job_or_generation_ends_is_closed(
    end: ev.Event, note: str, judged: HangOutcome | None
) -> None:
    cluster = Cluster()
    told = [
        ev.HangNoticed(
            job_id="a",
            at=Wall(8.0),
            generation=1,
            since=Wall(7.0),
            rule=Rule.GPUS_IDLE,
            sentence="still",
            suspects=(),
            hosts=(),
        )
    ]
    more = [ev.HangJudged(job_id="a", at=Wall(8.5), outcome=judged, note="why not")] if judged else []
    for event in (*HOST_EVENTS, *JOB_EVENTS[:5], *told, *more, end):
        fold(cluster, event)
    hang = cluster.jobs["a"].hangs[0]
    assert not hang.open
    shown = hang_to_proto(hang)
    expected = (judged.value, "why not", 8.5) if judged else ("ENDED", note, 9.0)
    assert (shown.outcome, shown.note, hang.judged_at) == expected


def test_picture_of_a_hang() -> None:
    hang = folded().jobs["a"].hangs[0]
    shown = hang_to_proto(hang)
    assert (shown.number, shown.generation, shown.rule, shown.sentence) == (
        1,
        2,
        "EXTERNAL_WAIT",
        "no rank of 4 has moved for 600 s; workerpool1-0 rank 2 waits for a file (/data/x)",
    ), "by what it would have been acted on, not by what it was noticed"
    assert list(shown.suspects) == ["workerpool1-0 rank 2"]
    assert (shown.since.ToJsonString(), shown.noticed_at.ToJsonString()) == (
        "1970-01-01T00:00:08.650Z",
        "1970-01-01T00:00:08.750Z",
    )
    assert (shown.stacks, shown.diagnosed_at.ToJsonString()) == (hang.stacks, "1970-01-01T00:00:08.760Z")
    assert (shown.outcome, shown.note, shown.step) == ("WOULD_RESTART", "last progress 0 s ago", 700)


def test_what_is_not_known_of_a_hang_is_absent() -> None:
    shown = hang_to_proto(Hang(1, 1, Wall(5.0), Wall(6.0), Rule.GPUS_IDLE, "still", ()))
    assert not shown.HasField("step")
    assert not shown.HasField("diagnosed_at")
    assert not shown.HasField("judged_at")
    assert (shown.outcome, shown.note, shown.stacks) == ("", "", "")


def test_health_is_shown_while_the_job_lives() -> None:
    cluster = folded(ev.GangStarted)
    job = cluster.jobs["a"]
    cluster.runtime["a"] = Runtime(health="last progress 3 s ago")
    assert health_of(cluster, job) == "last progress 3 s ago"
    assert health_of(folded(), folded().jobs["a"]) == ""
    cluster.runtime.clear()
    assert health_of(cluster, job) == ""


@pytest.mark.parametrize(("asked_s", "given_s"), [(10.0, 5.0), (2.0, 2.0)])
def test_gang_that_hangs_gets_the_hang_grace_and_never_more_than_its_own(asked_s: float, given_s: float) -> None:
    cluster = folded(ev.RestartDecided, 2)
    job = cluster.jobs["a"]
    job.gang = replace(GANG, grace_s=asked_s)
    order = desired(cluster, job, 0, 60.0)
    assert (order.stop_reason, order.grace_s) == (ExitReason.HANG_KILLED, given_s)
    assert order.launch is not None and order.launch.last_end == "HANG"


def test_other_restarts_and_ends_have_the_jobs_grace() -> None:
    for cluster in (folded(ev.RestartDecided, 1), folded(ev.JobEnding)):
        order = desired(cluster, cluster.jobs["a"], 0, 60.0)
        assert (order.stop_reason, order.grace_s) == (ExitReason.STOPPED, 10.0)


# --- Vectors ------------------------------------------------------------------------------------------------------

NOW = Now(Mono(500.0), Wall(1_000_500.0))


def a_job() -> Job:
    made = Job("a", "ann", "", "a", {}, GANG, "{}", Wall(0.0), generation=1)
    made.placement = Placement(1, (Place("h1"), Place("h1"), Place("h2")))
    return made


def vector(worker: str, *ranks: int) -> WorkerFeatures:
    still = tuple(RankFeatures(rank, Motion.BLOCKED, 400.0) for rank in ranks)
    return WorkerFeatures(worker, "h1", 499.0, still, OutputFeatures(450.0, 7.0))


def test_vector_has_exactly_its_workers_ranks() -> None:
    member = GANG.members[0]
    whole = vector("workerpool0-0", 0, 1)
    assert of_member(whole, member) is whole
    assert of_member(vector("workerpool0-0", 1, 0), member) == whole
    assert of_member(vector("workerpool0-0", 0, 1, 9), member) == whole
    partly = of_member(vector("workerpool0-0", 1), member)
    assert [(rank.rank, rank.motion) for rank in partly.ranks] == [(0, Motion.UNSEEN), (1, Motion.BLOCKED)]


def test_a_worker_of_one_process_has_the_ranks_that_its_agent_finds_below_it() -> None:
    member = GANG.members[1]
    assert list(member.ranks) == [2]
    below = vector("workerpool1-0", 8, 9)
    assert of_member(below, member) == below
    assert of_member(vector("workerpool1-0", 9, 8), member) == below
    assert [rank.motion for rank in of_member(vector("workerpool1-0"), member).ranks] == [Motion.UNSEEN]


def test_a_laggard_below_a_launcher_is_named_by_the_worker_that_tells_of_it() -> None:
    runtime = Runtime(counts=Standstill(Mismatch((), frozenset({9})), Mono(400.0)))
    runtime.features = {0: vector("workerpool0-0", 0, 1), 1: vector("workerpool1-0", 8, 9)}
    found = counts_of(runtime)
    assert found is not None and found.laggards == {("workerpool1-0", 9)}


def test_ends_of_ranks_come_from_our_records() -> None:
    job, runtime = a_job(), Runtime()
    runtime.features = {0: vector("workerpool0-0", 0, 1), 1: vector("workerpool1-0", 2)}
    job.exits = {1: {1: Exit(1, 1, 1, ExitReason.COMPLETED, 0, end_time=1_000_490.0)}}
    job.exits[1][3] = Exit(1, 1, 3, ExitReason.SIGNALED, None, 9, end_time=1_000_900.0)
    found, missing = vectors_of(job, runtime, NOW)
    assert missing == []
    assert [rank.motion for rank in found[0].ranks] == [Motion.BLOCKED, Motion.EXITED]
    assert (found[0].ranks[1].still_since_s, found[0].ranks[1].exit_code) == (490.0, 0)
    assert found[1] is runtime.features[1]
    assert found[2] == WorkerFeatures(
        "workerpool1-1", "h2", 500.0, (RankFeatures(3, Motion.EXITED, 500.0, exit_code=137),), OutputFeatures()
    )


def test_output_of_a_worker_that_has_ended_is_remembered() -> None:
    job, runtime = a_job(), Runtime()
    runtime.features = {i: vector(m.name, *m.ranks) for i, m in enumerate(GANG.members)}
    job.exits = {1: {2: Exit(1, 1, 2, ExitReason.COMPLETED, 0, end_time=1_000_490.0)}}
    found, _ = vectors_of(job, runtime, NOW)
    assert found[1].output == OutputFeatures(450.0, 7.0)
    assert found[1].at_s == 500.0


def test_workers_that_were_never_heard_of_are_named() -> None:
    runtime = Runtime()
    runtime.features = {1: vector("workerpool1-0", 2)}
    assert vectors_of(a_job(), runtime, NOW)[1] == ["workerpool0-0", "workerpool1-1"]
