"""Verdicts on measured hosts: slow ones are found by their second low figure, and in noise no others are."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.scenarios.hosts.checked_fleet import (
    OFF,
    ON,
    WELL,
    ask,
    checks,
    finish,
    fleet,
    measure_all,
    said,
)
from tests.scenarios.world import World, inventory

from holdfast._base.health import Health
from holdfast_controller.core import events as ev
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.hosts.measurements import Kind, Outcome, Why
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.step import commands as st


def test_a_slow_host_is_found_by_the_second_low_result_and_cleared_by_a_good_one() -> None:
    world = fleet(8)
    measure_all(world)
    slow = {"host-3": {"gpu.matmul": 600.0}}
    ask(world, "host-3")
    done = [each for each in measure_all(world, slow) if each.host == "host-3"]
    assert [each.result.why for each in done if each.result.kind is Kind.ALONE] == [Why.ASKED, Why.REPEAT]
    found = world.cluster.hosts["host-3"].failed_checks["measured.gpu.matmul"]
    assert found.saw == (
        "its slowest GPU multiplies matrices at 600 TFLOP/s, measured 2 times; 7 hosts like it have 700"
    )
    assert (found.health, found.keeps_work_away) == (Health.DEGRADED, False)
    assert [name for name, host in world.cluster.hosts.items() if host.failed_checks] == ["host-3"]
    world.mono += 86_400
    measure_all(world)
    assert not world.cluster.hosts["host-3"].failed_checks


def test_one_low_result_is_no_finding() -> None:
    world = fleet(8)
    measure_all(world)
    ask(world, "host-3")
    (job,) = checks(world)
    finish(world, job, {"host-3": WELL | {"gpu.matmul": 300.0}})
    assert world.cluster.hosts["host-3"].measured.due_alone is Why.REPEAT
    measure_all(world)
    assert not world.cluster.hosts["host-3"].failed_checks


def test_a_host_at_less_than_half_gets_no_work_and_is_measured_again_all_the_same() -> None:
    world = fleet(8)
    measure_all(world, {"host-3": {"gpu.matmul": 300.0}})
    host = world.cluster.hosts["host-3"]
    if not host.failed_checks:
        ask(world, "host-3")
        measure_all(world, {"host-3": {"gpu.matmul": 300.0}})
    assert host.failed_checks["measured.gpu.matmul"].holds and not host.takes_work
    world.mono += 86_400
    measure_all(world)
    assert host.takes_work


def test_of_a_pair_the_common_member_is_found() -> None:
    world = fleet(9)
    measure_all(world)
    ask(world, "host-4")
    measure_all(world, {"host-4": {"net.all_reduce": 20.5}})
    assert list(world.cluster.hosts["host-4"].failed_checks) == ["measured.net.all_reduce"]
    assert "with host-" in world.cluster.hosts["host-4"].failed_checks["measured.net.all_reduce"].saw
    assert [name for name, host in world.cluster.hosts.items() if host.failed_checks] == ["host-4"]


def test_an_error_is_no_failure_and_its_job_is_kept() -> None:
    world = fleet(8)
    measure_all(world)
    for _ in range(3):
        ask(world, "host-3")
        (job,) = checks(world)
        world.run(job.id)
        world.exit(job.id, 0, 1, said=("ModuleNotFoundError: No module named 'torch'",))
        world.report(job.id, 0, "EMPTY")
        assert world.cluster.hosts["host-3"].measured.results[-1].outcome is Outcome.ERROR
        assert world.cluster.jobs[job.id].state is JobState.FAILED
    assert not world.cluster.hosts["host-3"].failed_checks


@pytest.mark.parametrize(
    "line",
    [
        "",
        '{"holdfast_check": 1}',
        '{"holdfast_check": 1, "figures": 7}',
        '{"holdfast_check": 1, "figures": {"cpu.hash": "fast", "gpu.matmul": -1, "other": 5, "memory.copy": 1e99}}',
        '{"holdfast_check": 1, "figures": {"cpu.hash": NaN}}',
        '{"holdfast_check": [',
    ],
)
def test_a_program_that_says_nothing_of_use_could_not_measure(line: str) -> None:
    world = World(1, OFF)
    ask(world, "host-0", at_once=True)
    (job,) = checks(world)
    world.run(job.id)
    world.exit(job.id, 0, said=(line,))
    world.report(job.id, 0, "EMPTY")
    (result,) = world.cluster.hosts["host-0"].measured.results
    assert (result.outcome, result.figures) == (Outcome.ERROR, {})


def test_hosts_are_compared_only_with_those_of_their_kind() -> None:
    world = fleet(0)
    for number in range(9):
        model = "NVIDIA A100" if number == 8 else "NVIDIA H100"
        world.join(f"host-{number}", inventory(name=f"host-{number}", model=model))
    measure_all(world, {"host-8": {"gpu.matmul": 250.0}})
    ask(world, "host-8")
    measure_all(world, {"host-8": {"gpu.matmul": 250.0}})
    assert not world.cluster.hosts["host-8"].failed_checks


def test_a_repaired_host_starts_afresh() -> None:
    world = fleet(8)
    measure_all(world)
    ask(world, "host-3")
    measure_all(world, {"host-3": {"gpu.matmul": 600.0}})
    assert world.cluster.hosts["host-3"].failed_checks
    world.step(st.UncordonAsked(901, "ann", "host-3", (), True))
    assert not world.cluster.hosts["host-3"].failed_checks
    assert not world.cluster.hosts["host-3"].measured.results


def test_what_befalls_many_hosts_at_once_keeps_few_from_work() -> None:
    world = fleet(9)
    measure_all(world)
    slow = {f"host-{n}": {"gpu.matmul": 100.0} for n in range(4)}
    for name in slow:
        ask(world, name)
    measure_all(world, slow)
    kept = [name for name, host in world.cluster.hosts.items() if not host.takes_work]
    assert len(kept) == 2
    assert any(isinstance(event, ev.CommonCauseNoticed) for event in world.log)


class Noisy(World):
    """A fleet without the invariants of every step, whose figures differ a little each time."""

    def __init__(self, hosts: int, seed: int, slow: dict[str, dict[str, float]], *, errors: float = 0.05) -> None:
        self.random, self.slow, self.errors = random.Random(seed), slow, errors
        self.born: dict[str, dict[str, float]] = {}
        super().__init__(hosts, OFF)
        self.step(st.PoliciesChanged(ON))

    def step(self, incoming: st.Input) -> list[str]:
        decision = self.reactor.step(incoming, Now(Mono(self.mono), Wall(self.wall)))
        self.log += [entry.event for entry in decision.entries]
        return []

    def join(self, host: str, *args: Any, **named: Any) -> list[str]:
        """Parts of one kind differ for good, too."""
        self.born[host] = {name: self.random.gauss(1.0, spread / 2) for name, (_, spread) in NOISE.items()}
        return super().join(host, *args, **named)

    def figure(self, host: str, name: str) -> float:
        usual, spread = NOISE[name]
        factor = self.slow.get(host, {}).get(name, 1.0) * self.born[host][name]
        return usual * factor * min(self.random.gauss(1.0, spread / 2), 1.02)

    def measure(self, days: int) -> None:
        """Days pass, and hosts say what they measure; a check that can't be made says nothing of its host."""
        for _ in range(days):
            self.mono += 86_400
            for _ in range(400):
                for host in self.cluster.hosts:
                    self.cluster.presence_of(host).last_seen = Mono(self.mono)
                self.mono += 31
                self.step(st.TimePassed())
                if not self.cluster.measuring:
                    break
                for job in checks(self):
                    self.run(job.id)
                    fails = self.random.random() < self.errors
                    worst = min(self.figure(name, "net.all_reduce") for name in job.hosts)
                    for member in job.gang.members:
                        name = job.places[member.index].host
                        alone = {each: self.figure(name, each) for each in NOISE if not each.startswith("net.")}
                        told = {"net.all_reduce": worst} if len(job.places) > 1 else alone
                        for rank in member.ranks:
                            self.exit(job.id, rank, said=said({} if fails else told))
                        self.report(job.id, member.index, "EMPTY")

    def found(self) -> set[str]:
        """Hosts that a finding was ever opened of."""
        return {e.host for e in self.log if isinstance(e, ev.HostCheckFailed)}


NOISE = {
    "cpu.hash": (41_000.0, 0.05),
    "memory.copy": (12.0, 0.06),
    "disk.write": (900.0, 0.15),
    "gpu.matmul": (700.0, 0.015),
    "gpu.memory": (2_900.0, 0.01),
    "net.all_reduce": (390.0, 0.03),
}
"""By figure: the usual value, and the spread among equal hosts and from one time to the next, in all."""


def test_slow_hosts_of_a_noisy_fleet_are_found_and_no_others() -> None:
    slow = {"host-7": {"gpu.matmul": 0.88}, "host-19": {"net.all_reduce": 0.7}, "host-23": {"memory.copy": 0.6}}
    for seed in range(3):
        world = Noisy(40, seed, slow)
        world.measure(15)
        assert world.found() == set(slow), f"seed {seed}"


def test_no_host_of_a_sound_fleet_is_found_slow() -> None:
    for seed in range(10, 14):
        world = Noisy(40, seed, {})
        world.measure(22)
        assert world.found() == set(), f"seed {seed}"


def test_a_fleet_on_which_nothing_can_be_measured_has_no_findings() -> None:
    world = Noisy(12, 1, {}, errors=1.0)
    world.measure(8)
    results = [e.result for e in world.log if isinstance(e, ev.HostMeasured)]
    assert results and {each.outcome for each in results} == {Outcome.ERROR}
    assert world.found() == set()
    assert len(results) <= 24, "it is not tried again and again"
