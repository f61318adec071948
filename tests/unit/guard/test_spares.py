"""Tasks without ranks, which take the place of those that are gone."""

from __future__ import annotations

import pytest

from holdfast.errors import ConfigError
from holdfast.guard import spares
from holdfast.guard.allocation import Allocation, read
from holdfast.v1 import job_pb2, spec_pb2

MPI = {
    "HOLDFAST_GUARD_HOST": "n1",
    "HOLDFAST_GUARD_SEED": "0" * 64,
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "3",
}


def job() -> job_pb2.CustomJob:
    pools = [spec_pb2.WorkerPoolSpec(replica_count=count) for count in (1, 1)]
    return job_pb2.CustomJob(job_spec=spec_pb2.CustomJobSpec(worker_pool_specs=pools))


@pytest.mark.parametrize(("tasks", "count"), [(1, 1), (4, 4), (2, 5)])
def test_spares_leave_a_task_for_the_ranks(tasks: int, count: int) -> None:
    with pytest.raises(ConfigError, match=f"--spares {count} leaves no task for the ranks") as refused:
        spares.check(tasks, count)

    assert "Ask the scheduler" in refused.value.fix
    spares.check(tasks, tasks - 1)


def test_the_launchers_variables_say_what_the_ranks_do() -> None:
    made = job()

    spares.prepare(made, read(MPI, "box"), 2)

    for pool in made.job_spec.worker_pool_specs:
        values = {each.name: each.value for each in pool.process_spec.env}
        assert values == {"OMPI_COMM_WORLD_RANK": "$(GROUP_RANK)", "OMPI_COMM_WORLD_SIZE": "2"}


def test_a_lost_host_has_stopped_before_its_place_is_taken() -> None:
    made = job()

    spares.prepare(made, Allocation("ssh", "guard-1", 0, 3, 0, 1, "n1", ("n1", "n2", "n3")), 2)

    policy = made.job_spec.fault_tolerance.disconnect_policy
    assert policy == spec_pb2.DISCONNECT_POLICY_STOP_AND_REPLACE
    assert not any(pool.process_spec.env for pool in made.job_spec.worker_pool_specs)
    assert spares.settings()["lease"] == spares.LEASE_S < spares.LOST_S == spares.settings()["lost_after"]


@pytest.mark.parametrize(
    ("gone", "known", "count", "said", "goes_on"),
    [
        ({2: "n3"}, set(), 0, "Task 2 on n3 is gone before its time, so the job has ended.", False),
        ({2: "n3"}, set(), 1, "task 2 on n3 is gone: no spares are left", True),
        ({2: "n3"}, set(), 2, "task 2 on n3 is gone: 1 spare is left", True),
        ({2: "n3", 1: "n2"}, set(), 4, "tasks 1 on n2, 2 on n3 are gone: 2 spares are left", True),
        ({2: "n3"}, {2}, 1, "", True),
        (
            {2: "n3", 1: "n2"},
            {2},
            1,
            "Task 1 on n2 is gone before its time and no spare is left, so the job has ended.",
            False,
        ),
        ({3: ""}, set(), 1, "", True),
        ({}, set(), 0, "", True),
    ],
)
def test_what_is_said_of_tasks_that_are_gone(
    gone: dict[int, str], known: set[int], count: int, said: str, goes_on: bool
) -> None:
    assert spares.on_gone(gone, known, count) == (said, goes_on)
