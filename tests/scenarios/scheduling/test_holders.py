"""A waiting job names the jobs that hold what it needs, and what its owner can do about it."""

from __future__ import annotations

import dataclasses

from tests.scenarios.lifecycle.words.situations import summary
from tests.scenarios.queue_stories import cpu, policies
from tests.scenarios.world import World, gang, inventory

from holdfast._base.job_file.label_match import read_match
from holdfast_controller.core.model.accounts.quota import Quota
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.gang import Gang, HostSelector
from holdfast_controller.core.scheduling.wait_reasons.holders import held_by
from holdfast_controller.core.scheduling.wait_reasons.pending_reason import QueueView


def view(world: World) -> QueueView:
    return world.reactor.queue_view(Now(Mono(world.mono), Wall(world.wall)))


def test_a_job_names_those_that_hold_its_gpus_the_largest_first_and_three_at_most() -> None:
    world = World(hosts=3)
    for name, gpus in (("small", 1), ("b", 4), ("c", 4), ("other", 2)):
        world.submit(name, gang(1, gpus=gpus), owner="bob")
    world.submit("a", gang(2, max_wait_s=0.0))
    found = summary(world)
    assert found.health.endswith("; the GPUs are held by b, c, other and 1 more")
    assert "bob" not in found.health + found.advice, "those who may see one job may not see whose the others are"
    assert found.advice == "Nothing: it starts by itself; end it now by: holdfast cancel a"


def test_a_job_whose_pool_may_have_no_host_here_waits_for_none_that_holds_others() -> None:
    world = World(hosts=2)
    world.join("h-x", labels={"rack": "x"})
    for name in ("b", "c", "d"):
        world.submit(name, gang(1), owner="bob")
    world.submit("a", of_hosts("rack=none"))
    assert "held by" not in summary(world).health
    world.submit("z", of_hosts("rack=x"))
    on_x = next(name for name in ("b", "c", "d") if world.cluster.jobs[name].places[0].host == "h-x")
    assert held_by(world.cluster.jobs["z"], view(world)) == f"; the GPUs are held by {on_x}"


def of_hosts(match: str) -> Gang:
    """A gang of one worker whose pool may have these hosts."""
    made = gang(1)
    selector = HostSelector(match=read_match(match))
    return dataclasses.replace(
        made, pools=tuple(dataclasses.replace(pool, selector=selector) for pool in made.pools)
    )


def test_a_job_whose_own_spares_hold_room_says_how_many() -> None:
    world = World(hosts=3)
    world.submit("b", dataclasses.replace(gang(1), spares=1, replace_when_lost=True), owner="bob")
    world.submit("a", gang(2))
    assert summary(world).health.endswith("; the GPUs are held by b with a spare")


def test_jobs_without_gpus_hold_nothing_of_what_lacks() -> None:
    world = World(hosts=1)
    world.submit("b", gang(1, gpus=3), owner="bob")
    world.submit("reader", cpu(cpus=1), owner="bob")
    world.submit("a", gang(1))
    assert summary(world).health.endswith("; the GPUs are held by b")


def test_only_gpus_of_the_model_that_it_asks_for_count() -> None:
    world = World()
    for name, model in (("h", "NVIDIA H100"), ("a", "NVIDIA A100")):
        world.join(name, inventory(4, model=model, name=name))
    for name, model in (("on-h", "NVIDIA_H100"), ("on-a", "NVIDIA_A100"), ("a", "NVIDIA_A100")):
        made = gang(1)
        pools = tuple(dataclasses.replace(pool, gpu_type=model) for pool in made.pools)
        world.submit(name, dataclasses.replace(made, pools=pools), owner="ann" if name == "a" else "bob")
    assert summary(world).health.endswith("; the GPUs are held by on-a")


def test_a_job_that_asks_for_cores_names_those_that_hold_room() -> None:
    world = World(hosts=1)
    world.submit("b", cpu(cpus=10), owner="bob")
    world.submit("a", cpu(cpus=12))
    assert summary(world).health.endswith("; the hosts' room is held by b")


def test_the_end_of_a_job_of_its_owner_is_named_where_that_alone_makes_room() -> None:
    world = World(hosts=2)
    world.submit("big", gang(1), owner="bob")
    world.submit("own", gang(1))
    world.submit("a", gang(1))
    assert summary(world).command == "holdfast cancel own"
    world.submit("next", gang(1))
    assert summary(world, "next").command == "holdfast cancel next", "what is freed is for the one ahead of it"
    two = World(hosts=2)
    two.submit("big", gang(1), owner="bob")
    two.submit("own", gang(1))
    two.submit("a", gang(2))
    assert summary(two).command == "holdfast cancel a", "bob's job is in the way too"


def test_a_job_of_its_owner_in_another_project_is_not_said_to_be_the_owners() -> None:
    world = World(hosts=1)
    world.submit("own", dataclasses.replace(gang(1), project="vision"))
    world.submit("a", gang(1))
    assert summary(world).command == "holdfast cancel a"


def test_fewer_gpus_are_proposed_where_they_are_free() -> None:
    world = World(hosts=2)
    world.submit("b", gang(2, gpus=3), owner="bob")
    world.submit("a", gang(2, max_wait_s=0.0))
    assert "; with --gpus 1 it would fit now; end it" in summary(world).advice


def test_where_no_end_is_known_that_makes_room_this_is_said() -> None:
    world = World(hosts=2)
    world.submit("b", gang(1), owner="bob")
    world.submit("a", gang(2, max_wait_s=0.0))
    job = world.cluster.jobs["a"]
    assert held_by(job, view(world)) == "; the GPUs are held by b"
    world.cordon("host-1")
    world.wait(2)
    assert held_by(job, view(world)) == ("; the GPUs are held by b, and when it can start is not known")


def test_over_its_quota_a_job_waits_for_no_holder() -> None:
    world = World(hosts=1, policies=policies(any=Quota(gpus=4)))
    world.submit("b", gang(1))
    world.submit("a", gang(1))
    assert "held by" not in summary(world).health
