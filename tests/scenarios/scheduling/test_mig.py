"""Jobs that ask for MIG instances: refused, waiting, started, and what the instances count as."""

from __future__ import annotations

import dataclasses

from tests.scenarios.queue_stories import finish, placed, policies, why
from tests.scenarios.world import World, gang, inventory

from holdfast_controller.core.model.accounts.quota import Quota
from holdfast_controller.core.model.gang import Gang
from holdfast_controller.core.model.hosts.host import Gpu, Inventory
from holdfast_controller.core.model.run_times import Backfill
from holdfast_controller.core.step.actions import Refuse
from holdfast_controller.core.step.step import Policies


def divided(*profiles: str) -> Inventory:
    """A GPU or an instance for each word; an empty one is a whole GPU."""
    models = [f"NVIDIA H100{f' MIG {profile}' if profile else ''}" for profile in profiles]
    gpus = tuple(Gpu(f"MIG-{at}", at, model, 1) for at, model in enumerate(models))
    return dataclasses.replace(inventory(), gpus=gpus)


def world_of(*profiles: str, rules: Policies | None = None) -> World:
    world = World(policies=rules)
    world.join("h1", divided(*profiles))
    return world


def part(profile: str = "1g.10gb", gpus: int = 1) -> Gang:
    made = gang(1, gpus=gpus)
    return dataclasses.replace(made, pools=tuple(dataclasses.replace(p, gpu_partition=profile) for p in made.pools))


def test_a_profile_that_no_host_has_is_refused_and_waited_for_where_no_host_is_known() -> None:
    world = world_of("1g.10gb")
    assert world.submit("a", part("7g.80gb")) == ["> refuse NEVER_FITS"]
    [refused] = [action.error for action in world.sent if isinstance(action, Refuse)]
    assert "no host has any; there are MIG instances for gpuPartitionSize 1g.10gb" in str(refused)
    world = World()
    world.submit("a", part("7g.80gb"))
    assert why(world, "a") == "no host has joined yet"
    assert placed(world.join("h1", divided("7g.80gb"))) == ["a placed g1 on h1"]


def test_a_busy_instance_is_waited_for_with_the_reason() -> None:
    world = world_of("1g.10gb", "")
    world.submit("a", part())
    assert placed(world.submit("whole", gang(1, gpus=1))) == ["whole placed g1 on h1"]
    world.submit("b", part())
    assert why(world, "b").startswith("needs 1 1g.10gb MIG instance on one host (0 free on the best)")
    assert placed(finish(world, "a")) == ["b placed g1 on h1"]


def test_a_gpu_that_is_divided_while_a_job_waits_is_taken_once_its_agent_has_said_so() -> None:
    world = world_of("1g.10gb", "")
    world.submit("a", part())
    world.submit("b", part())
    assert placed(world.beat("h1", divided("1g.10gb", "1g.10gb"))) == ["b placed g1 on h1"]


def test_an_instance_counts_as_one_gpu_of_a_quota() -> None:
    world = world_of("1g.10gb", "1g.10gb", "1g.10gb", rules=policies(default=Quota(gpus=2)))
    for name in "abc":
        world.submit(name, part())
    assert [world.state(name).name for name in "abc"] == ["PENDING", "PENDING", "QUEUED"]
    assert "quota" in why(world, "c")


def test_a_job_that_waits_for_one_kind_leaves_the_other_kind_of_its_host_to_those_behind_it() -> None:
    strict = Policies(secret_key=b"k", backfill=Backfill.STRICT)
    world = world_of("1g.10gb", "", "", rules=strict)
    world.submit("a", part())
    world.submit("b", part())
    assert placed(world.submit("whole", gang(1, gpus=1))) == ["whole placed g1 on h1"]
    world.submit("two", gang(1, gpus=2))
    assert not placed(world.submit("one", gang(1, gpus=1))), "a whole GPU is kept for the one ahead that wants two"
    assert placed(finish(world, "a")) == ["b placed g1 on h1"]
    world = world_of("1g.10gb", "", rules=strict)
    world.submit("a", gang(1, gpus=1))
    world.submit("b", gang(1, gpus=1))
    assert placed(world.submit("c", part())) == ["c placed g1 on h1"]


def test_cores_and_memory_are_kept_for_what_waits_beside_the_other_kind() -> None:
    world = world_of("1g.10gb", "", "", rules=Policies(secret_key=b"k", backfill=Backfill.STRICT))
    needs = {"cpus": 12}
    world.submit("a", with_room(part(), **needs))
    world.submit("b", with_room(part(), **needs))
    assert not placed(world.submit("large", with_room(gang(1, gpus=1), cpus=4))), (
        "of 16 cores b needs 12 once a ends"
    )
    assert placed(finish(world, "a")) == ["b placed g1 on h1", "large placed g1 on h1"]


def with_room(made: Gang, **needs: int) -> Gang:
    return dataclasses.replace(made, pools=tuple(dataclasses.replace(p, **needs) for p in made.pools))  # type: ignore[arg-type]
