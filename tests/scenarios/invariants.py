"""Invariants of a job's events, whatever happens, and the part of a cluster that the log must give back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast._base.job_file.choices import HangAction
from holdfast_controller.core import events as ev
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hang import HangOutcome
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.recovery import EndReason


def check_history(
    job: Job, history: list[ev.Event], ready: set[tuple[str, str, int]], *, restored: bool = False
) -> None:
    exits = [(e.exit.generation, e.exit.rank) for e in history if isinstance(e, ev.RankExited)]
    assert len(exits) == len(set(exits)), "two terminal records for one rank"
    generations = [e.generation for e in history if isinstance(e, ev.JobPlaced | ev.RestartDecided)]
    assert generations == sorted(set(generations)), "a generation twice"
    assert restored or generations == list(range(1, len(generations) + 1)), "generations don't increase by one"
    launches = [e.generation for e in history if isinstance(e, ev.GangLaunched)]
    assert sorted(set(launches)) == launches, "a generation launched twice"
    for generation in launches:
        for member in job.gang.members:
            assert (job.id, member.name, generation) in ready, "launched before its place was ready"
    assert sum(isinstance(e, ev.JobEnding) for e in history) <= 1, "the outcome changed"
    ended = [e for e in history if isinstance(e, ev.JobEnded)]
    assert len(ended) <= 1
    _check_hangs(job, history)
    if ended:
        assert ended[0].state is job.outcome
        owed = {(g, rank) for g in launches for rank in range(job.gang.rank_count)}
        assert owed <= set(exits), f"ranks without a record: {sorted(owed - set(exits))}"


def _check_hangs(job: Job, history: list[ev.Event]) -> None:
    told = [e for e in history if isinstance(e, ev.HangNoticed)]
    assert [hang.number for hang in job.hangs] == list(range(1, len(told) + 1))
    assert sum(hang.open for hang in job.hangs if hang.generation == job.generation) <= 1, "two hangs at once"
    restarted = [e for e in history if isinstance(e, ev.HangJudged) and e.outcome is HangOutcome.RESTARTED]
    launches = [e for e in history if isinstance(e, ev.RestartDecided | ev.AttemptEnded)]
    # A library that gives up waiting ends its process: that is a hang that nobody has judged.
    generations = [e for e in launches if e.end_reason is EndReason.HANG and e.detect_s is not None]
    assert len(restarted) == len(generations), "a restart upon a hang without its verdict, or the other way round"
    assert job.budgets.hang_restarts <= job.gang.max_hang_restarts
    if job.gang.hang.action is not HangAction.RESTART:
        assert not restarted, "a job was killed that asks to be notified only"


def durable(cluster: Cluster, jobs: Mapping[str, Job] | None = None) -> tuple[Any, ...]:
    """What the log must give back; with ``jobs`` where they are known whole."""
    jobs_and_hosts = cluster.sequence, cluster.jobs if jobs is None else jobs, cluster.hosts, cluster.draining
    deleted = cluster.output_on, cluster.purged
    return (
        *jobs_and_hosts,
        cluster.people,
        cluster.queue,
        cluster.dependents,
        cluster.requests,
        cluster.holdings,
        cluster.shares,
        cluster.reservations,
        *deleted,
    )
