"""Pools with hosts of their own: where a lost host's worker goes, who gives way to them, what they wait for."""

from __future__ import annotations

import dataclasses
from typing import Any

from tests.scenarios.queue_stories import finish, placed, why
from tests.scenarios.scheduling.loans.test_spot_loans import QUIET
from tests.scenarios.scheduling.test_own_spares import lose, spares_of, stop
from tests.scenarios.world import World, gang

from holdfast._base.job_file.label_match import read_match
from holdfast_controller.core.lifecycle.other_hosts import schedulable_hosts
from holdfast_controller.core.model.clock import NEVER, Mono, Now, Wall
from holdfast_controller.core.model.gang import Gang, HostSelector, Strategy
from holdfast_controller.core.model.hosts.reservations import Reservation
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.run_times import Backfill
from holdfast_controller.core.scheduling.wait_reasons.pending_reason import QueueView, wait_reason
from holdfast_controller.core.step.actions import Refuse
from holdfast_controller.core.step.reservation_commands import ReservationAsked
from holdfast_controller.core.step.step import Policies


def labelled(policies: Policies | None = None, **gpus: str) -> World:
    """Hosts of four GPUs by name, each with the label ``gpu``; without one where it is empty."""
    world = World(policies=policies)
    for name, value in gpus.items():
        world.join(name, labels={"gpu": value} if value else {})
    return world


def pools(first: str = "", others: str = "", workers: int = 2, **rules: Any) -> Gang:
    """A gang whose first pool and the other have these conditions."""
    made = gang(workers, **{"retries": 3, **rules})
    selectors = [HostSelector(match=read_match(text)) if text else None for text in (first, others)]
    return dataclasses.replace(
        made,
        pools=tuple(dataclasses.replace(p, selector=s) for p, s in zip(made.pools, selectors, strict=False)),
    )


def hosts_of(world: World, job: str) -> list[str]:
    return [place.host for place in world.cluster.jobs[job].places]


def test_the_worker_of_a_lost_host_goes_only_where_its_pool_may() -> None:
    world = labelled(h1="a", h2="b", h3="a", h4="")
    world.submit("job", pools("gpu=a", "gpu=b", replace_when_lost=True))
    assert hosts_of(world, "job") == ["h1", "h2"]
    world.run("job")
    lose(world, "h2")
    stop(world, "job", 0)
    assert world.state("job") is JobState.QUEUED
    assert "needs a host that its pool may have (gpu=b)" in why(world, "job")
    assert placed(world.join("h5", labels={"gpu": "b"})) == ["job placed g2 on h1 h5"]


def test_a_label_that_changes_moves_no_running_worker_and_counts_at_the_next_placement() -> None:
    world = labelled(h1="a", h2="b", h3="b")
    world.submit("job", pools("gpu=a", "gpu=b", replace_when_lost=True))
    world.run("job")
    world.hang_up("h2")
    world.join("h2", places=[world.place("job", 1, "RUNNING")], labels={"gpu": "old"})
    assert hosts_of(world, "job") == ["h1", "h2"]
    assert world.state("job") is JobState.RUNNING
    lose(world, "h1")
    stop(world, "job", 1)
    world.join("h4", labels={"gpu": "a"})
    assert hosts_of(world, "job") == ["h4", "h3"]


def test_only_who_holds_hosts_of_the_pool_gives_way_to_it() -> None:
    world = labelled(h1="a", h2="b")
    world.submit("on-a", pools("gpu=a", workers=1, strategy=Strategy.SPOT))
    world.submit("on-b", pools("gpu=b", workers=1, strategy=Strategy.SPOT))
    for name in ("on-a", "on-b"):
        world.run(name)
    world.submit("job", pools("gpu=b", workers=1))
    assert (world.cluster.jobs["on-a"].stopping, world.cluster.jobs["on-b"].stopping) == (False, True)


def test_hosts_that_a_waiting_pool_may_have_are_kept_for_it_and_others_are_not() -> None:
    world = labelled(Policies(secret_key=b"k"), h1="a", h2="b", h3="", h4="a")
    world.submit("busy", pools("gpu=b", workers=1))
    world.submit("job", pools("gpu=a", "gpu=b", workers=2))
    assert "4 GPUs on one host (0 free on the best), of the hosts of workerpool1 (gpu=b)" in why(world, "job")
    told = world.submit("small", gang(1))
    assert placed(told) == ["small placed g1 on h3"]
    assert not placed(world.submit("other", gang(1))), "h1 and h4 are kept for the pool that may have them"
    assert "job placed g1 on h1 h2" in finish(world, "busy")


def test_the_projected_start_is_the_end_of_what_runs_on_the_pools_hosts() -> None:
    world = labelled(dataclasses.replace(QUIET, backfill=Backfill.PROJECTED), h1="a", h2="b", h3="")
    world.submit("soon", pools("gpu=a", workers=1, expected_s=600.0, max_wait_s=0.0))
    world.submit("late", pools("gpu=b", workers=1, expected_s=7200.0, max_wait_s=0.0))
    for name in ("soon", "late"):
        world.run(name)
    world.submit("job", pools("", "gpu=b", workers=2, expected_s=600.0, max_wait_s=0.0))
    hosts, now = schedulable_hosts(world.cluster), Now(Mono(world.mono), Wall(world.wall))
    queue_view = QueueView(world.cluster, hosts, {}, now)
    start = queue_view.starts["job"]
    assert 7100.0 < start.at - world.wall <= 7200.0
    assert {place.host for place in start.places} >= {"h2"}
    said = wait_reason(world.cluster, world.cluster.jobs["job"], hosts, queue_view)
    assert "of the hosts of workerpool1 (gpu=b); expected to start about" in said


def test_more_than_a_pools_hosts_could_ever_hold_is_refused() -> None:
    world = labelled(h1="a", h2="b", h3="a")
    assert world.submit("job", pools("gpu=a", "gpu=b", workers=3)) == ["> refuse NEVER_FITS"]
    [refused] = [action.error for action in world.sent if isinstance(action, Refuse)]
    assert "the only host that workerpool1 may have (gpu=b) has 4 GPUs in all, and this asks for 8" in str(refused)


def test_a_pool_whose_hosts_are_not_known_waits_and_starts_when_one_joins() -> None:
    world = labelled(h1="a")
    world.submit("job", pools("gpu=a", "gpu=new"))
    assert "needs a host that its pool may have (gpu=new)" in why(world, "job")
    assert placed(world.join("h2", labels={"gpu": "new"})) == ["job placed g1 on h1 h2"]


def test_a_spare_whose_host_suits_a_pool_no_more_is_given_back_and_another_one_held() -> None:
    world = labelled(h1="a", h2="b", h3="a", h4="a")
    world.join("h3", labels={"gpu": "a", "disk": "x"})
    world.join("h1", labels={"gpu": "a", "disk": "x"})
    world.submit("job", pools("disk", "gpu", replace_when_lost=True, spares=1))
    assert (hosts_of(world, "job"), spares_of(world, "job")) == (["h1", "h2"], ["h3"])
    world.run("job")
    world.join("h4", labels={"gpu": "a", "disk": "x"})
    world.hang_up("h3")
    world.join("h3", labels={"gpu": "a"})
    assert spares_of(world, "job") == ["h4"]


def test_hosts_reserved_for_others_are_no_hosts_of_a_pool() -> None:
    world = labelled(h1="a", h2="b", h3="b")
    until = Wall(world.wall + 7200.0)
    selector = HostSelector(labels=(("gpu", "b"),))
    world.step(ReservationAsked(1, Reservation("demo", "vision", NEVER, until, selector, count=1)))
    world.submit("job", pools("gpu=a", "gpu=b", workers=3))
    assert "reservation demo" in why(world, "job")
    world.submit("theirs", pools("gpu=a", "gpu=b", project="vision"))
    assert "theirs" in world.cluster.jobs
