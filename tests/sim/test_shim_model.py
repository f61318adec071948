"""The model of the shim against the real one: the same orders, the same answers and the same journal."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.shim.conftest import Shim as RealShim
from tests.sim.cluster.programs import Script
from tests.sim.cluster.shim_model import Shim
from tests.sim.cluster.world import World
from tests.sim.faults import Weights
from tests.sim.plan import Plan

from holdfast._session.reports import ExitReason, WorkerId, decode_status
from holdfast_agent.core.model.launch import RankLaunch
from holdfast_agent.core.worker import actions as act
from holdfast_agent.core.worker import events as ev
from holdfast_controller.core.model.gang import Gang, Pool, Task

KEY = WorkerId("job", "workerpool0-0")
Told = list[tuple[Any, ...]]
QUICK, SLEEPS, FAILS = "exit 0", "exec sleep 1000", "exit 3"


class Real:
    """A real shim; answers as (kind, generation, rank, reason)."""

    def __init__(self, directory: Path) -> None:
        self.shim = RealShim(directory / "worker")
        self.told: Told = []
        self.heard(self.shim.assign())

    def heard(self, message: dict[str, Any]) -> None:
        kind, generation = message["ev"], message["generation"]
        match kind:
            case "hello":
                self.told.append((kind, generation, message["phase"] in ("running", "stopping")))
            case "exited":
                code = decode_status(message["status"])[:2]
                self.told.append((kind, generation, message["rank"], code, message["reason"]))
            case "started":
                self.told.append((kind, generation, message["rank"]))
            case "refused" | "empty":
                self.told.append((kind, generation))
            case _:
                pass

    def until(self, kind: str) -> None:
        for message in self.shim.until(kind):
            self.heard(message)

    def launch(self, generation: int, script: str, fence: tuple[float, float] = (0.0, 0.0)) -> None:
        rank = self.shim.sh(script, generation=generation)
        self.shim.launch(generation, rank, fence_s=fence[0], fence_deadline=fence[1])

    def stop(self, generation: int) -> None:
        self.shim.stop(generation, 10.0)

    def connect(self) -> None:
        self.heard(self.shim.connect())

    def journal(self, generation: int) -> list[str]:
        names = (type(record).__name__.lower() for record in self.shim.journal(generation))
        return ["exited" if name == "exit" else name for name in names]

    def close(self) -> None:
        self.shim.clean_up()


class Model:
    """The same of the model, in a world of its own."""

    def __init__(self) -> None:
        plan = Plan(0, 0, Weights(), (1.0,), 1.0, 1.0, (), probe=False)
        self.world = World(plan)
        self.world.jobs["job"] = Gang((Pool(1, Task(("x",))),))
        quiet = lambda *_: None  # noqa: E731
        for check in ("on_spawn", "on_signal", "on_told"):
            setattr(self.world.oracles, check, quiet)
        self.host = self.world.hosts["host-0"]
        assert self.host.agent is not None
        self.host.agent.end()
        self.host.agent = None  # this test is in its place
        self.told: Told = []
        self.shim: Shim = self.host.new_shim(KEY)
        self.shim.connect(self.heard)

    def heard(self, message: Any) -> None:
        match message:
            case ev.ShimGreeted(generation=generation, live=live):
                self.told.append(("hello", generation, live))
            case ev.RankExited(exit=exit_):
                code = exit_.exit_code, exit_.signal
                self.told.append(("exited", exit_.generation, exit_.rank, code, exit_.reason.value))
            case ev.RankStarted(generation=generation, rank=rank):
                self.told.append(("started", generation, rank))
            case ev.LaunchRefused(generation=generation):
                self.told.append(("refused", generation))
            case ev.WorkerEmptied(generation=generation):
                self.told.append(("empty", generation))

    def until(self, kind: str) -> None:
        before = len([told for told in self.told if told[0] == kind])
        if self.told and self.told[-1][0] == kind:
            return  # the model answers at once
        self.world.engine.run(self.world.engine.now + 30.0)
        assert len([told for told in self.told if told[0] == kind]) > before

    def launch(self, generation: int, script: str, fence: tuple[float, float] = (0.0, 0.0)) -> None:
        lasts, status = {QUICK: (0.1, 0), SLEEPS: (1e6, 0), FAILS: (0.1, 3 << 8)}[script]
        bad = 0 if status else None
        self.world.programs.scripts["job", generation] = Script(lasts, bad, status)
        rank = RankLaunch(0, ("x",), {}, "/", "/out", "/err")
        self.shim.hear(act.LaunchRanks(KEY, generation, (rank,), (), 0, *fence))

    def stop(self, generation: int) -> None:
        self.shim.hear(act.StopRanks(KEY, generation, 10.0, ExitReason.STOPPED))

    def connect(self) -> None:
        self.shim.connect(self.heard)

    def journal(self, generation: int) -> list[str]:
        return [record[0] for record in self.host.disk.read(KEY, f"g{generation}")]


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Real]:
    found = Real(tmp_path)
    yield found
    found.close()


def _ends_by_itself(shim: Real | Model) -> None:
    shim.launch(1, QUICK)
    shim.until("empty")


def _fails_and_goes_on(shim: Real | Model) -> None:
    shim.launch(1, FAILS)
    shim.until("empty")
    shim.launch(2, QUICK)
    shim.until("empty")


def _is_stopped(shim: Real | Model) -> None:
    shim.launch(1, SLEEPS)
    shim.until("started")
    shim.stop(1)
    shim.until("empty")


def _is_asked_twice(shim: Real | Model) -> None:
    shim.launch(1, SLEEPS)
    shim.until("started")
    shim.launch(1, SLEEPS)
    shim.until("refused")
    shim.launch(2, SLEEPS)
    shim.until("refused")
    shim.stop(1)
    shim.until("empty")


def _has_nothing_to_stop(shim: Real | Model) -> None:
    shim.stop(3)
    shim.until("empty")


def _tells_it_again(shim: Real | Model) -> None:
    shim.launch(1, QUICK)
    shim.until("empty")
    shim.connect()
    shim.until("empty")


def _comes_after_its_deadline(shim: Real | Model) -> None:
    shim.launch(1, SLEEPS, (60.0, 0.5))
    shim.until("refused")


STORIES = [
    _ends_by_itself,
    _fails_and_goes_on,
    _is_stopped,
    _is_asked_twice,
    _has_nothing_to_stop,
    _tells_it_again,
    _comes_after_its_deadline,
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__.strip("_"))
def test_model_answers_as_the_real_shim(story: Any, real: Real) -> None:
    model = Model()
    story(real)
    story(model)
    assert model.told == real.told
    for generation in (1, 2):
        assert model.journal(generation) == real.journal(generation)


def test_stop_of_a_newer_generation_empties_both(real: Real) -> None:
    model = Model()
    for shim in (real, model):
        shim.launch(1, SLEEPS)
        shim.until("started")
        shim.stop(4)
        shim.until("empty")
        if ("empty", 4) not in shim.told:
            shim.until("empty")
    assert model.told == real.told


def test_every_field_of_a_launch_order_is_known() -> None:
    known = {"key", "generation", "ranks", "gpus", "memory_mb", "container", "user"}
    known |= {"fence_s", "fence_deadline_s", "peers"}
    known |= {"warm"}  # any start may be cold, as all of the model's are
    assert {field.name for field in dataclasses.fields(act.LaunchRanks)} == known
