"""What ranks are bound to: chosen at the launch, reported, and known again after the agent's restart."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.agent.desired import FACTS, KEY, LAUNCH, RENDEZVOUS, desired

from holdfast._base.job_file.choices import NumaBinding
from holdfast._session.assignment import Assignment, Phase
from holdfast._session.reports import RankBinding, WorkerId, WorkerReport
from holdfast_agent.core.model.gpus import GpuUsage
from holdfast_agent.core.model.topology import Core, Device, Topology
from holdfast_agent.core.worker import actions as act
from holdfast_agent.core.worker import events as ev
from holdfast_agent.core.worker.reactor import Reactor

OTHER = WorkerId("job-2", "workerpool0-0")
TOPOLOGY = Topology(
    cores=tuple(Core((number,), number // 8) for number in range(16)),
    gpus={f"GPU-{number}": Device(f"GPU-{number}", number // 2) for number in range(4)},
    nics=(Device("mlx5_0", 1), Device("mlx5_1", 0)),
)
HOST = replace(FACTS, topology=TOPOLOGY)


def wanted(
    phase: Phase,
    generation: int = 1,
    *,
    key: WorkerId = KEY,
    mode: NumaBinding = NumaBinding.EXCLUSIVE,
    gpus: tuple[str, ...] = ("GPU-0", "GPU-2"),
    cpus: int = 8,
) -> Assignment:
    launch = replace(LAUNCH, gpus=gpus, numa_binding=mode, cpu_count=cpus, processes=2)
    run = replace(launch, rendezvous=RENDEZVOUS if phase is Phase.RUN else None)
    return desired(phase, generation, key=key, launch=run if phase in (Phase.PREPARE, Phase.RUN) else None)


def launched(agent: Reactor, generation: int = 1, key: WorkerId = KEY, **changes: object) -> act.LaunchRanks:
    """The order to start the worker's ranks, which then run."""
    agent.step(ev.Assigned(wanted(Phase.PREPARE, generation, key=key, **changes)), 1.0)  # type: ignore[arg-type]
    agent.step(ev.WorkerPrepared(key, generation, 20000, 20001, 77), 1.0)
    actions = agent.step(ev.Assigned(wanted(Phase.RUN, generation, key=key, **changes)), 1.0)  # type: ignore[arg-type]
    (order,) = (each for each in actions if isinstance(each, act.LaunchRanks))
    return order


def running(agent: Reactor, generation: int = 1, key: WorkerId = KEY, **changes: object) -> WorkerReport:
    launched(agent, generation, key, **changes)
    told: list[act.Action] = []
    for rank in (0, 1):
        told += agent.step(ev.RankStarted(key, generation, rank, 1000 + rank), 1.0)
    return next(each.report for each in told if isinstance(each, act.SendReport))


def host() -> Reactor:
    made = Reactor(HOST)
    made.step(ev.Welcomed(1), 1.0)
    return made


def cpus(report: WorkerReport) -> list[str]:
    return [each.cpus for _, each in report.bindings]


def test_each_rank_is_ordered_and_reported_with_its_binding() -> None:
    order = launched(host())
    assert [each.binding for each in order.ranks] == [
        RankBinding("0-3", True, "0", ("mlx5_1", "mlx5_0")),
        RankBinding("8-11", True, "1", ("mlx5_0", "mlx5_1")),
    ]
    assert [each.env["HOLDFAST_NICS"] for each in order.ranks] == ["mlx5_1,mlx5_0", "mlx5_0,mlx5_1"]
    assert [each.env["OMP_NUM_THREADS"] for each in order.ranks] == ["4", "4"]
    report = running(host())
    assert cpus(report) == ["0-3", "8-11"]


def test_a_job_that_asks_for_none_is_not_bound_and_not_told_of_cards() -> None:
    order = launched(host(), mode=NumaBinding.NONE)
    assert [each.binding for each in order.ranks] == [None, None]
    assert not any("HOLDFAST_NICS" in each.env for each in order.ranks)
    assert running(host(), mode=NumaBinding.NONE).bindings == ()


def test_workers_have_different_cores_until_one_has_gone() -> None:
    agent = host()
    assert cpus(running(agent)) == ["0-3", "8-11"]
    assert cpus(running(agent, key=OTHER)) == ["4-7", "12-15"]
    third = WorkerId("job-3", "workerpool0-0")
    (shared, _) = (each.binding for each in launched(agent, key=third).ranks)
    assert shared == RankBinding("0-7", False, "0", ("mlx5_1", "mlx5_0"), "no cores of its own: 0 of 8 are free")
    agent.step(ev.Assigned(wanted(Phase.STOP)), 2.0)
    assert agent.bound_but(agent.workers[OTHER]) == {0, 1, 2, 3, 8, 9, 10, 11}, "it is not empty yet"
    agent.step(ev.WorkerEmptied(KEY, 1), 3.0)
    assert agent.bound_but(agent.workers[OTHER]) == frozenset()


def test_a_worker_keeps_its_cores_over_a_restart_in_place() -> None:
    agent = host()
    running(agent)
    agent.step(ev.Assigned(wanted(Phase.PREPARE, 2)), 2.0)
    agent.step(ev.WorkerEmptied(KEY, 1), 2.0)
    agent.step(ev.GpusRead(tuple(GpuUsage(f"GPU-{each}", 0, ()) for each in (0, 2)), KEY, 1), 2.0)
    assert cpus(running(agent, key=OTHER)) == ["4-7", "12-15"], (
        "those of a worker between two generations are its own"
    )
    assert cpus(running(agent, 2)) == ["0-3", "8-11"]


def test_shared_cores_are_no_others_loss() -> None:
    agent = host()
    assert cpus(running(agent, mode=NumaBinding.NODE)) == ["0-7", "8-15"]
    assert cpus(running(agent, key=OTHER)) == ["0-3", "8-11"]


def test_after_its_restart_the_agent_knows_whose_cores_are_whose() -> None:
    before = host()
    order = launched(before)
    bindings = tuple((each.rank, each.binding) for each in order.ranks if each.binding is not None)
    agent = Reactor(HOST)
    started = ((0, 1000), (1, 1001))
    journal = ev.Journal(1, (0, 1), started, forked=True, gpus=("GPU-0", "GPU-2"), bindings=bindings)
    agent.step(ev.WorkerFound(KEY, ((1, 1),), (journal,), frozenset(), 77), 1.0)
    agent.step(ev.Welcomed(1), 1.0)
    assert agent.workers[KEY].report().bindings == bindings
    assert cpus(running(agent, key=OTHER)) == ["4-7", "12-15"]


def test_an_order_that_got_lost_is_given_again_as_it_was() -> None:
    agent = host()
    order = launched(agent)
    (again,) = agent.step(ev.ShimGreeted(KEY, 77, 0, live=False), 2.0)
    assert again == order


def test_no_rank_is_told_to_use_more_threads_than_it_has_cpus() -> None:
    for mode, threads in ((NumaBinding.NONE, "16"), (NumaBinding.NODE, "8"), (NumaBinding.EXCLUSIVE, "4")):
        launch = replace(LAUNCH, gpus=("GPU-0",), processes=1, numa_binding=mode, rendezvous=RENDEZVOUS)
        agent = host()
        agent.step(ev.Assigned(desired(Phase.PREPARE, launch=launch)), 1.0)
        agent.step(ev.WorkerPrepared(KEY, 1, 20000, 20001, 77), 1.0)
        (order,) = agent.step(ev.Assigned(desired(Phase.RUN, launch=launch)), 1.0)
        assert isinstance(order, act.LaunchRanks)
        assert order.ranks[0].env["OMP_NUM_THREADS"] == threads, mode


def test_a_shim_of_an_earlier_release_binds_nothing_and_the_report_says_so() -> None:
    agent = host()
    agent.step(ev.Assigned(wanted(Phase.PREPARE)), 1.0)
    agent.step(ev.WorkerPrepared(KEY, 1, 20000, 20001, 77, binds=False), 1.0)
    (order,) = agent.step(ev.Assigned(wanted(Phase.RUN)), 1.0)
    assert isinstance(order, act.LaunchRanks)
    bindings = [each.binding for each in order.ranks if each.binding]
    assert [(each.cpus, each.exclusive, each.nics[0]) for each in bindings] == [
        ("", False, "mlx5_1"),
        ("", False, "mlx5_0"),
    ]
    assert all("earlier release" in each.note for each in bindings)
    assert cpus(running(agent, key=OTHER)) == ["0-3", "8-11"], "it holds none"
