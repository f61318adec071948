"""A job that fits now but would delay one ahead of it keeps its hosts from nobody who gives them back."""

from __future__ import annotations

import dataclasses

from tests.scenarios.queue_stories import placed
from tests.scenarios.scheduling.loans.test_spot_loans import QUIET
from tests.scenarios.scheduling.test_projected_starts import lasting
from tests.scenarios.world import World, gang

from holdfast_controller.core import events as ev
from holdfast_controller.core.model.gang import HostSelector, Strategy
from holdfast_controller.core.model.run_times import Backfill


def waits_for_two() -> World:
    """Host 2 is idle: one job waits for it and host 1, another one could have it at once and would delay that."""
    world = World(hosts=3, policies=dataclasses.replace(QUIET, backfill=Backfill.PROJECTED))
    for number in range(2):
        world.submit(f"busy-{number}", lasting(2, selector=HostSelector(hosts=frozenset({f"host-{number}"}))))
        world.run(f"busy-{number}")
    world.submit("first", lasting(5, workers=2, selector=HostSelector(hosts=frozenset({"host-1", "host-2"}))))
    world.submit("second", gang(1, gpus=2))
    world.submit("third", gang(1, gpus=1))
    assert not any(world.cluster.jobs[name].places for name in ("first", "second", "third"))
    return world


def test_a_spot_job_has_idle_gpus_that_a_job_ahead_could_have_but_for_another_one() -> None:
    world = waits_for_two()
    assert placed(world.submit("spot", gang(1, gpus=4, strategy=Strategy.SPOT))) == ["spot placed g1 on host-2"]
    (event,) = [each for each in world.log if isinstance(each, ev.JobPlaced) and each.job_id == "spot"]
    assert event.loan_of == "first"


def test_a_short_job_has_a_host_that_the_second_could_have_but_for_the_first() -> None:
    world = waits_for_two()
    assert placed(world.submit("short", lasting(1))) == ["short placed g1 on host-2"]
