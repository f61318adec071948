"""Machine types: which hosts are of one, which jobs get them, and what is refused in the settings and in jobs."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest
from tests.scenarios.queue_stories import placed, why
from tests.scenarios.world import World
from tests.unit.controller.examples import host, never_fits
from tests.unit.controller.scheduling.test_placement import TASK, hosts_of
from tests.unit.controller.scheduling.test_placement import why as why_not

from holdfast import spec
from holdfast._base.job_file.label_match import read_match
from holdfast.errors import ConfigError, InvalidSpec
from holdfast_controller.core.model.gang import Gang, Pool
from holdfast_controller.core.model.hosts.capacity import types_of
from holdfast_controller.core.model.hosts.host import Host
from holdfast_controller.core.model.hosts.machine_types import MachineType
from holdfast_controller.core.scheduling.placement import Plan, may_have, plan
from holdfast_controller.core.step import commands as st
from holdfast_controller.core.step.step import Policies
from holdfast_controller.shell.base.machine_types_config import (
    MachineTypeConfig,
    check_machine_types,
    machine_types_of,
)
from holdfast_controller.shell.convert.gang_from_spec import gang_of
from holdfast_controller.shell.convert.host_to_proto import host_to_proto
from holdfast_controller.shell.convert.job_defaults import JobDefaults

HIGH = MachineType("a3-high", read_match("!old"), "NVIDIA_H100", 8)
LARGE = MachineType("large", cpus=32, memory_mb=1 << 17)


def machine(name: str, *, model: str = "NVIDIA H100", gpus: int = 8, **more: Any) -> Host:
    labels = more.pop("labels", {})
    made = host(name, gpus=gpus, model=model, **more)
    made.labels = labels
    return made


@pytest.mark.parametrize(
    ("made", "types"),
    [
        (machine("a"), ("a3-high",)),
        (machine("a", gpus=9), ("a3-high",)),
        (machine("a", gpus=7), ()),
        (machine("a", model="NVIDIA A100"), ()),
        (machine("a", model="NVIDIA H100 MIG 1g.10gb"), ()),
        (machine("a", labels={"old": "yes"}), ()),
        (machine("a", gpus=0, cpus=32, memory=128), ("large",)),
        (machine("a", gpus=0, cpus=31, memory=128), ()),
        (machine("a", gpus=0, cpus=32, memory=127), ()),
        (machine("a", cpus=64, memory=256), ("a3-high", "large")),
    ],
)
def test_a_host_is_of_each_class_whose_conditions_it_meets(made: Host, types: tuple[str, ...]) -> None:
    assert types_of(made, (HIGH, LARGE)) == types


@pytest.mark.parametrize("seed", range(10))
def test_a_pool_gets_hosts_of_its_class_alone_wherever_there_are_enough(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(50):
        hosts = [
            machine(
                f"h{at}",
                gpus=8,
                model=dice.choice(["NVIDIA H100", "NVIDIA A100"]),
                cpus=dice.choice([16, 32]),
                memory=128,
            )
            for at in range(dice.randint(1, 5))
        ]
        asked = [dice.choice([(), (HIGH,), (LARGE,)]) for _ in range(2)]
        gang = Gang(tuple(Pool(1, TASK, gpus=8, machines=each) for each in asked))
        found = plan(gang, may_have(gang, hosts))
        names = [
            {h.name for h in hosts if {m.name for m in each} <= set(types_of(h, (HIGH, LARGE)))} for each in asked
        ]
        fits = any(one != other for one in names[0] for other in names[1])
        assert isinstance(found, Plan) == fits, found
        if isinstance(found, Plan):
            assert all(name in among for name, among in zip(hosts_of(found), names, strict=True))


def test_words_name_the_class() -> None:
    gang = Gang((Pool(1, TASK, gpus=8, machines=(HIGH,)),))
    assert (
        why_not(plan(gang, [machine("a", gpus=4)])) == "needs a host that its pool may have (machine type a3-high)"
    )
    assert never_fits(gang, [machine("a", gpus=4)]) == ("", "")
    two = dataclasses.replace(gang, pools=(dataclasses.replace(gang.pools[0], replicas=2),))
    problem, _ = never_fits(two, [machine("a"), machine("b", gpus=4)])
    assert (
        "the only host that workerpool0 may have (machine type a3-high) has 8 GPUs in all, and this asks for 16"
        in problem
    )
    assert gang.hosts_in_words() == "workerpool0: machine type a3-high"
    assert len({gang.shape, Gang((Pool(1, TASK, gpus=8),)).shape}) == 2
    assert not gang.anywhere


def job(name: str) -> spec.JobSpec:
    pool = {"replicaCount": 1, "machineSpec": {"machineType": name}, "processSpec": {"command": ["x"]}}
    return spec.parse({"displayName": "d", "jobSpec": {"workerPoolSpecs": [pool]}}).job_spec


def test_a_name_is_a_class_once_some_are_declared_and_unknown_ones_are_refused_with_those_there_are() -> None:
    declared = JobDefaults(machine_types=(HIGH, LARGE))
    assert gang_of(job("a3-high"), declared).pools[0].machines == (HIGH,)
    assert gang_of(job(""), declared).pools[0].machines == ()
    assert gang_of(job("n1-standard-4")).pools[0].machines == ()
    with pytest.raises(InvalidSpec) as raised:
        gang_of(job("n1-standard-4"), declared)
    assert [str(each) for each in raised.value.violations] == [
        "jobSpec.workerPoolSpecs[0].machineSpec.machineType: n1-standard-4 is no machine type of the cluster "
        "(use one of a3-high, large, or leave it out)"
    ]


def test_the_note_that_a_machine_type_changes_nothing_is_there_only_where_none_is_declared() -> None:
    assert [each.path for each in spec.warnings(job("a3-high"))] == [
        "jobSpec.workerPoolSpecs[0].machineSpec.machineType"
    ]
    assert spec.warnings(job("a3-high"), machine_types=True) == []


@pytest.mark.parametrize(
    ("name", "table", "problem"),
    [
        ("a", MachineTypeConfig(), r"machine_types\.a would be every host there is\. Say which hosts"),
        ("", MachineTypeConfig(cpus=1), r"is no name\. Write 1 to 256"),
        (" a", MachineTypeConfig(cpus=1), "is no name"),
        (
            "a",
            MachineTypeConfig(match="x in ()"),
            r"machine_types\.a\.match: 'x in \(\)' is no condition on a label\. Write",
        ),
        (
            "a",
            MachineTypeConfig(match="x,!x"),
            r"machine_types\.a\.match holds for no host: what is asked of the label x",
        ),
        ("a", MachineTypeConfig(gpu_count=-1), r"machine_types\.a\.gpu_count is -1\. Write 0 to 1,024"),
        ("a", MachineTypeConfig(cpus=1 << 20), r"machine_types\.a\.cpus is 1048576"),
    ],
)
def test_a_class_that_can_not_be_is_refused(name: str, table: MachineTypeConfig, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        check_machine_types({name: table})


def test_a_class_of_the_settings_is_the_cores() -> None:
    table = MachineTypeConfig("!old", "NVIDIA_H100", 8)
    check_machine_types({"a3-high": table})
    assert machine_types_of({"a3-high": table}) == (HIGH,)


def test_a_reload_changes_what_hosts_are_shown_as_and_not_what_a_waiting_job_was_promised() -> None:
    world = World(policies=Policies(secret_key=b"k", machine_types=(HIGH,)))
    world.join("h1", machine("x", gpus=4).inventory)
    pool = Pool(1, TASK, gpus=1, machines=(HIGH,))
    world.submit("a", Gang((pool,)))
    assert why(world, "a") == "needs a host that its pool may have (machine type a3-high)" or "a3-high" in why(
        world, "a"
    )
    small = dataclasses.replace(HIGH, gpu_count=2)
    world.step(st.PoliciesChanged(dataclasses.replace(world.policies, machine_types=(small,))))
    assert list(host_to_proto(world.cluster, world.cluster.hosts["h1"], ()).machine_types) == ["a3-high"]
    assert not world.cluster.jobs["a"].places
    assert placed(world.join("h2", machine("y").inventory)) == ["a placed g1 on h2"]
