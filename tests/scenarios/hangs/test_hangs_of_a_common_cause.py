"""Jobs that hang together: left alone for a while, told of once, then relaunched one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.scenarios.hang_stories import job_of, newest, vectors_of_still
from tests.scenarios.training import Training, training
from tests.scenarios.world import World

from holdfast._base.job_file.choices import HangAction
from holdfast.hang.pipeline.features import Motion
from holdfast.hang.pipeline.samples import State
from holdfast.hang.pipeline.waits import Wait, WaitKind
from holdfast_controller.core import events as ev
from holdfast_controller.core.model.hang import HangOutcome
from holdfast_controller.core.step import actions as act

NOTHING = "nothing is killed for 10 min, since rack=x may be at fault"
WHY = f"2 jobs on hosts with rack=x turned suspect within 3 min: {NOTHING}"


def in_racks(*racks: str) -> World:
    """A cluster of two hosts in each rack; of the empty one they have no label."""
    world = World()
    for number in range(2 * len(racks)):
        rack = racks[number // 2]
        world.join(f"host-{number}", labels={"rack": rack} if rack else {})
    return world


def several(*racks: str, **rules: Any) -> tuple[Training, ...]:
    """Jobs that have trained for five minutes, each on two hosts of its own: ``a``, ``b``, and so on."""
    world = in_racks(*racks)
    return tuple(training(job, world=world, **rules) for job, _ in zip("abcdefg", racks, strict=False))


def two(**rules: Any) -> tuple[Training, Training]:
    """Two jobs on hosts of their own in one rack."""
    world = in_racks("x", "x")
    return training("a", world=world), training("b", world=world, **rules)


def stand_still(still: Sequence[Training], for_s: float, moving: Sequence[Training] = ()) -> list[str]:
    """What follows, dumps apart, of which none are answered, while other jobs train on."""
    told: list[str] = []
    first, *others = still
    for _ in range(round(for_s / 5)):
        told += first.stands_still(5)
        for other in others:
            if job_of(other).launched:
                for vector in vectors_of_still(other):
                    told += other.world.features(other.job, vector)
        for other in moving:
            other.printed_s, other.still_s = first.world.mono, None
            for vector in other.vectors(Motion.WORKING):
                told += other.world.features(other.job, vector)
    return [line for line in told if " dump " not in line]


def both_stand_still(first: Training, second: Training, for_s: float) -> list[str]:
    return stand_still((first, second), for_s)


def notices(program: Training) -> list[ev.CommonCauseNoticed]:
    return [event for event in program.world.log if isinstance(event, ev.CommonCauseNoticed)]


def test_two_jobs_that_turn_suspect_together_are_left_alone_and_the_cluster_is_told_once() -> None:
    first, second = two()
    told = both_stand_still(first, second, 600)
    judged = [line for line in told if " hang " in line]
    assert sorted(judged) == [f"a hang WITHHELD: {WHY}", f"b hang WITHHELD: {WHY}"]
    assert not any("restarts" in line for line in told)
    assert [line for line in told if "common" in line] == [
        f"common cause of a b: {WHY}",
        f"> note hang.common_cause {WHY} a, b  ",
    ]


def test_hosts_that_the_jobs_share_are_named() -> None:
    first = training("a", 3, hosts=3, gpus=2)
    second = training("b", 3, world=first.world, gpus=2)
    both_stand_still(first, second, 120)
    assert [(event.jobs, event.hosts) for event in notices(first)] == [(("a", "b"), ("host-1",))]


def restarted(told: list[str]) -> list[str]:
    return sorted(line[0] for line in told if "restarts as" in line)


def test_two_jobs_that_share_nothing_are_each_acted_on_in_their_own_time() -> None:
    told = stand_still(several("", ""), 70)
    assert restarted(told) == ["a", "b"]
    assert not any("common" in line for line in told)


def test_jobs_in_different_racks_share_nothing() -> None:
    assert restarted(stand_still(several("x", "y"), 70)) == ["a", "b"]


def test_labels_that_say_what_a_host_is_are_nothing_that_fails() -> None:
    world = World()
    for number in range(4):
        world.join(f"host-{number}", labels={"disk": "nvme"})
    assert restarted(stand_still([training(job, world=world) for job in "ab"], 70)) == ["a", "b"]


def test_more_jobs_that_go_on_in_the_rack_speak_against_it() -> None:
    jobs = several(*4 * ("x",))
    assert restarted(stand_still(jobs[:2], 70, jobs[2:])) == []
    jobs = several(*5 * ("x",))
    assert restarted(stand_still(jobs[:2], 70, jobs[2:])) == ["a", "b"]


@pytest.mark.parametrize(("hang", "brakes"), [(2, False), (3, True), (4, True)])
def test_three_jobs_and_half_of_all_are_a_fault_of_the_whole_cluster(hang: int, brakes: bool) -> None:
    """Four jobs on distinct hosts without labels."""
    jobs = several("", "", "", "")
    told = stand_still(jobs[:hang], 70, jobs[hang:])
    assert restarted(told) == ([] if brakes else ["a", "b"])
    go_on = {3: "1 goes on", 4: "none go on"}.get(hang, "")
    why = f"{hang} jobs turned suspect within 3 min while {go_on}: nothing is killed for 10 min, "
    switch = "since a central switch or a file server may be at fault"
    assert sum(line.startswith("common") and line.endswith(why + switch) for line in told) == brakes


def test_three_of_seven_jobs_are_a_coincidence() -> None:
    jobs = several(*7 * ("",))
    assert restarted(stand_still(jobs[:3], 70, jobs[3:])) == ["a", "b", "c"]


def test_jobs_that_sleep_and_wake_go_on() -> None:
    """Evaluators, say, which look for a new checkpoint each minute: no rank is ever seen to move."""
    jobs = several(*5 * ("x",))
    for sleeper in jobs[2:]:
        sleeper.wait = Wait(WaitKind.SLEEP, since_s=sleeper.world.mono, until_s=sleeper.world.mono + 60.0)
    assert restarted(stand_still(jobs, 70)) == ["a", "b"]
    jobs = several(*5 * ("x",))
    for sleeper in jobs[2:]:
        sleeper.wait = Wait(WaitKind.UNKNOWN)
    assert restarted(stand_still(jobs, 70)) == [], "of those nothing is known"


def test_jobs_that_stand_still_and_are_not_suspect_yet_count_on_neither_side() -> None:
    """As those do whose own pauses have taught more patience."""
    jobs = several(*7 * ("",))
    for patient in jobs[3:]:
        patient.still_s = None
        generation, watch = patient.world.cluster.watches[patient.job]
        patient.world.cluster.watches[patient.job] = generation, replace(watch, still_longest_s=100.0)
    assert restarted(stand_still(jobs, 70)) == []


def test_brake_is_bounded_and_then_one_job_at_a_time_is_relaunched() -> None:
    first, second = two()
    both_stand_still(first, second, 655)
    assert [job_of(program).generation for program in (first, second)] == [1, 1]
    told = both_stand_still(first, second, 15)
    assert [line for line in told if "restarts as" in line] == [
        "a restarts as g2: HANG of no rank in particular, free"
    ]
    words = "a, which hung at the same time, is relaunched first; this job's turn comes 5 min later"
    assert words in first.world.cluster.runtime["b"].health or newest(second).outcome is HangOutcome.SUPPRESSED
    assert not any("b restarts" in line for line in both_stand_still(first, second, 280))
    assert any("b restarts" in line for line in both_stand_still(first, second, 30))
    assert len(notices(first)) == 1


def test_job_that_hangs_again_after_its_turn_tells_that_the_fault_is_still_there() -> None:
    first, second = two()
    both_stand_still(first, second, 670)
    assert job_of(first).generation == 2
    first.restarts()
    told = both_stand_still(first, second, 600)
    again = [line for line in told if line.startswith("common cause")]
    assert again == [
        "common cause of a b: a hangs again 1 min after it was relaunched:"
        " what it shares with b is likely still at fault"
    ]


def test_job_that_moves_again_frees_the_other_after_a_minute() -> None:
    """What one has got over, the other may get over a moment later."""
    first, second = two()
    both_stand_still(first, second, 120)
    since_s = first.still_s
    told: list[str] = []
    began_s = first.world.mono
    while first.world.mono < began_s + 90:
        second.printed_s, second.still_s = first.world.mono, None
        for vector in second.vectors(Motion.WORKING):
            told += second.world.features("b", vector)
        first.still_s = since_s
        told += first.stands_still(5)
        if "a hang RESTARTED" in told:
            break
    assert 60 <= first.world.mono - began_s <= 75
    assert "b moves again" in told


def test_end_of_one_of_two_suspect_jobs_frees_the_other() -> None:
    first, second = two()
    both_stand_still(first, second, 100)
    first.world.cancel("b")
    assert first.stands_still(5)[0] == "a hang RESTARTED"


def test_job_that_is_only_told_of_its_hang_keeps_the_other_no_longer_than_the_brake() -> None:
    first, second = two(action=HangAction.NOTIFY)
    both_stand_still(first, second, 655)
    assert newest(second).outcome is HangOutcome.SUPPRESSED
    assert "a hang RESTARTED" in both_stand_still(first, second, 15)
    assert "b hang WOULD_RESTART" in both_stand_still(first, second, 310)


def test_cause_is_forgotten_once_its_jobs_are_well() -> None:
    first, second = two()
    both_stand_still(first, second, 120)
    assert len(first.world.cluster.shared_causes) == 1
    for _ in range(4):
        first.trains(5)
        second.trains(5)
    assert [job_of(program).generation for program in (first, second)] == [1, 1]
    assert first.world.cluster.shared_causes == []
    both_stand_still(first, second, 500)
    assert len(notices(first)) == 2


def test_storage_that_ranks_of_two_hosts_wait_for_is_no_fault_of_the_job_however_long(program: Training) -> None:
    for rank in (0, 1):
        program.changes[rank] = {"state": State.DISK, "mount": "/data"}
    told = program.stands_still(3600)
    words = "2 hosts wait for storage at /data: nothing is killed while the file server may be at fault"
    assert [line for line in told if "hang W" in line] == [f"a hang WITHHELD: {words}"]
    assert [line for line in told if line.startswith("common")] == [f"common cause of a at /data: {words}"]
    assert [(event.mount, event.hosts) for event in notices(program)] == [("/data", ("host-0", "host-1"))]
    notes = [action for action in program.world.sent if isinstance(action, act.Note)]
    assert [dict(note.fields)["mount"] for note in notes if note.event == "hang.common_cause"] == ["/data"]
    program.changes = {}
    assert any("RESTARTED" in line for line in program.stands_still(60))


def test_brake_begins_anew_after_a_restart_of_the_controller_and_is_bounded_still() -> None:
    first, second = two()
    both_stand_still(first, second, 300)
    first.world.restart_controller()
    for program, hosts in ((first, (0, 1)), (second, (2, 3))):
        for worker, host in enumerate(hosts):
            first.world.join(f"host-{host}", places=[first.world.place(program.job, worker, "RUNNING")])
    told = both_stand_still(first, second, 580)
    assert not any("RESTARTED" in line for line in told)
    assert any("RESTARTED" in line for line in both_stand_still(first, second, 80))


@pytest.mark.parametrize(
    "change",
    [
        {"motion": Motion.STOPPED},
        {"wait": Wait(WaitKind.LOCK, place="train.py:9 `save`")},
        {"wait": Wait(WaitKind.SLEEP, place="train.py:9 `nap`", until_s=1e9)},
    ],
    ids=["stopped", "lock", "sleep"],
)
def test_jobs_that_hang_at_the_same_time_in_processes_of_their_own_share_no_cause(change: dict[str, Any]) -> None:
    """No host, switch or file server makes a process wait for itself."""
    first, second = two()
    for program in (first, second):
        program.changes[0] = change
    told = stand_still((first, second), 120)
    assert "a hang RESTARTED" in told and "b hang RESTARTED" in told
    assert not any("common cause" in line for line in told)
