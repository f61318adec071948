"""No launch is made that the job's timeout would end before its program begins its work."""

from __future__ import annotations

import re
from collections import Counter

from tests.scenarios.training import Training, hanging_gang
from tests.scenarios.world import World

from holdfast_controller.core.goodput import view
from holdfast_controller.core.model.goodput import JobLedger
from holdfast_controller.core.model.job_state import JobState

TOO_LATE = r"Its time is over in (\d+) s, and it takes (\d+) s to begin its work"


def started(timeout_s: float, loads_s: float = 30.0) -> Training:
    """A gang that loads for half a minute, and reports steps from then on."""
    world = World(hosts=2)
    world.submit("a", hanging_gang(timeout_s=timeout_s))
    world.run("a")
    world.wait(loads_s, beating=["host-0", "host-1"])
    return Training(world, "a", tuple(world.sessions), step=1)


def test_a_failure_is_final_when_the_rest_is_shorter_than_the_start() -> None:
    train = started(1000.0)
    train.trains(945)

    train.world.exit("a", 0, 1)

    job = train.world.cluster.jobs["a"]
    assert job.outcome is JobState.FAILED and job.generation == 1
    assert job.error is not None
    found = re.fullmatch(TOO_LATE + "; it is not tried again.", job.error.why_final)
    assert found is not None
    assert 20 <= int(found[1]) <= 25 and 30 <= int(found[2]) <= 40


def test_a_launch_that_has_time_to_begin_its_work_is_made() -> None:
    train = started(1000.0)
    train.trains(900)

    train.world.exit("a", 0, 1)

    assert train.world.cluster.jobs["a"].generation == 2


def test_the_start_of_an_earlier_generation_counts_when_this_one_has_not_begun() -> None:
    train = started(1000.0)
    train.trains(900)
    train.world.exit("a", 0, 1)
    train.world.exit("a", 1, "STOPPED:15")
    train.restarts()
    train.world.wait(45, beating=["host-0", "host-1"])

    train.world.exit("a", 1, 1)

    job = train.world.cluster.jobs["a"]
    assert job.outcome is JobState.FAILED and job.generation == 2
    assert job.error is not None and re.match(TOO_LATE, job.error.why_final)


def half_started(train: Training) -> None:
    """The next generation of which one worker begins its work, while the other is not seen running."""
    world = train.world
    world.exit("a", 0, 1)
    world.exit("a", 1, "STOPPED:15")
    for worker in (0, 1):
        world.report("a", worker, "PREPARED")
    world.report("a", 0, "RUNNING")
    train.mute = {1}
    train.trains(60)


def test_a_launch_that_fails_before_all_ranks_run_has_not_begun_with_the_one_before() -> None:
    train = started(2000.0)
    train.trains(1000)
    half_started(train)

    train.world.exit("a", 0, 1)

    assert train.world.cluster.jobs["a"].generation == 3


def test_the_time_before_such_a_launch_is_not_its_warm_up() -> None:
    train = started(10_000.0)
    train.step = None
    train.trains(300)
    train.world.wait(200, beating=["host-0", "host-1"])
    half_started(train)
    ledger = train.world.cluster.jobs["a"].ledger
    watch = train.world.cluster.runtime["a"].progress
    assert ledger is not None and watch is not None and watch.moved is not None
    before = sums(ledger)
    assert before["ran"] > 8 * 190_000

    shown = view.as_of_now(train.world.cluster.jobs["a"], watch, ledger.clock)
    assert shown is not None and sums(shown)["warm_up"] == before["warm_up"]
    train.world.exit("a", 0, 1)
    assert sums(ledger)["warm_up"] == before["warm_up"]


def sums(ledger: JobLedger) -> Counter[str]:
    """Time by category, in GPU-ms."""
    found: Counter[str] = Counter()
    for key, ms in view.totals(ledger).items():
        found[key.split("|")[1]] += ms
    return found


def test_without_a_sign_of_progress_nothing_is_known_of_the_start() -> None:
    train = started(100.0, loads_s=99.0)

    train.world.exit("a", 0, 1)

    assert train.world.cluster.jobs["a"].generation == 2


def test_a_hang_is_not_restarted_when_the_rest_is_shorter_than_the_start() -> None:
    train = started(4 * 3600.0, loads_s=3 * 3600.0)
    train.trains(600)
    train.stands_still(2000)

    job = train.world.cluster.jobs["a"]
    assert job.hangs and job.outcome is JobState.FAILED and job.generation == 1
    assert job.error is not None and re.search(TOO_LATE + "; it is not restarted.", job.error.message)
