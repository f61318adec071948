"""Hosts that are reserved for a project: jobs of others don't run into that time, its own jobs may, and SPOT jobs."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.scenarios.queue_stories import finish, why
from tests.scenarios.world import World, gang

from holdfast._base.job_file.label_match import read_match
from holdfast.errors import InvalidInput, NotFound
from holdfast_controller.core import events as ev
from holdfast_controller.core.model.clock import NEVER, Mono, Now, Wall
from holdfast_controller.core.model.gang import Gang, HostSelector, Strategy
from holdfast_controller.core.model.hosts.reservations import Reservation
from holdfast_controller.core.model.hosts.spares import SpareRule
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.run_times import Backfill
from holdfast_controller.core.model.schedules import JobPlan
from holdfast_controller.core.scheduling.host_reservations import chosen_hosts
from holdfast_controller.core.scheduling.projections.dry_run import dry_run
from holdfast_controller.core.step import actions as act
from holdfast_controller.core.step import commands as st
from holdfast_controller.core.step.reservation_commands import ReservationAsked, ReservationDeletionAsked
from holdfast_controller.core.step.step import Policies
from holdfast_controller.shell.store import codec

HOUR = 120.0
"""Short ones, since hosts beat all the while."""


def cluster(hosts: int, **policies: object) -> World:
    return World(hosts, Policies(secret_key=b"k", **{"backfill": Backfill.PROJECTED, **policies}))  # type: ignore[arg-type]


def runs(hours: float, workers: int = 1, project: str = "others", **rules: object) -> Gang:
    """A job that says how long it takes."""
    return gang(workers, expected_s=hours * HOUR, timeout_s=7 * 24 * HOUR, project=project, **rules)  # type: ignore[arg-type]


def reserve(world: World, start: float | None, end: float, name: str = "conf", **what: object) -> list[str]:
    """Times are hours from now; without ``start`` from now on."""
    begins = NEVER if start is None else Wall(world.wall + start * HOUR)
    fields: dict[str, Any] = {"project": "vision", "selector": HostSelector(), **what}
    made = Reservation(name, start=begins, end=Wall(world.wall + end * HOUR), by="root", **fields)
    return world.step(ReservationAsked(1, made))


def named(*hosts: str) -> HostSelector:
    return HostSelector(hosts=frozenset(hosts))


def labelled(rack: str) -> HostSelector:
    return HostSelector(labels=(("rack", rack),))


def refusal(
    world: World, start: float | None, end: float, name: str = "conf", **what: Any
) -> list[tuple[str, str]]:
    """(field, problem) of each violation."""
    reserve(world, start, end, name, **what)
    refused = world.sent[-1]
    assert isinstance(refused, act.Refuse) and isinstance(refused.error, InvalidInput), refused
    return [(each.path, each.problem) for each in refused.error.violations]


def hosts_of(world: World, job: str) -> list[str]:
    return [place.host for place in world.cluster.jobs[job].places]


def beat_all(world: World, seconds: float) -> list[str]:
    return world.wait(seconds, beating=list(world.cluster.hosts))


def test_a_job_of_others_that_would_run_into_it_takes_another_host_and_a_short_one_takes_it() -> None:
    world = cluster(3)
    reserve(world, 2, 4, selector=named("host-0"))
    world.submit("long", runs(3))
    world.submit("short", runs(1))
    assert (hosts_of(world, "long"), hosts_of(world, "short")) == (["host-1"], ["host-0"])


@pytest.mark.parametrize("backfill", list(Backfill))
def test_others_wait_and_say_for_which_reservation_while_a_job_of_its_own_of_the_same_shape_starts(
    backfill: Backfill,
) -> None:
    world = cluster(2, backfill=backfill)
    reserve(world, 2, 4, count=2)
    for name in ("long-0", "long-1", "long-2"):
        world.submit(name, runs(3))
    assert "host-0 and 1 more is reserved from " in why(world, "long-0")
    assert why(world, "long-0").endswith("on (reservation conf), before the job is expected to end")
    world.submit("own", runs(3, project="vision"))
    assert [world.state(f"long-{number}") for number in range(3)] == [JobState.QUEUED] * 3
    assert world.state("own") is JobState.PENDING
    world.submit("own-2", runs(9, project="vision"))
    assert len({*hosts_of(world, "own"), *hosts_of(world, "own-2")}) == 2


def test_while_it_lasts_only_its_project_has_the_hosts_and_after_it_all_have_them() -> None:
    world = cluster(2)
    reserve(world, None, 4, selector=named("host-0"))
    world.submit("busy", runs(100))
    world.submit("short", runs(0.1))
    assert hosts_of(world, "busy") == ["host-1"] and world.state("short") is JobState.QUEUED
    assert "host-0 is reserved until " in why(world, "short") and "(reservation conf)" in why(world, "short")
    world.submit("own", runs(0.1, project="vision"))
    assert hosts_of(world, "own") == ["host-0"]
    assert "placed on host-0, on hosts of its project's reservation conf" in world.sentences
    finish(world, "own")
    told = beat_all(world, 4 * HOUR + 60)
    assert "reservation conf is over" in told and "short placed g1 on host-0" in told
    assert not world.cluster.reservations.by_name


def test_a_job_of_its_own_takes_the_reserved_hosts_before_those_of_all() -> None:
    world = cluster(4)
    reserve(world, None, 4, selector=named("host-3"))
    world.submit("own", runs(1, project="vision"))
    world.submit("own-2", runs(1, project="vision"))
    assert hosts_of(world, "own") == ["host-3"] and hosts_of(world, "own-2") == ["host-0"]


def test_a_spot_job_of_others_has_the_host_and_gives_way_to_one_of_its_own() -> None:
    world = cluster(1)
    reserve(world, None, 4, count=1)
    world.submit("lent", runs(30, strategy=Strategy.SPOT))
    assert hosts_of(world, "lent") == ["host-0"]
    world.run("lent")
    told = world.submit("own", runs(1, project="vision"))
    assert any(line.startswith("lent leaves to RETRY: PREEMPTED") for line in told), told


def test_deleting_it_lets_others_start_at_once_and_an_unknown_one_is_not_found() -> None:
    world = cluster(1)
    reserve(world, 2, 4, count=1)
    world.submit("long", runs(3))
    told = world.step(ReservationDeletionAsked(2, "root", "conf"))
    assert "reservation conf deleted by root" in told and "long placed g1 on host-0" in told
    world.step(ReservationDeletionAsked(3, "root", "conf"))
    refused = world.sent[-1]
    assert isinstance(refused, act.Refuse) and isinstance(refused.error, NotFound)


def test_a_host_that_leaves_is_replaced_and_one_that_is_named_is_missing() -> None:
    world = cluster(3)
    reserve(world, 2, 4, "some", count=1)
    reserve(world, 2, 4, "these", selector=named("host-2"))
    assert reserved(world) == {"some": ["host-0"], "these": ["host-2"]}
    world.cordon("host-0")
    world.cordon("host-2")
    assert reserved(world) == {"some": ["host-1"], "these": []}
    world.submit("long", runs(3))
    assert world.state("long") is JobState.QUEUED


def test_hosts_where_no_work_of_others_runs_into_it_are_chosen_first() -> None:
    world = cluster(3)
    world.submit("long", runs(30))
    world.submit("short", runs(1))
    assert (hosts_of(world, "long"), hosts_of(world, "short")) == (["host-0"], ["host-1"])
    reserve(world, 2, 4, count=2)
    assert reserved(world) == {"conf": ["host-2", "host-1"]}


def test_gpus_of_a_model_are_counted_on_hosts_that_have_them() -> None:
    world = cluster(3)
    reserve(world, 2, 4, gpus=5, gpu_type="H100")
    assert reserved(world) == {"conf": ["host-0", "host-1"]}, "a host has four"


def test_hosts_of_a_user_are_for_that_user_s_jobs_alone_in_any_project_or_in_one() -> None:
    world = cluster(2)
    reserve(world, None, 4, selector=named("host-0"), project="", user="bob")
    reserve(world, None, 4, "both", selector=named("host-1"), user="cyd")
    world.submit("ann-1", runs(1, project="vision"), owner="ann")
    world.submit("cyd-1", runs(1), owner="cyd")
    assert [world.state(name) for name in ("ann-1", "cyd-1")] == [JobState.QUEUED] * 2
    assert "host-0 and 1 more is reserved until " in why(world, "ann-1")
    world.submit("cyd-2", runs(1, project="vision"), owner="cyd")
    world.submit("bob-1", runs(1), owner="bob")
    assert (hosts_of(world, "bob-1"), hosts_of(world, "cyd-2")) == (["host-0"], ["host-1"])
    assert "placed on host-0, on hosts of its user's reservation conf" in world.sentences
    assert "reservation both of the hosts host-1 for user cyd in project vision made by root" in world.sentences


def test_hosts_are_chosen_among_those_whose_labels_meet_all_conditions() -> None:
    world = cluster(0)
    for name, labels in {
        "host-a": {"gpu": "h100", "old": "yes"},
        "host-b": {"gpu": "h200"},
        "host-c": {"gpu": "a100"},
        "host-d": {"gpu": "h100"},
    }.items():
        world.join(name, labels=labels)
    match = read_match("gpu in (h100,h200),!old")
    reserve(world, None, 4, selector=HostSelector(match=match))
    reserve(world, None, 4, "one", selector=HostSelector(match=read_match("gpu notin (h100,h200)")), count=1)
    assert reserved(world) == {"conf": ["host-b", "host-d"], "one": ["host-c"]}
    assert (
        "reservation conf of the hosts gpu in (h100,h200), !old for project vision made by root" in world.sentences
    )


def test_its_beginning_is_in_the_log_once_and_outlives_a_restart() -> None:
    world = cluster(1)
    reserve(world, 2, 4, count=1)
    reserve(world, None, 1, "now", selector=named("host-0"))
    assert world.cluster.reservations.begun == {"now"}
    world.restart_controller()
    world.join("host-0")
    told = beat_all(world, 2 * HOUR + 1)
    assert told.count("reservation conf begins") == 1 and "reservation now begins" not in world.sentences
    world.restart_controller()
    world.join("host-0")
    assert "reservation conf begins" not in beat_all(world, HOUR)
    assert "reservation conf is over" in beat_all(world, 2 * HOUR)
    assert not world.cluster.reservations.begun


def test_hosts_follow_their_labels() -> None:
    world = cluster(1)
    world.join("host-a", labels={"rack": "a"})
    world.join("host-b", labels={"rack": "b"})
    reserve(world, 2, 4, selector=labelled("a"))
    assert reserved(world) == {"conf": ["host-a"]}
    world.join("host-c", labels={"rack": "a"})
    assert reserved(world) == {"conf": ["host-a", "host-c"]}


def reserved(world: World) -> dict[str, list[str]]:
    hosts = [host for host in world.cluster.hosts.values() if host.takes_work]
    found = chosen_hosts(world.cluster, hosts, Now(Mono(world.mono), Wall(world.wall)))
    return {name: [host.name for host in hosts] for name, hosts in found.items()}


@pytest.mark.parametrize(
    ("start", "end", "what", "field", "problem"),
    [
        (-1, 4, {"count": 1}, "start", "lies 120 s in the past"),
        (4, 4, {"count": 1}, "end", "is not after the start and after now"),
        (None, -1, {"count": 1}, "end", "is not after the start and after now"),
        (24 * 400 * 30, 24 * 400 * 31, {"count": 1}, "start", "is more than a year from now"),
        (1, 24 * 400 * 30, {"count": 1}, "end", "is more than a year after the start"),
        (1, 4, {"count": 9}, "count", "asks for 9 hosts, and there are 2"),
        (1, 4, {"gpus": 9}, "gpus", "asks for 9 GPUs, and there are 8"),
        (1, 4, {"gpus": 8, "gpu_type": "MI300X"}, "gpus", "asks for 8 MI300X GPUs, and there are 0"),
        (1, 4, {"count": -1}, "count", "is -1"),
        (1, 4, {"gpus": -8}, "gpus", "is -8"),
        (1, 4, {"count": 1, "gpus": 8}, "gpus", "cannot be set together with count"),
        (1, 4, {}, "selector", "would be every host there is"),
        (1, 4, {"selector": named("host-9")}, "hosts", "host-9 has not joined"),
        (1, 4, {"selector": named("host-1"), "count": 1}, "count", "cannot be set where hosts are named"),
        (
            1,
            4,
            {"selector": labelled("z")},
            "selector",
            "asks for the hosts rack=z, and there are none",
        ),
        (1, 4, {"count": 1, "project": "No project"}, "project", "must "),
        (1, 4, {"count": 1, "project": ""}, "project", "is missing"),
        (1, 4, {"count": 1, "user": "no name!"}, "user", "is no user's name"),
        (
            1,
            4,
            {"selector": HostSelector(labels=(("rack", "a"),), match=read_match("!rack"))},
            "match",
            "holds for no host: what is asked of the label rack excludes each other",
        ),
        (1, 4, {"count": 1, "reason": "x" * 201}, "reason", "has 201 characters"),
    ],
)
def test_what_cannot_be_is_refused_with_its_field(
    start: float | None, end: float, what: dict[str, Any], field: str, problem: str
) -> None:
    world = cluster(2)
    found = refusal(world, start, end, **what)
    assert [(name, words[: len(problem)]) for name, words in found] == [(field, problem)]
    assert not world.cluster.reservations.by_name


def test_overlaps_are_refused_and_what_touches_is_not() -> None:
    world = cluster(3)
    reserve(world, 2, 4, "first", selector=named("host-0", "host-1"))
    assert refusal(world, 3, 5, "again", selector=named("host-1", "host-2")) == [
        ("hosts", "host-1 is in the reservation first at that time")
    ]
    assert refusal(world, 3, 5, "first", count=1) == [("name", "there is a reservation 'first'")]
    (too_many,) = refusal(world, 3, 5, "many", count=2)
    assert too_many == ("count", "at that time hosts are reserved already (first): 1 of 2 hosts would be missing")
    reserve(world, 4, 5, "next", count=3)
    reserve(world, 3, 4, "beside", count=1)
    assert set(world.cluster.reservations.by_name) == {"first", "next", "beside"}
    (taken,) = refusal(world, 2, 5, "third", selector=named("host-2"))
    assert (taken[0] == "hosts" and "beside would lack 1 of 1 hosts" in taken[1]) or "next would lack" in taken[1]


def test_a_host_that_is_both_reserved_and_a_spare_is_for_its_project() -> None:
    world = cluster(1, spares=(SpareRule("any", 1),))
    reserve(world, None, 4, selector=named("host-0"))
    assert world.cluster.spares == {"host-0": "any"}
    world.submit("others", runs(1, strategy=Strategy.STANDARD))
    world.submit("own", runs(1, project="vision"))
    assert (hosts_of(world, "others"), hosts_of(world, "own")) == ([], ["host-0"])


def test_a_spare_is_not_one_that_is_reserved_where_there_is_another() -> None:
    world = cluster(2, spares=(SpareRule("any", 1),))
    reserve(world, 2, 4, selector=named("host-0"))
    world.submit("own", runs(1, project="vision"))
    assert world.cluster.spares == {"host-1": "any"} and hosts_of(world, "own") == ["host-0"]


def test_it_outlives_a_restart_of_the_controller_and_ends_while_none_runs() -> None:
    world = cluster(1)
    reserve(world, 2, 4, count=1)
    world.submit("long", runs(3))
    world.restart_controller()
    assert world.cluster.reservations.by_name["conf"].project == "vision"
    kept = codec.dump_entity(world.cluster.reservations)
    assert codec.load_entity("hostreservations", kept) == world.cluster.reservations
    assert world.state("long") is JobState.QUEUED
    world.restart_controller(down_s=5 * HOUR)
    world.join("host-0")
    beat_all(world, 60)
    assert not world.cluster.reservations.by_name and world.state("long") is JobState.PENDING


def test_a_clock_that_is_set_moves_its_end_with_it() -> None:
    world = cluster(1)
    reserve(world, None, 4, count=1)
    world.submit("long", runs(3))
    world.jumped += 5 * HOUR
    assert "long placed g1 on host-0" in world.wait(61, beating=["host-0"])
    reserve(world, None, 4, "second", count=1)
    world.jumped -= 5 * HOUR
    world.wait(5 * HOUR, beating=["host-0"])
    assert "second" in world.cluster.reservations.by_name, "the end is a time of the wall clock"


def test_a_dry_run_knows_of_it() -> None:
    world = cluster(1)
    reserve(world, 2, 4, count=1)
    now = Now(Mono(world.mono), Wall(world.wall))
    asked = [
        st.JobSubmission(9, "ann", "asked", "", JobPlan("asked", runs(3, project=project), "{}"))
        for project in ("others", "vision")
    ]
    others, own = (dry_run(world.cluster, each, world.policies, now) for each in asked)
    assert not others.places and [place.host for place in own.places] == ["host-0"]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("backfill", list(Backfill))
def test_no_job_of_others_is_ever_placed_where_it_was_expected_to_run_into_a_reservation(
    seed: int, backfill: Backfill
) -> None:
    dice = random.Random(seed)
    world = cluster(5, backfill=backfill)
    for number in range(3):
        start = dice.choice([None, *range(1, 8)])
        what = {"count": dice.randint(1, 2)} if dice.random() < 0.7 else {"selector": named(f"host-{number}")}
        reserve(world, start, (start or 0) + dice.randint(1, 6), f"r-{number}", project=dice.choice("ab"), **what)
    expected: dict[str, float] = {}
    for number in range(25):
        job, project = f"j-{number}", dice.choice("abc")
        spot = dice.random() < 0.2
        hours = dice.choice([0.5, 1, 2, 4, 8, 30])
        expected[job] = hours * HOUR
        strategy = Strategy.SPOT if spot else Strategy.STANDARD
        before = reserved(world)
        told = len(world.log)
        world.submit(job, runs(hours, dice.randint(1, 2), project, strategy=strategy, gpus=dice.choice([2, 4])))
        for event in world.log[told:]:
            if isinstance(event, ev.JobPlaced):
                _check(world, event, before, expected[event.job_id])
        for name in list(world.cluster.hosts):
            world.beat(name)
        running = [j.id for j in world.cluster.jobs.values() if j.state is JobState.PENDING and dice.random() < 0.3]
        for name in running[:1]:
            finish(world, name)


def _check(world: World, event: ev.JobPlaced, chosen: dict[str, list[str]], lasts_s: float) -> None:
    job = world.cluster.jobs[event.job_id]
    if job.gang.strategy is Strategy.SPOT:
        return
    for name, hosts in chosen.items():
        reservation = world.cluster.reservations.by_name.get(name)
        if (
            reservation is None
            or reservation.project == job.gang.project
            or event.at + lasts_s <= reservation.start
        ):
            continue
        taken = {place.host for place in event.places} & set(hosts)
        assert not taken, f"{event.job_id} was placed on {taken} of {name}"
