"""The expected end of a job: an interval from its steps, across relaunches, or why none is known."""

from __future__ import annotations

from dataclasses import replace

from tests.scenarios.training import training
from tests.scenarios.world import World, gang

from holdfast.hang.pipeline.features import Motion, OutputFeatures, RankFeatures, WorkerFeatures
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.views.expected_end import ExpectedEnd, expected_end
from holdfast_controller.core.views.training import training_of


def running() -> World:
    world = World(hosts=3)
    world.submit("a", gang())
    world.run("a")
    return world


def expected(world: World) -> ExpectedEnd | None:
    job, now = world.cluster.jobs["a"], Now(Mono(world.mono), Wall(world.wall))
    return expected_end(world.cluster, job, training_of(world.cluster, job), now)


def trains(
    world: World,
    steps: range,
    *,
    total: float | None = 100.0,
    every_s: float = 30.0,
    of_lines: bool = False,
) -> None:
    """Both workers reach these steps, one after the other."""
    job = world.cluster.jobs["a"]
    for step in steps:
        world.wait(every_s, beating=list(world.sessions))
        for member, place in zip(job.gang.members, job.places, strict=True):
            ranks = tuple(RankFeatures(rank, Motion.WORKING, world.mono) for rank in member.ranks)
            output = OutputFeatures(
                world.mono,
                None if of_lines else float(step),
                step_total=total,
                bar_step=float(step) if of_lines else None,
            )
            world.features("a", WorkerFeatures(member.name, place.host, world.mono, ranks, output))


def relaunched(world: World) -> None:
    generation = world.cluster.jobs["a"].generation
    world.exit("a", 1, 7, said=("ValueError: bad batch",), message="exited with code 7")
    world.exit("a", 0, "STOPPED:15", generation)
    world.wait(120, beating=list(world.sessions))
    for state in ("PREPARED", "RUNNING"):
        for worker in range(2):
            world.report("a", worker, state)


def between(found: ExpectedEnd | None) -> tuple[float, float]:
    assert found is not None and found.interval is not None, found
    return found.interval


def test_the_end_lies_about_the_steps_that_are_left() -> None:
    world = running()
    trains(world, range(1, 51))
    earliest, latest = between(expected(world))
    assert earliest - 1 <= world.wall + 50 * 30 <= latest + 1 and latest - earliest < 400
    found = expected(world)
    assert found is not None and found.words.startswith("Between ") and "(80 %), from 9 min of steps" in found.words


def test_the_interval_narrows_as_the_training_goes_on() -> None:
    world, widths = running(), []
    for steps in (range(1, 21), range(21, 51), range(51, 91)):
        trains(world, steps)
        earliest, latest = between(expected(world))
        widths.append(latest - earliest)
    assert widths[0] > widths[1] > widths[2]


def test_without_what_it_takes_the_words_say_what_to_do() -> None:
    world = running()
    assert expected(world) is None, "nothing has been heard of it"
    trains(world, range(1), total=None)
    found = expected(world)
    assert found is not None and found.interval is None
    assert found.words.startswith(
        "Unknown: the total is not known; report it, as in holdfast.progress(step, total="
    )
    trains(world, range(1, 4))
    assert expected(world) == ExpectedEnd(
        "Not known yet: it is estimated when about a tenth of the steps has been seen"
    )
    trains(world, range(100, 101))
    assert expected(world) == ExpectedEnd("Any time: all its steps are done")


def test_a_job_without_steps_learns_how_to_report_them() -> None:
    world = training().world
    job = world.cluster.jobs["a"]
    ranks = (RankFeatures(0, Motion.WORKING, world.mono),)
    world.features("a", WorkerFeatures("workerpool0-0", job.places[0].host, world.mono, ranks, OutputFeatures()))
    found = expected(world)
    assert found is not None and found.words.startswith("Unknown: no steps are known")


def test_a_count_in_lines_may_be_of_the_step_that_begins() -> None:
    reported, counted = running(), running()
    trains(reported, range(1, 51))
    trains(counted, range(1, 51), of_lines=True)
    (begin, end), (other_begin, other_end) = between(expected(reported)), between(expected(counted))
    assert begin == other_begin and 29 < other_end - end < 31


def test_a_relaunch_keeps_the_pace_and_its_cost_widens_the_interval() -> None:
    world, alone = running(), running()
    trains(world, range(1, 51))
    trains(alone, range(1, 51))
    for _ in range(2):
        relaunched(world)
        found = expected(world)
        assert found is None or found.interval is None, "nothing is known of where it goes on from"
        trains(world, range(49, 51))
    (begin, end), (other_begin, other_end) = between(expected(world)), between(expected(alone))
    assert end - begin > 1.5 * (other_end - other_begin)
    found = expected(world)
    assert found is not None and found.words.endswith("of steps, if it goes on to be interrupted as before")


def test_a_training_that_slows_down_beyond_the_interval_has_no_known_end() -> None:
    world = running()
    trains(world, range(1, 91))
    world.wait(3_600, beating=list(world.sessions))
    assert expected(world) == ExpectedEnd("Unknown: it takes longer than its steps so far made expect")


def test_too_uneven_a_pace_is_said() -> None:
    world = running()
    trains(world, range(1, 26), every_s=2.0)
    trains(world, range(26, 31), every_s=240.0)
    assert expected(world) == ExpectedEnd("Unknown: its steps so far took too uneven a time")


def test_what_hangs_has_no_expected_end() -> None:
    program = training()
    program.step = 5.0
    program.trains(300)
    assert expected(program.world) is not None
    program.stands_still(45)
    assert program.world.cluster.jobs["a"].hangs[-1].open
    assert expected(program.world) is None


def test_what_has_ended_or_waits_has_no_expected_end() -> None:
    world = running()
    trains(world, range(1, 51))
    generation = world.cluster.jobs["a"].generation
    world.exit("a", 1, 7, said=("ValueError: bad batch",), message="exited with code 7")
    world.exit("a", 0, "STOPPED:15", generation)
    assert expected(world) is None, "it is relaunched"
    done = running()
    trains(done, range(1, 51))
    done.exit("a", 0)
    done.exit("a", 1)
    assert done.cluster.jobs["a"].outcome is not None
    assert expected(done) is None


def test_a_count_that_rises_in_a_hang_saves_no_job_from_its_relaunch_and_refills_no_budget() -> None:
    def told(rises: bool) -> tuple[list[str], object]:
        program = training()
        program.trains(300)
        program.still_s, found = program.world.mono, []
        for turn in range(40):
            found += program.world.wait(5, beating=program.beating)
            for vector in program.vectors(Motion.BLOCKED):
                count = OutputFeatures(program.printed_s, bar_step=float(turn) if rises else None, step_total=50.0)
                found += program.world.features("a", replace(vector, output=count))
        assert program.world.cluster.jobs["a"].hangs
        return found, program.world.cluster.jobs["a"].budgets

    assert told(rises=True) == told(rises=False)
