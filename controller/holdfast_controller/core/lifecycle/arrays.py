"""Turns of arrays: an element has its turn in the step in which another one ends, is paused, or leaves room otherwise.

As with ends of other jobs: the decision and its cause are in one commit, so no crash comes between the two.
"""

from __future__ import annotations

from holdfast_controller.core import events as ev
from holdfast_controller.core.lifecycle.attempts import await_hosts
from holdfast_controller.core.lifecycle.dependencies import tell_dependents
from holdfast_controller.core.model.arrays import Array
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.step.step import Step


def let_in(step: Step) -> bool:
    """Tell jobs of the ends they wait for, and give elements their turns. Returns whether one waits for hosts now."""
    told = tell_dependents(step)
    return _give_turns(step) or told


def _give_turns(step: Step) -> bool:
    given = False
    for array in step.cluster.arrays.take_changed():
        turns = array.next_turns()
        if turns and _is_unreconciled(step.cluster, array):
            continue
        for job_id in turns:
            step.emit(ev.TurnCame(job_id=job_id, at=step.now.wall))
            await_hosts(step, step.cluster.jobs[job_id])
            given = True
    return given


def _is_unreconciled(cluster: Cluster, array: Array) -> bool:
    """Whether a restore has yet to find out of an element whether it runs; its array is looked at again then."""
    whole = cluster.jobs.whole
    return any(name in whole and whole[name].unreconciled is not None for name in array.jobs.values())


def wait_for_turn(job: Job) -> str:
    """The reason to wait, such as "waits for its turn: 4 of the 20 elements of sweep-x7k2mq run at once"."""
    element = job.gang.array
    assert element is not None
    return f"waits for its turn: {element.at_once} of the {element.count} elements of {element.array} run at once"
