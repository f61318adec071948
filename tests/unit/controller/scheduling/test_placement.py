"""Where gangs go."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.work import calls_of
from tests.unit.controller.examples import host

from holdfast_controller.core.model.gang import Gang, Pool, Task
from holdfast_controller.core.model.hosts.capacity import capacity_of, model_matches
from holdfast_controller.core.model.hosts.host import Allocation, Host
from holdfast_controller.core.scheduling.placement import Plan, Wait, plan, plan_in

TASK = Task(("x",))


def hosts_of(found: Plan | Wait) -> list[str]:
    assert isinstance(found, Plan), found
    return [place.host for place in found.places]


def why(found: Plan | Wait) -> str:
    assert isinstance(found, Wait)
    return found.reason


def test_workers_with_gpus_are_packed_onto_the_fullest_host_that_fits() -> None:
    hosts = [host("empty", gpus=8), host("fuller", gpus=8)]
    hosts[1].allocations["b/0"] = Allocation(0, 0, tuple(f"fuller-{i}" for i in range(4)))
    found = plan(Gang((Pool(1, TASK, gpus=2),)), hosts)
    assert isinstance(found, Plan)
    assert found.places[0].host == "fuller"
    assert found.places[0].gpus == ("fuller-4", "fuller-5")


def test_workers_without_gpus_are_spread() -> None:
    assert sorted(hosts_of(plan(Gang((Pool(4, TASK),)), [host("a"), host("b")]))) == ["a", "a", "b", "b"]


def test_emptier_hosts_come_first_for_workers_without_gpus() -> None:
    hosts = [host("a"), host("b")]
    hosts[0].allocations["x/0"] = Allocation(1, 1, ())
    assert hosts_of(plan(Gang((Pool(1, TASK),)), hosts)) == ["b"]


def test_large_workers_choose_before_small_ones_and_places_keep_gang_order() -> None:
    gang = Gang((Pool(1, TASK, gpus=1), Pool(1, TASK, gpus=4)))
    assert hosts_of(plan(gang, [host("four", gpus=4), host("one", gpus=1)])) == ["one", "four"]


def test_pools_that_name_a_model_choose_before_those_that_take_any() -> None:
    gang = Gang((Pool(1, TASK, gpus=4), Pool(1, TASK, gpus=2, gpu_type="NVIDIA_H100_80GB")))
    hosts = [host("a", gpus=4, model="NVIDIA H100 80GB HBM3"), host("b", gpus=4, model="NVIDIA A100-SXM4-40GB")]
    assert hosts_of(plan(gang, hosts)) == ["b", "a"]


@pytest.mark.parametrize(
    ("wanted", "model", "matches"),
    [
        ("", "anything", True),
        ("NVIDIA_H100_80GB", "NVIDIA H100 80GB HBM3", True),
        ("nvidia-tesla-t4", "Tesla T4", True),
        ("NVIDIA_TESLA_V100", "Tesla V100-SXM2-16GB", True),
        ("NVIDIA_A100_80GB", "NVIDIA A100-SXM4-40GB", False),
        ("H100", "NVIDIA H200", False),
        *((wanted, "NVIDIA H100 80GB HBM3", True) for wanted in ("NVIDIA_H100_80GB", "NVIDIA_H100_MEGA_80GB")),
        ("NVIDIA_H100_MEGA_80GB", "NVIDIA H100 PCIe", True),
        ("NVIDIA_H100_80GB", "NVIDIA H200", False),
        ("NVIDIA_H200_141GB", "NVIDIA H200", True),
        ("NVIDIA_H200_141GB", "NVIDIA H200 NVL", True),
        ("NVIDIA_H200_141GB", "NVIDIA H100 80GB HBM3", False),
        ("NVIDIA_H200_141GB", "NVIDIA GH200 144G HBM3e", False),
        ("NVIDIA_TESLA_A100", "NVIDIA A100-SXM4-40GB", True),
        ("NVIDIA_A100_80GB", "NVIDIA A100 80GB PCIe", True),
        ("NVIDIA_L4", "NVIDIA L40S", False),
        ("NVIDIA_B200", "NVIDIA GB200", False),
        ("NVIDIA_RTX_PRO_6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition", True),
        ("NVIDIA_H100_MIG_1g.10gb", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", True),
        ("NVIDIA_H100_MIG_1g.10gb", "NVIDIA H100 80GB HBM3", False),
        ("80GB", "NVIDIA H200", True),
        ("NVIDIA_TESLA_T4", "Simulated GPU", True),
    ],
)
def test_gpu_models_are_matched_by_their_words(wanted: str, model: str, matches: bool) -> None:
    assert model_matches(wanted, model) is matches


def test_skipped_pools_ask_for_nothing() -> None:
    gang = Gang((Pool(1, TASK, gpus=1), Pool(0, Task(())), Pool(1, TASK), Pool(0, Task(()))))
    assert hosts_of(plan(gang, [host("a", gpus=1)])) == ["a", "a"]


def test_gpus_with_a_problem_are_not_given_away() -> None:
    sick = host("a", gpus=2)
    gpus = (dataclasses.replace(sick.inventory.gpus[0], problem="Xid 79"), sick.inventory.gpus[1])
    sick.inventory = dataclasses.replace(sick.inventory, gpus=gpus)
    found = plan(Gang((Pool(1, TASK, gpus=1),)), [sick])
    assert isinstance(found, Plan)
    assert found.places[0].gpus == ("a-1",)
    assert "2 GPUs on one host (1 free on the best, a)" in why(plan(Gang((Pool(1, TASK, gpus=2),)), [sick]))
    assert len(capacity_of(sick, empty=True).gpus) == 2


def test_no_gpu_of_a_host_whose_driver_does_not_answer_is_given_away() -> None:
    deaf = host("a", gpus=2)
    deaf.inventory = dataclasses.replace(deaf.inventory, gpu_problem="NVML does not answer")
    assert capacity_of(deaf).gpus == []
    assert len(capacity_of(deaf, empty=True).gpus) == 2
    assert hosts_of(plan(Gang((Pool(1, TASK),)), [deaf])) == ["a"]


@pytest.mark.parametrize(
    ("pool", "reason"),
    [
        (Pool(1, TASK, gpus=5), "needs 5 GPUs on one host (4 free on the best, a)"),
        (Pool(1, TASK, gpus=1, gpu_type="T4"), "needs 1 T4 GPU on one host (0 free on the best)"),
        (Pool(1, TASK, cpus=17), "needs 17 cores on one host (16 free on the best)"),
        (Pool(1, TASK, memory_mb=70_000), "needs 70000 MiB on one host (65536 free on the best)"),
        (Pool(2, TASK, gpus=4), "needs 4 GPUs on one host (0 free on the best); 1 of 2 workers would fit now"),
        (Pool(4, TASK), "needs a free worker slot; 3 of 4 workers would fit now"),
        (
            Pool(1, TASK, cpus=20, gpus=5),
            "needs 5 GPUs on one host (4 free on the best, a) and 20 cores on one host (16 free on the best)",
        ),
    ],
)
def test_reason_says_what_lacks(pool: Pool, reason: str) -> None:
    assert why(plan(Gang((pool,)), [host("a", gpus=4, slots=3)])) == reason


def test_reason_when_each_thing_is_there_but_not_on_one_host() -> None:
    hosts = [host("a", gpus=4, cpus=1), host("b", cpus=16)]
    assert (
        why(plan(Gang((Pool(1, TASK, cpus=8, gpus=1),)), hosts))
        == "needs a host with room for all it asks for at once"
    )


def test_reason_without_hosts() -> None:
    assert why(plan(Gang((Pool(1, TASK),)), [])) == "no host takes work at present"


def test_host_that_shrank_below_its_allocations_takes_nothing() -> None:
    small = host("a", cpus=1, slots=1)
    small.allocations["x/0"] = Allocation(8, 100_000, ())
    assert isinstance(plan(Gang((Pool(1, TASK, cpus=1),)), [small]), Wait)


pools = st.builds(
    Pool,
    st.integers(1, 5),
    st.just(TASK),
    cpus=st.integers(0, 20),
    memory_mb=st.integers(0, 70_000),
    gpus=st.integers(0, 5),
    gpu_type=st.sampled_from(["", "H100", "A100"]),
)
clusters = st.lists(
    st.tuples(
        st.integers(0, 4), st.sampled_from(["NVIDIA H100", "NVIDIA A100"]), st.integers(1, 20), st.integers(1, 5)
    ),
    min_size=1,
    max_size=5,
)


def _hosts(shapes: list[tuple[int, str, int, int]]) -> list[Host]:
    return [
        host(f"h{i}", gpus=gpus, model=model, cpus=cpus, slots=slots)
        for i, (gpus, model, cpus, slots) in enumerate(shapes)
    ]


@settings(max_examples=150, deadline=None)
@given(st.lists(pools, min_size=1, max_size=3), clusters)
def test_a_plan_fits_and_a_refusal_has_words(asked: list[Pool], shapes: list[tuple[int, str, int, int]]) -> None:
    gang, hosts = Gang(tuple(asked)), _hosts(shapes)
    found = plan(gang, hosts)
    if isinstance(found, Wait):
        assert found.reason
        return
    assert len(found.places) == len(gang.members)
    for at in hosts:
        mine = [(gang.pool_of(m), p) for m, p in zip(gang.members, found.places, strict=True) if p.host == at.name]
        granted = [gpu for _, place in mine for gpu in place.gpus]
        assert len(granted) == len(set(granted))
        assert set(granted) <= {gpu.uuid for gpu in at.inventory.gpus}
        assert all(len(place.gpus) == pool.gpus for pool, place in mine)
        assert all(model_matches(pool.gpu_type, at.inventory.gpus[0].model) for pool, place in mine if place.gpus)
        assert sum(pool.cpus for pool, _ in mine) <= at.inventory.cpus
        assert sum(pool.memory_mb for pool, _ in mine) << 20 <= at.inventory.memory_bytes
        assert len(mine) <= at.inventory.max_workers


@settings(max_examples=50, deadline=None)
@given(st.lists(pools, min_size=1, max_size=3), clusters)
def test_same_question_same_answer(asked: list[Pool], shapes: list[tuple[int, str, int, int]]) -> None:
    gang = Gang(tuple(asked))
    assert plan(gang, _hosts(shapes)) == plan_in(gang, [capacity_of(at) for at in _hosts(shapes)])


def test_a_thousand_hosts_are_planned_in_a_few_looks_at_each() -> None:
    hosts = [host(f"h{i:04}", gpus=8) for i in range(1000)]
    gang = Gang((Pool(1, TASK, gpus=8), Pool(255, TASK, gpus=8, gpu_type="H100")))
    assert isinstance(plan(gang, hosts), Plan)
    assert calls_of(lambda: plan(gang, hosts)) < 150 * len(hosts)


def test_containers_go_where_containers_run() -> None:
    with_podman, without = host("a"), host("b")
    with_podman.inventory = dataclasses.replace(with_podman.inventory, no_containers="")
    without.inventory = dataclasses.replace(without.inventory, no_containers="podman is not installed")
    boxed = Gang((Pool(3, Task((), image="x")),))
    assert hosts_of(plan(boxed, [with_podman, without])) == ["a"] * 3
    assert why(plan(boxed, [without])) == "needs a host that runs containers (b: podman is not installed)"
    with_podman.allocations["j/0"] = Allocation(16, 0, ())
    greedy = Gang((Pool(1, Task((), image="x"), cpus=8),))
    assert why(plan(greedy, [with_podman, without])) == "needs 8 cores on one host (0 free on the best)"
    assert hosts_of(plan(Gang((Pool(1, TASK),)), [without])) == ["b"]
    assert boxed.shape != Gang((Pool(3, TASK),)).shape


def test_work_with_an_account_goes_where_the_agent_can_become_somebody() -> None:
    able, unable = host("a"), host("b")
    able.inventory = dataclasses.replace(able.inventory, no_accounts="")
    unable.inventory = dataclasses.replace(unable.inventory, no_accounts="its agent is not root")
    anns = Gang((Pool(3, TASK),)).running_as("ann")
    assert hosts_of(plan(anns, [able, unable])) == ["a"] * 3
    assert why(plan(anns, [unable])) == "needs a host that starts workers as ann (b: its agent is not root)"
    assert hosts_of(plan(Gang((Pool(1, TASK),)), [unable])) == ["b"]
    assert anns.shape != Gang((Pool(3, TASK),)).shape
    able.allocations["j/0"] = Allocation(16, 0, ())
    greedy = Gang((Pool(1, TASK, cpus=8),)).running_as("ann")
    assert why(plan(greedy, [able, unable])) == "needs 8 cores on one host (0 free on the best)"
    boxed = Gang((Pool(1, Task((), image="x")),)).running_as("ann")
    able.inventory = dataclasses.replace(able.inventory, no_containers="podman is not installed")
    assert "a host" in why(plan(boxed, [able, unable]))
