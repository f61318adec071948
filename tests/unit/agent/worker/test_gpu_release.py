"""When a generation's GPUs count as free, and what becomes of a place until they do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.agent.desired import FACTS, KEY, LAUNCH, RENDEZVOUS, desired

from holdfast._session.assignment import Phase
from holdfast._session.reports import Exit, ExitReason, ReportedState, WorkerReport
from holdfast_agent.core.launch.environment import plan_ranks
from holdfast_agent.core.model.gpus import Blind, GpuUsage
from holdfast_agent.core.worker import actions as act
from holdfast_agent.core.worker import events as ev
from holdfast_agent.core.worker.gpu_release import MIB, SLACK_BYTES, learn, still_held
from holdfast_agent.core.worker.reactor import Reactor

ZERO = ("GPU-0",)
HOST = "host-0: "
EMPTY_BYTES = 500 * MIB
HUNG = Blind("the GPU driver did not answer within 5 s")
SILENT = (
    "the GPU driver doesn't answer, so nothing is proven of its GPUs (the GPU driver did not answer within 5 s)"
)


def read(used: int | None, *pids: int, foreign: frozenset[int] = frozenset()) -> ev.GpusRead:
    return ev.GpusRead((GpuUsage("GPU-0", used, pids),), KEY, 1, foreign)


FREE = read(EMPTY_BYTES + SLACK_BYTES)
FULL = read(EMPTY_BYTES + 900 * MIB)
HOLDS = "GPU 0 (GPU-0) holds 900 MiB more than when it was empty"


class Agent:
    """A reactor with one worker that has a GPU."""

    def __init__(self, gpus: tuple[str, ...] = ZERO) -> None:
        self.reactor = Reactor(replace(FACTS, gpu_names={"GPU-0": "0"}))
        self.now = 100.0
        self.gpus = gpus
        self.on(ev.Welcomed(1))
        self.on(ev.GpusRead((GpuUsage("GPU-0", EMPTY_BYTES, ()),)))

    def on(self, event: ev.Event, later_s: float = 0.0) -> list[act.Action]:
        self.now += later_s
        return self.reactor.step(event, self.now)

    def running(self) -> list[act.Action]:
        launch = replace(LAUNCH, gpus=self.gpus)
        self.on(ev.Assigned(desired(Phase.PREPARE, launch=launch)))
        self.on(ev.WorkerPrepared(KEY, 1, 20000, 20001, 77))
        run = desired(Phase.RUN, launch=replace(launch, rendezvous=RENDEZVOUS))
        launched = self.on(ev.Assigned(run))
        assert launched == [act.LaunchRanks(KEY, 1, plan_ranks(run, self.reactor.facts), self.gpus)]
        return [action for rank in (0, 1) for action in self.on(ev.RankStarted(KEY, 1, rank, 1000 + rank))]

    def emptied(self) -> list[act.Action]:
        self.running()
        return self.on(ev.WorkerEmptied(KEY, 1))


def report(state: str, message: str = "") -> act.SendReport:
    return act.SendReport(WorkerReport(KEY, 1, 1, ReportedState[state], shim_pid=77, message=message))


def test_the_place_is_empty_only_after_a_look_that_finds_its_gpus_free() -> None:
    agent = Agent()
    assert agent.emptied() == [act.ReadGpus(KEY, 1)]
    assert agent.on(FREE) == [act.RememberFreed(KEY, 1), act.FreePorts(KEY), report("EMPTY")]


def test_a_place_without_gpus_is_empty_at_once() -> None:
    assert Agent(()).emptied() == [act.FreePorts(KEY), report("EMPTY")]


def test_looks_are_repeated_at_growing_pauses_and_the_reason_is_told_once() -> None:
    agent = Agent()
    agent.emptied()
    assert agent.on(FULL) == [act.ReadGpus(KEY, 1, 0.05), report("STOPPING", HOST + HOLDS)]
    pauses = [agent.on(FULL, 0.1) for _ in range(7)]
    assert pauses == [[act.ReadGpus(KEY, 1, pause)] for pause in (0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0)]
    assert agent.on(FREE)[-1] == report("EMPTY")


def test_what_takes_long_is_stuck_and_goes_on_when_it_clears() -> None:
    agent = Agent()
    agent.emptied()
    agent.on(FULL)
    assert agent.on(FULL, 10.0) == [act.ReadGpus(KEY, 1, 2.0), report("STUCK", HOST + HOLDS)]
    assert agent.on(FULL, 2.0) == [act.ReadGpus(KEY, 1, 2.0)]
    less = read(EMPTY_BYTES + 300 * MIB)
    assert agent.on(less, 2.0)[-1] == report("STUCK", HOST + HOLDS.replace("900", "300"))
    assert agent.on(FREE, 2.0) == [act.RememberFreed(KEY, 1), act.FreePorts(KEY), report("EMPTY")]


def test_a_driver_that_does_not_answer_withholds_the_place_until_it_does() -> None:
    agent = Agent()
    agent.emptied()
    blind = ev.GpusRead(HUNG, KEY, 1)
    assert agent.on(blind, 5.0) == [act.ReadGpus(KEY, 1, 0.05), report("STOPPING", HOST + SILENT)]
    assert agent.on(blind, 5.0) == [act.ReadGpus(KEY, 1, 2.0), report("STUCK", HOST + SILENT)]
    assert agent.on(FREE, 600.0)[-1] == report("EMPTY")


def test_the_next_generation_waits_for_the_gpus() -> None:
    agent = Agent()
    agent.emptied()
    agent.on(FULL)
    wanted = desired(Phase.PREPARE, 2, launch=replace(LAUNCH, gpus=ZERO))
    assert agent.on(ev.Assigned(wanted)) == [report("STOPPING", HOST + HOLDS)]
    assert act.Prepare(wanted, known_good=True) in agent.on(FREE)


def test_a_launch_that_is_said_again_names_the_gpus_and_the_memory_again() -> None:
    agent = Agent()
    launch = replace(LAUNCH, gpus=ZERO, memory_mb=4096)
    agent.on(ev.Assigned(desired(Phase.PREPARE, launch=launch)))
    agent.on(ev.WorkerPrepared(KEY, 1, 20000, 20001, 77))
    said = agent.on(ev.Assigned(desired(Phase.RUN, launch=replace(launch, rendezvous=RENDEZVOUS))))
    assert isinstance(said[0], act.LaunchRanks)
    assert (said[0].gpus, said[0].memory_mb) == (ZERO, 4096)
    assert agent.on(ev.ShimGreeted(KEY, 77, 0, live=False)) == said


def test_nothing_that_a_shim_says_meanwhile_makes_the_place_empty() -> None:
    agent = Agent()
    agent.emptied()
    agent.on(FULL)
    for event in (
        ev.WorkerEmptied(KEY, 1),
        ev.WorkerEmptied(KEY, 2),
        ev.ShimGreeted(KEY, 77, 1, live=False),
        ev.ShimLost(KEY),
        ev.WorkerStuck(KEY, 1, "late"),
        ev.Assigned(desired(Phase.STOP)),
    ):
        assert [action for action in agent.on(event) if not isinstance(action, act.SendReport)] == []
    assert agent.on(FREE)[0] == act.RememberFreed(KEY, 1)


def test_a_place_found_with_gpus_that_were_not_proven_free_is_looked_at() -> None:
    journal = ev.Journal(1, (0,), ((0, 1000),), (Exit(1, 1, 0, ExitReason.COMPLETED, 0),), empty=True, gpus=ZERO)
    found = ev.WorkerFound(KEY, ((1, 1),), (journal,), frozenset({(1, 0)}), 77)
    assert Reactor(FACTS).step(found, 5.0) == [act.ReadGpus(KEY, 1)]
    assert Reactor(FACTS).step(replace(found, freed=1), 5.0) == []
    assert Reactor(FACTS).step(replace(found, journals=(replace(journal, other_boot=True),)), 5.0) == []
    agent = Reactor(FACTS)
    agent.step(found, 5.0)
    agent.step(ev.Welcomed(1), 5.0)
    assert agent.step(FREE, 5.0)[-2:] == [act.FreePorts(KEY), report("EMPTY")]


def test_a_place_found_running_knows_its_gpus() -> None:
    journal = ev.Journal(1, (0,), ((0, 1000),), gpus=ZERO)
    agent = Reactor(FACTS)
    agent.step(ev.WorkerFound(KEY, ((1, 1),), (journal,), frozenset(), 77), 5.0)
    assert agent.step(ev.WorkerEmptied(KEY, 1), 6.0) == [act.ReadGpus(KEY, 1)]


# -- what counts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (read(EMPTY_BYTES), ""),
        (read(EMPTY_BYTES + SLACK_BYTES), ""),
        (read(EMPTY_BYTES + SLACK_BYTES + 1), "GPU 0 (GPU-0) holds 64 MiB more than when it was empty"),
        (read(EMPTY_BYTES, 7), "GPU 0 (GPU-0) is used by process 7"),
        (read(EMPTY_BYTES, 7, foreign=frozenset({7})), ""),
        (read(EMPTY_BYTES, 7, 8, foreign=frozenset({7})), "GPU 0 (GPU-0) is used by process 8"),
        (
            read(EMPTY_BYTES + 900 * MIB, *range(1, 11)),
            HOLDS + " and is used by processes 1, 2, 3, 4, 5, 6, 7, 8, ...",
        ),
        (read(None), ""),
        (ev.GpusRead((GpuUsage("GPU-0", None, None),), KEY), ""),
        (ev.GpusRead((GpuUsage("GPU-0", EMPTY_BYTES + 900 * MIB, None),), KEY), HOLDS),
        (ev.GpusRead((), KEY), ""),
        (ev.GpusRead((GpuUsage("GPU-1", 1 << 40, (5,)),), KEY), ""),
        (ev.GpusRead(HUNG, KEY), SILENT),
    ],
)
def test_what_keeps_a_gpu_from_being_free(now: ev.GpusRead, words: str) -> None:
    assert still_held(ZERO, now, {"GPU-0": EMPTY_BYTES}, {"GPU-0": "0"}) == words


def test_every_gpu_that_is_held_is_named() -> None:
    usage = (GpuUsage("GPU-0", 0, (5,)), GpuUsage("GPU-1", 0, ()), GpuUsage("MIG-a", 200 * MIB, ()))
    said = still_held(("GPU-0", "GPU-1", "MIG-a"), ev.GpusRead(usage), {"MIG-a": 0}, {"MIG-a": "MIG-a"})
    assert said == "GPU GPU-0 is used by process 5; GPU MIG-a holds 200 MiB more than when it was empty"


def test_a_gpu_whose_empty_figure_is_unknown_counts_by_its_processes_alone() -> None:
    assert still_held(ZERO, FULL, {}, {}) == ""
    assert still_held(ZERO, read(EMPTY_BYTES, 7), {}, {}) == "GPU GPU-0 is used by process 7"


def test_the_lowest_figure_of_an_unused_gpu_is_kept() -> None:
    unused: dict[str, int] = {}
    assert not learn(unused, [GpuUsage("GPU-0", 800 * MIB, (5,)), GpuUsage("GPU-1", None, ())])
    assert not learn(unused, [GpuUsage("GPU-0", 800 * MIB, None)])
    assert unused == {}
    assert learn(unused, [GpuUsage("GPU-0", 800 * MIB, ())])
    assert learn(unused, [GpuUsage("GPU-0", 500 * MIB, ())])
    assert not learn(unused, [GpuUsage("GPU-0", 500 * MIB - 1, ())])
    assert not learn(unused, [GpuUsage("GPU-0", 600 * MIB, ())])
    assert unused == {"GPU-0": 500 * MIB}


def test_a_new_lowest_figure_is_remembered_on_disk() -> None:
    agent = Agent()
    lower = ev.GpusRead((GpuUsage("GPU-0", 100 * MIB, ()), GpuUsage("GPU-1", 7, ())))
    assert agent.on(lower) == [act.RememberUnused((("GPU-0", 100 * MIB), ("GPU-1", 7)))]
    assert agent.on(lower) == []
    assert agent.on(ev.GpusRead(HUNG)) == []


OWN, OTHER = frozenset({1000}), frozenset({1001})


@pytest.mark.parametrize(
    ("now", "survivors", "words"),
    [
        (read(EMPTY_BYTES + 900 * MIB, 1000), OWN, ""),
        (read(EMPTY_BYTES + 900 * MIB, 1000, 7), OWN, "GPU 0 (GPU-0) is used by process 7"),
        (read(EMPTY_BYTES + 900 * MIB), OWN, HOLDS),
        (read(EMPTY_BYTES + 900 * MIB, 1000), OTHER, f"{HOLDS} and is used by process 1000"),
        (ev.GpusRead((GpuUsage("GPU-0", EMPTY_BYTES + 900 * MIB, None),), KEY, 1), OWN, ""),
        (ev.GpusRead((GpuUsage("GPU-0", EMPTY_BYTES + 900 * MIB, None),), KEY, 1), frozenset(), HOLDS),
    ],
)
def test_a_survivor_may_hold_its_own_gpu_alone(now: ev.GpusRead, survivors: frozenset[int], words: str) -> None:
    assert still_held(ZERO, now, {"GPU-0": EMPTY_BYTES}, {"GPU-0": "0"}, survivors) == words


def test_the_place_is_empty_while_a_survivor_holds_its_gpu_and_the_next_check_knows_it() -> None:
    agent = Agent()
    agent.running()
    agent.on(ev.WarmStartNoted(KEY, 0, "1 of 2 ranks wait to go on", OWN))
    agent.on(ev.WorkerEmptied(KEY, 1))
    told = agent.on(read(EMPTY_BYTES + 900 * MIB, 1000))
    assert act.RememberFreed(KEY, 1) in told
    launch = replace(LAUNCH, gpus=agent.gpus)
    told = agent.on(ev.Assigned(desired(Phase.PREPARE, 2, launch=launch)))
    assert [action.survivors for action in told if isinstance(action, act.Prepare)] == [OWN]
