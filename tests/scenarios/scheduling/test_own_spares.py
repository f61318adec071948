"""A job's own spares: held beside its workers, taken at once when a host is lost, made up for when there is room."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.scenarios.queue_stories import why
from tests.scenarios.world import World, gang, inventory

from holdfast_controller.core.goodput.view import as_of_now, lines, totals
from holdfast_controller.core.model.accounts.quota import Quota
from holdfast_controller.core.model.gang import Gang, HostSelector, Strategy
from holdfast_controller.core.model.hosts.locality import Locality
from holdfast_controller.core.model.hosts.spares import SpareRule
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.step import actions as act
from holdfast_controller.core.step.step import Policies


def long(workers: int = 2, spares: int = 1, **rules: object) -> Gang:
    return gang(workers, **{"retries": 3, "replace_when_lost": True, "spares": spares, **rules})  # type: ignore[arg-type]


def hosts_of(world: World, job: str) -> list[str]:
    return [place.host for place in world.cluster.jobs[job].places]


def spares_of(world: World, job: str) -> list[str]:
    return [spare.host for spare in world.cluster.jobs[job].spares]


def held(world: World, host: str) -> list[str]:
    return sorted(world.cluster.hosts[host].allocations)


def lose(world: World, *hosts: str) -> list[str]:
    told = [each for host in hosts for each in world.hang_up(host)]
    return told + world.wait(80, beating=[name for name in world.cluster.hosts if name not in hosts])


def stop(world: World, job: str, *workers: int) -> list[str]:
    told: list[str] = []
    for worker in workers:
        world.exit(job, worker, "STOPPED:15")
        told += world.report(job, worker, "EMPTY")
    return told


def refused(world: World, job: str, what: Gang) -> str:
    before = len(world.sent)
    world.submit(job, what)
    (answer,) = [each for each in world.sent[before:] if isinstance(each, act.Refuse)]
    return str(answer.error)


def test_a_job_holds_a_spare_beside_its_workers_and_nothing_starts_there() -> None:
    world = World(4)
    told = world.submit("a", long(3))
    assert "a placed g1 on host-0 host-1 host-2, spares on host-3" in told
    assert not any(each.startswith("> host-3") for each in told)
    world.submit("b", gang(1))
    assert world.state("b") is JobState.QUEUED
    world.run("a")
    assert world.state("a") is JobState.RUNNING
    assert held(world, "host-3") == ["a/3"]


def test_one_of_four_hosts_is_lost_and_the_spare_takes_its_place_while_the_others_keep_theirs() -> None:
    world = World(5)
    world.submit("a", long(4))
    world.submit("b", gang(1))
    world.run("a")
    lose(world, "host-2")
    told = stop(world, "a", 0, 1, 3)
    assert "a placed g2 on host-0 host-1 host-4 host-3" in told
    assert (world.state("b"), spares_of(world, "a")) == (JobState.QUEUED, [])
    world.run("a")
    assert world.state("a") is JobState.RUNNING
    assert any("on its own spare, in place of a host that it had to leave" in each for each in world.sentences)


def test_the_lost_host_is_the_next_spare_once_it_is_back() -> None:
    world = World(3)
    world.submit("a", long(2))
    world.run("a")
    lose(world, "host-1")
    stop(world, "a", 0)
    world.run("a")
    assert (hosts_of(world, "a"), spares_of(world, "a")) == (["host-0", "host-2"], [])
    assert "a has spares on host-1" in world.join("host-1", boot="boot-2")


def test_a_job_that_waits_has_the_host_that_comes_free_before_a_job_makes_up_for_its_spare() -> None:
    world = World(3)
    world.submit("a", long(2))
    world.run("a")
    lose(world, "host-1")
    stop(world, "a", 0)
    world.run("a")
    world.submit("b", gang(1))
    told = world.join("host-1", boot="boot-2")
    assert "b placed g1 on host-1" in told
    assert spares_of(world, "a") == []


@pytest.mark.parametrize("how", ["cordoned", "lost", "drained"])
def test_a_spare_whose_host_takes_no_work_any_more_is_given_back_and_another_one_held(how: str) -> None:
    world = World(4)
    world.submit("a", long(2))
    assert spares_of(world, "a") == ["host-2"]
    world.run("a")
    match how:
        case "cordoned":
            told = world.cordon("host-2")
        case "lost":
            told = lose(world, "host-2")
        case _:
            told = world.drain("host-2")
    assert "a has spares on no host" in told
    assert "a has spares on host-3" in told
    assert held(world, "host-2") == []
    assert world.state("a") is JobState.RUNNING


def test_a_host_that_holds_nothing_but_a_spare_is_drained_at_once() -> None:
    world = World(3)
    world.submit("a", long(2))
    assert any("host-2 drained" in each for each in world.drain("host-2"))


def test_a_spare_stays_while_its_host_reconnects() -> None:
    world = World(4)
    world.submit("a", long(2))
    world.run("a")
    assert world.hang_up("host-2") == []
    told = world.join("host-2")
    assert spares_of(world, "a") == ["host-2"]
    assert not any("spares" in each or "freed" in each for each in told)


def test_a_spare_with_a_broken_gpu_is_given_back() -> None:
    world = World(4)
    world.submit("a", long(2))
    has = inventory(name="host-2")
    broken = replace(has, gpus=(replace(has.gpus[0], problem="vanished"), *has.gpus[1:]))
    told = world.beat("host-2", broken)
    assert "a has spares on host-3" in told


def test_two_hosts_are_lost_at_once_and_there_is_one_spare_and_one_free_host() -> None:
    world = World(5)
    world.submit("a", long(3))
    world.run("a")
    lose(world, "host-1", "host-2")
    told = stop(world, "a", 0)
    (placed,) = [each for each in told if each.startswith("a placed")]
    assert placed.split(" on ")[1].split()[0] == "host-0"
    assert sorted(hosts_of(world, "a")) == ["host-0", "host-3", "host-4"]


def test_two_hosts_are_lost_and_nothing_but_the_spare_is_there_which_is_kept() -> None:
    world = World(4)
    world.submit("a", long(3))
    world.run("a")
    lose(world, "host-1", "host-2")
    stop(world, "a", 0)
    world.submit("b", gang(1))
    assert (world.state("a"), world.state("b")) == (JobState.QUEUED, JobState.QUEUED)
    assert spares_of(world, "a") == ["host-3"]
    told = world.join("host-1", boot="boot-2")
    assert any(each.startswith("a placed g2") for each in told)


@pytest.mark.parametrize("how", ["cancelled", "paused", "succeeded"])
def test_spares_are_free_as_soon_as_the_end_or_a_pause_is_decided(how: str) -> None:
    world = World(3)
    world.submit("a", long(2))
    world.submit("b", gang(1))
    world.run("a")
    if how == "succeeded":
        world.exit("a", 0)
        told = world.exit("a", 1)
    else:
        told = world.cancel("a") if how == "cancelled" else world.pause("a")
    assert held(world, "host-2") == ["b/0"], told


def test_a_spot_job_that_gives_way_gives_its_spares_up_too() -> None:
    world = World(3)
    world.submit("lent", long(2, strategy=Strategy.SPOT))
    world.run("lent")
    told = world.submit("b", gang(3))
    assert any("PREEMPTED" in each for each in told)
    assert spares_of(world, "lent") == []
    stop(world, "lent", 0, 1)
    assert world.state("b") is JobState.PENDING


def test_a_quota_counts_spares() -> None:
    world = World(4, Policies(secret_key=b"k", quotas={"default": Quota(gpus=12)}))
    world.submit("a", long(2))
    world.submit("b", gang(1, gpus=1))
    assert "project default uses 12 of its 12 GPUs" in why(world, "b")
    text = refused(World(4, Policies(secret_key=b"k", quotas={"default": Quota(gpus=11)})), "a", long(2))
    assert "the job needs 12 GPUs, and project default may hold no more than 11" in text


def test_no_spare_is_made_up_for_over_the_quota() -> None:
    world = World(4, Policies(secret_key=b"k", quotas={"default": Quota(gpus=12)}))
    world.submit("a", long(2))
    world.run("a")
    lose(world, "host-2")
    world.submit("b", gang(1, gpus=1))
    assert spares_of(world, "a") == ["host-3"]


def test_more_than_fits_is_refused_with_what_lacks() -> None:
    world = World(3)
    text = refused(world, "a", long(3))
    assert "it needs a host more for its own spare, beside those of its workers" in text
    assert "it needs other hosts for its 2 own spares" in refused(world, "a", long(2, spares=2))


def test_a_job_whose_workers_are_never_replaced_is_refused() -> None:
    world = World(4)
    text = refused(world, "a", long(replace_when_lost=False))
    assert "jobSpec.scheduling.spares: are of no use here: by the cluster's disconnectPolicy" in text
    text = refused(world, "a", long(1, replace_when_lost=False, replace_if_isolated=True))
    assert "of no use to a single worker" in text


def test_workers_without_gpus_leave_a_host_to_the_spare() -> None:
    world = World(3)
    world.submit("a", long(3, gpus=0))
    assert len(spares_of(world, "a")) == 1
    assert set(hosts_of(world, "a")).isdisjoint(spares_of(world, "a"))


def test_a_spare_is_in_the_domain_in_which_all_workers_have_to_be() -> None:
    world = World()
    for number, rack in enumerate("aaabb"):
        world.join(f"host-{number}", labels={"rack": rack})
    near = Locality(("rack",), "rack", required=True)
    world.submit("a", long(2, near=near))
    world.submit("b", long(2, near=near))
    assert world.state("a") is JobState.PENDING
    assert {
        world.cluster.hosts[name].labels["rack"] for name in (*hosts_of(world, "a"), *spares_of(world, "a"))
    } == {"a"}
    assert world.state("b") is JobState.QUEUED, "no other rack has three hosts"


def test_a_spare_is_of_the_hosts_that_the_job_may_have() -> None:
    world = World(5)
    world.submit("a", long(2, selector=HostSelector(avoid=frozenset({"host-1", "host-2"}))))
    assert {*hosts_of(world, "a"), *spares_of(world, "a")} == {"host-0", "host-3", "host-4"}


def test_spares_survive_the_controller_and_are_chosen_anew_after_a_restore() -> None:
    world = World(4)
    world.submit("a", long(2))
    world.run("a")
    world.restart_controller()
    for host in ("host-0", "host-1", "host-2", "host-3"):
        places = [world.place("a", w, "RUNNING") for w, name in enumerate(hosts_of(world, "a")) if name == host]
        world.join(host, places=places)
    assert spares_of(world, "a") == ["host-2"]
    assert world.state("a") is JobState.RUNNING


def test_the_ledger_has_the_time_of_spares_apart() -> None:
    world = World(3)
    world.submit("a", long(2))
    world.run("a")
    world.wait(100, beating=world.cluster.hosts)
    job = world.cluster.jobs["a"]
    ledger = as_of_now(job, None, round(world.wall * 1000))
    assert ledger is not None
    spare = [(each.category, each.cause, each.payer) for each in lines(totals(ledger)) if each.category == "spare"]
    assert spare == [("spare", "OWN_SPARE", "user")]
    found = {each.category: each.ms for each in lines(totals(ledger))}
    assert found["spare"] * 2 == sum(found.values()) - found["spare"], "one share beside two"


def test_a_jobs_own_spare_is_no_host_of_the_clusters_spares() -> None:
    world = World(4, Policies(secret_key=b"k", spares=(SpareRule("any", 1),)))
    world.submit("a", long(2))
    world.run("a")
    assert set(spares_of(world, "a")).isdisjoint(world.cluster.spares)
    own = spares_of(world, "a")
    first, second = hosts_of(world, "a")
    lose(world, second)
    stop(world, "a", 0)
    assert hosts_of(world, "a") == [first, *own], "its own one first"


def test_a_spare_in_the_rack_that_its_job_had_to_leave_is_given_back() -> None:
    world = World(0)
    for number, rack in enumerate("aaabb"):
        world.join(f"host-{number}", labels={"rack": rack})
    world.submit("a", long(2, near=Locality(("rack",), "rack", required=True)))
    world.run("a")
    used, (spare,) = hosts_of(world, "a"), spares_of(world, "a")
    lose(world, *used)
    assert (hosts_of(world, "a"), spares_of(world, "a")) == (["host-3", "host-4"], []), spare
    assert not held(world, spare)
