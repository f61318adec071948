"""What the page makes of a job's JSON is what the command line prints, in 50 clusters amid their misfortunes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.sim import generator
from tests.sim.cluster import controller
from tests.sim.cluster.world import World

from holdfast._sdk import json_view
from holdfast.cli.pages import exit_table, job_page, recovery_table
from holdfast.cli.pages.job_tables import steps
from holdfast.v1 import job_pb2, spec_pb2
from holdfast_controller.core.lifecycle.other_hosts import schedulable_hosts
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.exits import shown_raised
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.scheduling.wait_reasons.pending_reason import QueueView
from holdfast_controller.core.views.exits_alike import Alike, exits_alike
from holdfast_controller.shell.convert.job_to_proto import exit_group_to_proto, job_to_proto, workers_to_proto
from holdfast_controller.shell.store import codec

WEB = Path(__file__).parents[2] / "web"
SEEDS = 50
BINDINGS = (
    job_pb2.RankBinding(cpus="0-15,64-79", exclusive=True, memory_nodes="0", nics=[f"mlx5_{n}" for n in range(6)]),
    job_pb2.RankBinding(cpus="16-31", memory_nodes="1", note="2 of its cores are far"),
    job_pb2.RankBinding(nics=["mlx5_0"], note="not bound: the kernel says no NUMA node of its GPU"),
)
"""Simulated agents bind no rank."""


def world_amid(seed: int) -> tuple[Cluster, Now]:
    """A world that was left in the middle of its plan."""
    plan = generator.draw(seed)
    world = World(plan)
    for move in plan.moves:
        world.engine.after(move.at_s, world._mover(move))
    world.engine.run(plan.lasts_s * 0.7)
    while world.controller is None:
        world.engine.run(world.engine.now + 1)
    return world.controller.cluster, Now(Mono(world.engine.now), Wall(world.engine.now + 1e9))


def jobs_amid(seed: int) -> list[job_pb2.CustomJob]:
    """The jobs of such a world, as the API gives them."""
    cluster, now = world_amid(seed)
    queue = QueueView(cluster, schedulable_hosts(cluster), {})
    found = []
    for job in cluster.jobs.values():
        pools: dict[int, list[Any]] = {}
        for member in job.gang.members:
            pools.setdefault(member.pool, []).append(member)
        spec = spec_pb2.CustomJobSpec(
            worker_pool_specs=[
                spec_pb2.WorkerPoolSpec(replica_count=len(members), processes_per_worker=len(members[0].ranks))
                for _, members in sorted(pools.items())
            ],
            scheduling=spec_pb2.Scheduling(spares=job.gang.spares),
        )
        message = job_to_proto(cluster, job, spec, queue, now)
        message.workers.extend(workers_to_proto(cluster, job, job.gang.members if job.places else ()))
        if job.places:  # else the command line has no workers to print the exits of
            message.exit_groups.extend(map(exit_group_to_proto, folded(job)))
        for rank in (rank for each in message.workers for rank in each.ranks):
            rank.binding.CopyFrom(BINDINGS[rank.rank % len(BINDINGS)])
        found.append(message)
    return found


def folded(job: Job, after: int = 0) -> list[Alike]:
    """Exits of the generations after one, those that are alike as one."""
    pieces = exits_alike(job, after)
    while True:
        try:
            next(pieces)
        except StopIteration as over:
            found: list[Alike] = over.value
            return found


def printed(job: job_pb2.CustomJob) -> dict[str, Any]:
    """The command line's words and numbers."""
    exits: list[list[str]] = []
    for generation, ranks, _, reason, text in exit_table.rows(job.workers, 0.0, wide=False):
        if generation:
            exits.append([str(generation), str(ranks), str(getattr(reason, "text", reason)), str(text), ""])
        else:
            exits[-1][-1] = str(text)
    return {
        "exits": exits,
        "recoveries": recovery_table.summary(job) if job.recoveries else "",
        "answers": [recovery_table.row(each, 0.0)[-1] for each in job.recoveries],
        "phases": [recovery_table._phases_in_words(each.phases) for each in job.recoveries],
        "steps": steps(job),
        "spares": dict(job_page._facts(job, 0.0)).get("spares", ""),
        "bindings": job_page._bindings(job, wide=True).splitlines(),
        "word": job.summary.headline,
        "ranks": sum(len(worker.ranks) for worker in job.workers) or None,
    }


def test_exits_of_the_newest_generations_are_those_of_all() -> None:
    several = 0
    for seed in range(SEEDS):
        cluster, _ = world_amid(seed)
        for job in cluster.jobs.values():
            members = job.gang.members if job.places else ()
            whole = workers_to_proto(cluster, job, members)
            for after in range(job.generation + 1):
                some = workers_to_proto(cluster, job, members, after)
                for every, newest in zip(whole, some, strict=True):
                    kept = [each for each in every.exits if each.generation > after]
                    several += 0 < len(kept) < len(every.exits)
                    assert list(newest.exits) == kept
                    newest.ClearField("exits")
                    newest.exits.extend(every.exits)
                    assert newest == every
    assert several > 10, "or nothing was left out"


def test_folded_exits_are_each_exit_once() -> None:
    several = 0
    for seed in range(SEEDS):
        cluster, _ = world_amid(seed)
        for job in cluster.jobs.values():
            late = {(each.generation, each.rank): each for each in job.late_exits}
            for after in range(job.generation + 1):
                every = {
                    (generation, rank): (exit_, shown_raised(exit_))
                    for generation, ranks in job.exits.items()
                    for rank, exit_ in ranks.items()
                    if generation > after
                }
                groups = folded(job, after)
                kept = [(each.first.generation, rank) for each in groups for rank in each.ranks]
                assert sorted(kept) == sorted(every)
                several += len(kept) > len(groups)
                for each in groups:
                    ends = [job.exits[each.first.generation][rank].end_time for rank in each.ranks]
                    assert (each.first.end_time, each.last_end) == (min(ends), max(ends))
                    assert each.late == late.get((each.first.generation, each.first.rank))
                    known = [every[each.first.generation, rank] for rank in each.ranks]
                    assert {
                        (one.reason, one.exit_code, one.signal, one.message, raised) for one, raised in known
                    } == {
                        (
                            each.first.reason,
                            each.first.exit_code,
                            each.first.signal,
                            each.first.message,
                            shown_raised(each.first),
                        )
                    }
    assert several > 10, "or none were alike"


@pytest.mark.require("node")
def test_the_page_says_what_the_command_line_prints() -> None:
    jobs = [job for seed in range(SEEDS) for job in jobs_amid(seed)]
    sent = json.dumps([json_view.job(job) | json_view.exit_groups(job) for job in jobs])
    done = subprocess.run(
        ["node", "test/printed.mjs"], cwd=WEB, input=sent, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    told = [printed(job) for job in jobs]
    assert len(shown) == len(told) > SEEDS
    assert sum(len(each["exits"]) for each in told) > 50, "or nothing was compared"
    assert sum(bool(each["spares"]) for each in told) > 10
    assert sum(len(each["phases"]) for each in told) > 20
    for job, page, line in zip(jobs, shown, told, strict=True):
        assert page | {"ranks": 0} == line | {"ranks": 0}, job.id
        assert line["ranks"] in (None, page["ranks"]), job.id


def test_each_change_of_a_host_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """By that its picture is made again; what it has without a change is as it was."""
    known: dict[tuple[int, str], tuple[Cluster, int, str]] = {}

    def look(cluster: Cluster) -> None:
        for name, host in cluster.hosts.items():
            _, count, before = known.get((id(cluster), name), (cluster, -1, ""))
            found = cluster.host_changes[name], codec.dump_entity(host)
            assert found[0] != count or found[1] == before, name
            known[id(cluster), name] = cluster, *found

    monkeypatch.setattr(controller, "check_sanity", look)
    for seed in range(10):
        world_amid(seed)
    assert max(count for _, count, _ in known.values()) > 10
