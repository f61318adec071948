"""Twelve canonical stories, each a calm world in which nothing fails but what the story is about."""

from __future__ import annotations

from tests.sim.cluster.programs import Script
from tests.sim.faults import Weights
from tests.sim.moves import Dies, Move, OfHost, OfJob, PowerLoss, Submit
from tests.sim.plan import Plan

from holdfast._base.job_file.choices import HangAction, RestartScope, SuccessPolicy
from holdfast.hang.thresholds import HangSettings
from holdfast_controller.core.model.gang import Gang, Pool, Retries, Task

POOL = Pool(1, Task(("train",)), gpus=2)
TWO = Gang((POOL, POOL), grace_s=1.0, success=SuccessPolicy.ALL)
ONE = Gang((POOL,), grace_s=1.0)
ALONE = Gang((POOL, POOL), grace_s=1.0, success=SuccessPolicy.ALL, retries=Retries(scope=RestartScope.WORKER))
QUICK = HangSettings(HangAction.RESTART, timeout_s=20.0, startup_timeout_s=20.0, ceiling_s=20.0)
HANGING = Gang((POOL, POOL), grace_s=1.0, success=SuccessPolicy.ALL, hang=QUICK)
REPLACED = Gang((POOL, POOL), grace_s=1.0, success=SuccessPolicy.ALL, replace_when_lost=True)
FAILS = Script(2.0, bad_rank=1, status=1 << 8)


def _story(*moves: Move, lasts_s: float = 12.0, hosts: int = 2, scripts: dict[int, Script] | None = None) -> Plan:
    drawn = tuple(("job", generation, script) for generation, script in (scripts or {}).items())
    return Plan(0, 0, Weights(), (1.0,) * hosts, 1.0, lasts_s, moves, probe=False, scripts=drawn)


STORIES: dict[str, Plan] = {
    "submit": _story(Submit(1.0, "job", ONE, 1.0), Submit(1.1, "next", ONE, 1.0), Submit(1.2, "last", TWO, 1.0)),
    "gang start": _story(Submit(1.0, "job", TWO, 3.0)),
    "exit": _story(
        Submit(1.0, "job", Gang((POOL, POOL), grace_s=1.0, retries=Retries(permanent_codes=frozenset({1}))), 3.0),
        scripts={1: FAILS},
    ),
    "in-place restart": _story(Submit(1.0, "job", TWO, 3.0), scripts={1: FAILS}),
    "hang verdict": _story(Submit(1.0, "job", HANGING, 3.0), lasts_s=45.0, scripts={1: Script(4.0, hangs=True)}),
    "cancel": _story(Submit(1.0, "job", TWO, 60.0), OfJob(4.0, "cancel", "job")),
    "host loss and return": _story(
        Submit(1.0, "job", REPLACED, 20.0), PowerLoss(4.0, "host-1", 100.0), lasts_s=130.0, hosts=4
    ),
    "controller restart": _story(Submit(1.0, "job", TWO, 6.0), Dies(4.0, "controller")),
    "drain": _story(Submit(1.0, "job", TWO, 6.0), OfHost(4.0, "drain", "host-1", (0.0, False)), hosts=3),
    "upgrade of an agent": _story(Submit(1.0, "job", TWO, 4.0), Dies(4.0, "agent", "host-1")),
    "pause and resume": _story(
        Submit(1.0, "job", TWO, 4.0), OfJob(3.0, "pause", "job"), OfJob(8.0, "resume", "job"), lasts_s=15.0
    ),
    "lone worker": _story(Submit(1.0, "job", ALONE, 3.0), scripts={1: FAILS}),
}
