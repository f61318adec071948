"""Hosts beside each other: lemons are told and chosen last, and a host that is unlike the others is told of."""

from __future__ import annotations

from dataclasses import replace

from tests.scenarios.hosts.test_failing_checks import reports
from tests.scenarios.hosts.test_health_brake import DOWN, HOT
from tests.scenarios.hosts.test_host_failures import booked
from tests.scenarios.world import World, gang, inventory

from holdfast._base.health import Health
from holdfast_controller.core import events as ev
from holdfast_controller.core.goodput.reliability import HostTotals, Reliability, judge
from holdfast_controller.core.model.goodput import HostFact
from holdfast_controller.core.model.hosts.caution import LEMON, caution
from holdfast_controller.core.step import commands as st
from holdfast_controller.core.step.host_commands import HostsJudged

DAY = 86_400_000


def judged(world: World, **failures: int) -> dict[str, Reliability]:
    """What 60 days with so many failures of hosts say; others have failed once."""
    fleet = {}
    for name, host in world.cluster.hosts.items():
        assert host.record is not None
        count = failures.get(name.replace("-", "_"), 1)
        fleet[name] = HostTotals(host.record.since, up_ms=[0, 60 * DAY], failures=[0, count])
    return judge(fleet)


def lemons(world: World) -> list[str]:
    return [name for name, host in world.cluster.hosts.items() if LEMON in host.failed_checks]


def later(world: World, seconds: float) -> None:
    """Time goes on."""
    world.mono += seconds


def test_a_lemon_is_a_degraded_host_that_still_takes_work() -> None:
    world = World(hosts=10)
    assert world.step(HostsJudged(judged(world, host_3=14))) == ["host-3 host.lemon fails (WARNING)"]
    host = world.cluster.hosts["host-3"]
    failed = host.failed_checks[LEMON]
    assert failed.health is Health.DEGRADED
    assert "14 times" in failed.saw and "bits" in failed.saw and "--repaired" in failed.fix[0]
    assert host.takes_work
    assert world.step(HostsJudged(judged(world, host_3=14))) == [], "it is told once"


def test_caution_puts_a_lemon_behind_a_degraded_host_and_that_behind_a_sound_one() -> None:
    world = World(hosts=10)
    world.step(HostsJudged(judged(world, host_3=14)))
    reports(world, "host-4", HOT)
    assert [caution(world.cluster.hosts[name]) for name in ("host-0", "host-4", "host-3")] == [0, 1, 2]


def hosts_of(world: World, job: str) -> list[str]:
    return [place.host for place in world.cluster.jobs[job].places]


def test_a_lemon_gets_work_only_where_no_other_host_has_room() -> None:
    world = World(hosts=10)
    world.step(HostsJudged(judged(world, host_0=14)))
    world.submit("one", gang(1, gpus=1))
    world.submit("cpus", gang(1, gpus=0))
    assert hosts_of(world, "one") == ["host-1"] and "host-0" not in hosts_of(world, "cpus")
    world.submit("most", gang(8))
    assert sorted(hosts_of(world, "most")) == [f"host-{number}" for number in range(2, 10)]
    world.submit("last", gang(1))
    assert hosts_of(world, "last") == ["host-0"]


def test_a_host_with_a_degraded_finding_is_chosen_before_a_lemon_and_after_the_others() -> None:
    world = World(hosts=3)
    world.step(HostsJudged({"host-0": replace(judged(world)["host-0"], lemon=True, ratio_low=3.0)}))
    reports(world, "host-1", HOT)
    for number, host in enumerate(("host-2", "host-1", "host-0")):
        world.submit(f"job-{number}", gang(1))
        assert hosts_of(world, f"job-{number}") == [host]


def test_of_equal_hosts_the_one_is_taken_that_surely_fails_least_and_a_fuller_one_before_it() -> None:
    world = World(hosts=3)
    found = judged(world)
    low = {"host-0": 1.6, "host-1": 1.2, "host-2": 0.0}
    ratio = {"host-0": 2.0, "host-1": 2.0, "host-2": 4.0}
    world.step(HostsJudged({name: replace(found[name], ratio=ratio[name], ratio_low=low[name]) for name in found}))
    assert lemons(world) == []
    world.submit("a", gang(1))
    assert hosts_of(world, "a") == ["host-2"], "of which too little is known to speak against it"
    world.submit("b", gang(1, gpus=1))
    assert hosts_of(world, "b") == ["host-1"]
    world.submit("c", gang(1, gpus=1))
    assert hosts_of(world, "c") == ["host-1"], "packing comes first: the hosts aren't equal any more"


def test_a_repair_makes_a_host_an_equal_again_at_once() -> None:
    world = World(hosts=2)
    found = judged(world)
    world.step(HostsJudged({**found, "host-0": replace(found["host-0"], ratio=2.0, ratio_low=1.6)}))
    world.submit("a", gang(1))
    assert hosts_of(world, "a") == ["host-1"]
    world.cancel("a")
    world.empty("a")
    later(world, 5.0)
    world.step(st.UncordonAsked(900, "ann", "host-0", repaired=True))
    world.submit("b", gang(1))
    assert hosts_of(world, "b") == ["host-0"]
    world.step(HostsJudged({**found, "host-0": replace(found["host-0"], ratio=2.0, ratio_low=1.6)}))
    assert world.cluster.hosts["host-0"].excess == 0, "that was of the time before the repair"


def test_a_repair_ends_it_and_an_older_judgement_does_not_bring_it_back() -> None:
    world = World(hosts=10)
    before = judged(world, host_3=14)
    world.step(HostsJudged(before))
    later(world, 5.0)
    world.step(st.UncordonAsked(900, "ann", "host-3", repaired=True))
    assert lemons(world) == []
    world.step(HostsJudged(before))
    assert lemons(world) == [], "that was of the time before the repair"


def test_a_host_report_neither_makes_nor_ends_a_lemon() -> None:
    world = World(hosts=10)
    reports(world, "host-1", replace(HOT, check=LEMON))
    assert lemons(world) == []
    world.step(HostsJudged(judged(world, host_3=14)))
    reports(world, "host-3")
    assert lemons(world) == ["host-3"]


def test_a_lemon_stays_one_until_it_is_clearly_none() -> None:
    world = World(hosts=10)
    found = judged(world, host_3=14)
    world.step(HostsJudged(found))
    nearly = replace(found["host-3"], lemon=False, ratio_low=1.9)
    world.step(HostsJudged({**found, "host-3": nearly}))
    assert lemons(world) == ["host-3"]
    world.step(HostsJudged({**found, "host-3": replace(nearly, ratio_low=1.4)}))
    assert lemons(world) == []


def test_a_finding_that_keeps_a_host_from_work_is_a_failure_of_it_but_not_each_time_within_a_day() -> None:
    world = World(hosts=10)
    for _ in range(5):
        reports(world, "host-0", DOWN)
        reports(world, "host-0")
        later(world, 3_600.0)
    reports(world, "host-1", HOT)
    counted = [(each.host, each.what) for each in booked(world) if each.what is not HostFact.UP]
    assert counted == [("host-0", HostFact.FINDING)]
    later(world, 86_400.0)
    reports(world, "host-0", DOWN)
    again = [each.host for each in booked(world) if each.what is HostFact.FINDING]
    assert again == ["host-0", "host-0"]


def test_a_finding_that_the_brake_spares_counts_against_no_host() -> None:
    world = World(hosts=10)
    for number in range(10):
        reports(world, f"host-{number}", DOWN)
    counted = [each.host for each in booked(world) if each.what is HostFact.FINDING]
    assert counted == ["host-0", "host-1"], "no more than the brake allows"


def test_a_user_whose_program_always_crashes_makes_no_lemon() -> None:
    world = World(hosts=4)
    ran = 0
    for number in range(10):
        job = f"job-{number}"
        world.submit(job, gang(1))
        for _ in range(8):
            if world.cluster.jobs[job].terminal:
                break
            world.run(job)
            world.exit(job, 0, 1 if number % 2 else "SIGNALED:11")
            world.empty(job)
            later(world, 900.0)
            world.wait(60.0, beating=world.cluster.hosts)
            ran += 1
        assert world.cluster.jobs[job].terminal
    assert ran >= 20
    failures = [each for each in booked(world) if each.what is not HostFact.UP]
    assert failures == []


def traits(world: World, name: str, **found: str) -> None:
    world.beat(name, replace(world.cluster.hosts[name].inventory, traits={"NVIDIA driver": "570.86", **found}))


def test_a_host_that_is_unlike_most_of_its_kind_is_told_of_and_keeps_its_work() -> None:
    world = World(hosts=4)
    for number in range(4):
        traits(world, f"host-{number}", IOMMU="off")
    traits(world, "host-2", IOMMU="on")
    assert world.step(HostsJudged({})) == ["host-2 host.unlike fails (WARNING)"]
    failed = world.cluster.hosts["host-2"].failed_checks["host.unlike"]
    assert (failed.saw, failed.health) == ("IOMMU on, and off on 3 of 4", Health.INFORM)
    assert world.cluster.hosts["host-2"].takes_work and caution(world.cluster.hosts["host-2"]) == 0
    traits(world, "host-2", IOMMU="off")
    assert world.step(HostsJudged({})) == ["host-2 host.unlike passes"]


def test_half_of_the_hosts_and_hosts_of_another_kind_are_no_majority() -> None:
    world = World(hosts=4)
    for number in range(4):
        traits(world, f"host-{number}", IOMMU="on" if number < 2 else "off")
    assert world.step(HostsJudged({})) == []
    world = World(hosts=3)
    world.join("cpu-host", replace(inventory(name="cpu-host"), gpus=()))
    for number in range(3):
        traits(world, f"host-{number}")
    traits(world, "cpu-host", **{"NVIDIA driver": "535.1"})
    assert world.step(HostsJudged({})) == []


def test_what_the_log_says_is_what_was_decided() -> None:
    world = World(hosts=10)
    world.step(HostsJudged(judged(world, host_3=14)))
    failed = [event for event in world.log if isinstance(event, ev.HostCheckFailed)]
    assert [(event.host, event.check) for event in failed] == [("host-3", LEMON)]
