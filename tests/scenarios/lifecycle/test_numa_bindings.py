"""A job's binding goes out with the order to launch; what agents say they have bound is shown, also after a restart."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.scenarios.world import World, gang

from holdfast import spec
from holdfast._base.job_file.choices import NumaBinding
from holdfast._session.reports import RankBinding
from holdfast.v1 import job_pb2
from holdfast_controller.core.step import commands as st
from holdfast_controller.core.step.assignment import desired
from holdfast_controller.shell.convert.gang_from_spec import gang_of
from holdfast_controller.shell.convert.job_to_proto import workers_to_proto

BOUND = RankBinding("0-15,64-79", True, "0", ("mlx5_0", "mlx5_1"))


def shown(made: World) -> list[list[job_pb2.RankBinding]]:
    job = made.cluster.jobs["a"]
    workers = workers_to_proto(made.cluster, job, job.gang.members)
    return [[rank.binding for rank in worker.ranks if rank.HasField("binding")] for worker in workers]


@pytest.mark.parametrize("mode", [None, "NONE", "NODE", "EXCLUSIVE"])
def test_the_order_says_what_the_job_file_says(mode: str | None) -> None:
    pool = {"replicaCount": 1, "processSpec": {"command": ["python", "t.py"]}}
    file: dict[str, object] = {"displayName": "d", "jobSpec": {"workerPoolSpecs": [pool]}}
    if mode is not None:
        file["jobSpec"] = {"workerPoolSpecs": [pool], "scheduling": {"numaBinding": mode}}
    wanted = gang_of(spec.parse(file).job_spec).numa_binding
    assert wanted is NumaBinding[mode or "NONE"]
    made = World(hosts=1)
    made.submit("a", gang(1, numa_binding=wanted))
    made.run("a")
    launch = desired(made.cluster, made.cluster.jobs["a"], 0, 0.0).launch
    assert launch is not None
    assert launch.numa_binding is wanted


def test_bindings_are_shown_with_their_ranks() -> None:
    made = World(hosts=2)
    made.submit("a", gang(2, numa_binding=NumaBinding.EXCLUSIVE))
    made.launch("a")
    for worker, bindings in enumerate((((0, BOUND),), ())):
        told = replace(made.place("a", worker, "RUNNING"), bindings=bindings)
        host = made.cluster.jobs["a"].places[worker].host
        made.step(st.WorkerReported(host, made.sessions[host], told))
        if not worker:
            assert [len(each) for each in shown(made)] == [1, 0], "before the others have started"
    expected = job_pb2.RankBinding(cpus="0-15,64-79", exclusive=True, memory_nodes="0", nics=["mlx5_0", "mlx5_1"])
    assert shown(made) == [[expected], []], "an agent that knows of none is no agent that has bound nothing"
    made.restart_controller()
    assert shown(made) == [[expected], []]
