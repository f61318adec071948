"""Invariants of the state between two steps, for tests: cheap enough to be checked after each one."""

from __future__ import annotations

from collections import Counter

from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hosts.host import job_of, place_key
from holdfast_controller.core.model.hosts.own_spares import is_own_spare
from holdfast_controller.core.model.job import Job, Leaving
from holdfast_controller.core.model.job_blocks import BETWEEN_WORDS
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.jobs import Jobs, words_of
from holdfast_controller.core.model.phase import PHASES, Queued


def check_sanity(cluster: Cluster) -> None:
    """Raises ``AssertionError`` where the state contradicts itself."""
    for job in cluster.jobs.whole.values():
        _check_job(job)
        waits = isinstance(job.phase, Queued) and job.vacating is not Leaving.PAUSE
        assert (job.id in cluster.queue) is waits, (
            f"{job.id} is {job.phase}, and its place in the queue says otherwise"
        )
        assert (job.id in cluster.dependents) is bool(job.unmet), f"{job.id} waits for {job.unmet}"
        _check_element(cluster, job)
        assert not (job.terminal and job.id in cluster.runtime), f"{job.id} has ended and is still observed"
        assert not (job.outcome and job.id in cluster.watches), f"{job.id} ends and is still watched for hangs"
    for host in cluster.hosts.values():
        owners = {job_of(key) for key in host.allocations}
        for uuid in {uuid for share in host.allocations.values() for uuid in share.gpus}:
            held = [key for key, share in host.allocations.items() if uuid in share.gpus]
            assert len(held) == 1, f"{uuid} of {host.name} is held by {held}"
        assert owners <= cluster.jobs.keys(), f"{host.name} holds allocations of unknown jobs"
    _check_spares(cluster)
    counted = Counter((job.project, job.state) for job in cluster.jobs.heads() if not job.deleted)
    assert +cluster.jobs.by_state == counted, f"jobs are {counted}, and were counted as {cluster.jobs.by_state}"
    _check_blocks(cluster.jobs)
    hang_or_idle = {job.id for job in cluster.jobs.whole.values() if job.hangs or job.underuse is not None}
    assert hang_or_idle <= cluster.jobs.conspicuous.keys() <= cluster.jobs.whole.keys()
    draining = {host.name for host in cluster.hosts.values() if host.draining}
    assert draining == cluster.draining, "the set of draining hosts is not theirs"


def _check_blocks(jobs: Jobs) -> None:
    blocks = jobs.blocks.oldest_first()
    assert [name for block in blocks for name in block.names] == list(jobs), (
        "blocks have other jobs, or another order"
    )
    for block in blocks:
        known, text = jobs.heads_in(block), jobs.words_in(block)
        counted = Counter(job.state for job in known if not job.deleted)
        assert +block.by_state == counted, f"jobs of a block are {counted}, and were counted as {block.by_state}"
        for job in known:
            lacks = [word for word in words_of(job).split(BETWEEN_WORDS) if f"\0{word}\0" not in text]
            assert not lacks, f"a search for {lacks} would not find {job.id}"


def _check_element(cluster: Cluster, job: Job) -> None:
    array = cluster.arrays.of(job)
    if array is None or job.gang.array is None:
        assert not job.waits_for_turn, f"{job.id} waits for its turn, and is no element of an array"
        return
    index = job.gang.array.index
    assert array.states[index] is job.state, f"{job.id} is counted as {array.states[index].name} in its array"
    assert (index in array.waiting) is job.waits_for_turn, f"{job.id} is {job.phase}, and its array says otherwise"
    assert (index in array.active) is job.has_turn, f"{job.id} is {job.phase}, and its array says otherwise"


def _check_spares(cluster: Cluster) -> None:
    """Jobs' own spares: as many as are asked for at most, on hosts without a worker, each with its share."""
    jobs = cluster.jobs.whole
    assert cluster.sparing == {job.id for job in jobs.values() if job.gang.spares and not job.terminal}
    found = {
        (key, host.name, share.gpus)
        for host in cluster.hosts.values()
        for key, share in host.allocations.items()
        if is_own_spare(cluster, key)
    }
    wanted = {
        (place_key(job.id, index), spare.host, spare.gpus)
        for job in jobs.values()
        for index, spare in enumerate(job.spares, start=len(job.gang.members))
    }
    assert found == wanted, f"spares are {wanted}, and hosts hold {found}"
    for job in (jobs[name] for name in cluster.sparing):
        assert len(job.spares) <= job.gang.spares, f"{job.id} has more spares than it asks for"
        used = {place.host for place in job.places}
        assert used.isdisjoint(spare.host for spare in job.spares), f"{job.id} has a spare beside a worker"
        holds = not job.spares or (job.outcome is None and job.state is not JobState.PAUSED)
        assert holds, f"{job.id} is {job.state.name} and holds spares"


def _check_job(job: Job) -> None:
    workers = set(range(len(job.places)))
    placement, launch = job.placement, job.launch
    assert isinstance(job.phase, PHASES[job.state]), f"{job.id} is {job.state.name} in phase {job.phase}"
    assert not job.terminal or job.outcome is job.state, f"{job.id} has another end than was decided"
    assert placement.fenced <= placement.emptied <= workers, f"{job.id}: a worker is fenced and not given up"
    assert job.reserved <= workers, f"{job.id} reserves allocations of workers that it never had"
    assert launch.deferred <= launch.relaunched.keys() <= workers, f"{job.id} defers workers that run with the gang"
    newer = all(launch.generation < generation <= job.generation for generation in launch.relaunched.values())
    assert newer, f"{job.id}: a worker was relaunched into a generation that is not newer than its gang's"
    assert launch.generation <= job.generation, f"{job.id}: the gang is ahead of its newest generation"
    if job.attempts:
        assert job.attempts[-1].places == job.places, f"{job.id} is not where its newest attempt was placed"
    if job.vacating is Leaving.RETRY:
        assert job.state is JobState.QUEUED or job.outcome, (
            f"{job.id} moves off its hosts and doesn't wait for others"
        )
