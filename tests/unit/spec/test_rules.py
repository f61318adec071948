"""Rules that join several fields, at their boundaries."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import spec
from holdfast.errors import InvalidSpec, Violation

POOL = "jobSpec.workerPoolSpecs[0]"
RUN = {"command": ["python", "train.py"]}
CONTAINER = {"imageUri": "i"}
PACKAGE = {"executorImageUri": "i", "packageUris": ["u"], "pythonModule": "m"}


def pool(**fields: Any) -> dict[str, Any]:
    return {"replicaCount": 1, "processSpec": RUN, **fields}


def job(*pools: dict[str, Any]) -> dict[str, Any]:
    return {"jobSpec": {"workerPoolSpecs": list(pools)}}


def violations(*pools: dict[str, Any]) -> list[Violation]:
    try:
        spec.parse(job(*pools))
    except InvalidSpec as error:
        return list(error.violations)
    return []


def test_the_primary_is_one_worker_alone() -> None:
    assert violations(pool()) == []
    assert violations(pool(replicaCount=2)) == [
        Violation(
            f"{POOL}.replicaCount",
            "must be 1, not 2: pool 0 is the primary",
            "put the other one into a second pool",
        )
    ]
    assert violations(pool(), pool(replicaCount=31)) == []
    [found] = violations(pool(replicaCount=32), pool(replicaCount=2))
    assert found.fix == "put the other 31 into a second pool"


def test_a_job_has_at_most_four_pools() -> None:
    assert violations(*[pool()] * 4) == []
    assert violations(*[pool()] * 5) == [
        Violation(
            "jobSpec.workerPoolSpecs",
            "has 5 entries; at most 4 are allowed",
            "pool 0 is the primary, 1 the workers, 2 parameter servers, 3 evaluators",
        )
    ]


def test_a_pool_has_exactly_one_kind_of_task() -> None:
    assert violations({"replicaCount": 1, "containerSpec": CONTAINER}) == []
    assert violations({"replicaCount": 1, "pythonPackageSpec": PACKAGE}) == []
    assert violations({"replicaCount": 1}) == [
        Violation(POOL, "has no task", 'say what to run, such as processSpec: {"command": ["python", "train.py"]}')
    ]
    assert violations(pool(containerSpec=CONTAINER, pythonPackageSpec=PACKAGE)) == [
        Violation(f"{POOL}.{kind}", "is a second task; a pool has exactly one", "remove it, or the processSpec")
        for kind in ("containerSpec", "pythonPackageSpec")
    ]


def test_a_gpu_model_needs_a_count() -> None:
    named = {"acceleratorType": "NVIDIA_H100_80GB"}
    assert violations(pool(machineSpec={**named, "acceleratorCount": 1})) == []
    assert violations(pool(machineSpec={"acceleratorCount": 1})) == []
    [found] = violations(pool(machineSpec=named))
    assert found.path == f"{POOL}.machineSpec.acceleratorCount"
    assert found.problem == "is 0, though acceleratorType names a GPU"


@pytest.mark.parametrize("name", ["RANK", "MASTER_ADDR", "TF_CONFIG", "HOLDFAST_JOB", "HOLDFAST_ANYTHING"])
def test_what_is_set_for_each_rank_is_refused(name: str) -> None:
    [found] = violations(pool(processSpec={**RUN, "env": [{"name": "A"}, {"name": name, "value": "1"}]}))
    assert found.path == f"{POOL}.processSpec.env[1].name"
    assert found.problem.startswith(f"{name} ") and found.problem.endswith("; Holdfast sets it")
    assert found.fix == "remove it, or give a value of your own another name"
    [found] = violations(
        pool(containerSpec={"imageUri": "i", "secretEnv": [{"name": name, "secret": "s"}]}, processSpec=None)
    )
    assert found.path == f"{POOL}.containerSpec.secretEnv[0].name"


def test_visible_gpus_are_asked_for_by_their_count() -> None:
    [found] = violations(pool(processSpec={**RUN, "env": [{"name": "CUDA_VISIBLE_DEVICES", "value": "0"}]}))
    assert "acceleratorCount" in found.fix


def test_results_have_one_place() -> None:
    task = pool(processSpec={**RUN, "env": [{"name": "AIP_MODEL_DIR", "value": "/mine"}]})
    assert violations(task) == []
    body = {"jobSpec": {"workerPoolSpecs": [task], "baseOutputDirectory": {"outputUriPrefix": "/out"}}}
    with pytest.raises(InvalidSpec, match="AIP_MODEL_DIR says where the job's results go"):
        spec.parse(body)


@pytest.mark.parametrize(
    "variable",
    [("OMP_NUM_THREADS", "1"), ("NCCL_SOCKET_IFNAME", "ib0"), ("PET_NNODES", "1"), ("MA_HANG_DETECT_TIME", "10"),
     ("CUDA_DEVICE_ORDER", "PCI_BUS_ID"), ("HOLDFAST_CONFIG", "/c"), ("VIRTUAL_ENV", "/v"), ("rank", "1")],
)  # fmt: skip
def test_names_that_tune_are_the_users(variable: tuple[str, str]) -> None:
    name, value = variable
    assert violations(pool(processSpec={**RUN, "env": [{"name": name, "value": value}]})) == []


@pytest.mark.parametrize("program", ["", " ", "\t"])
def test_the_program_has_a_name(program: str) -> None:
    assert violations(pool(processSpec={"command": [program, "x"]})) == [
        Violation(f"{POOL}.processSpec.command[0]", "must name a program; it is empty")
    ]


def test_arguments_may_be_empty_texts() -> None:
    assert violations(pool(processSpec={"command": ["x", ""], "args": ["", " "]})) == []


def test_each_variable_is_set_once() -> None:
    env = [{"name": "A", "value": "1"}, {"name": "a"}, {"name": "A", "value": "2"}]
    assert violations(pool(processSpec={**RUN, "env": env})) == [
        Violation(f"{POOL}.processSpec.env[2].name", "A is set already by env[0]", "set it once")
    ]


def test_a_hundred_variables_are_allowed() -> None:
    assert violations(pool(processSpec={**RUN, "env": [{"name": f"V{i}"} for i in range(100)]})) == []


@pytest.mark.parametrize("kind", ["processSpec", "containerSpec", "pythonPackageSpec"])
def test_all_arguments_together_have_a_limit(kind: str) -> None:
    tasks: dict[str, dict[str, Any]] = {
        "processSpec": RUN,
        "containerSpec": CONTAINER,
        "pythonPackageSpec": PACKAGE,
    }
    task = tasks[kind]
    exactly = ["é" * 50_000, "x" * 50_000]
    assert violations({"replicaCount": 1, kind: {**task, "args": exactly}}) == []
    assert violations({"replicaCount": 1, kind: {**task, "args": [*exactly, "x"]}}) == [
        Violation(
            f"{POOL}.{kind}.args",
            "have 100,001 characters together; at most 100,000 are allowed",
            "pass long input in a file",
        )
    ]


def test_variables_that_grow_without_bound_are_refused() -> None:
    env = [{"name": "V0", "value": "xx"}]
    env += [{"name": f"V{i}", "value": f"$(V{i - 1})$(V{i - 1})"} for i in range(1, 100)]
    [found] = violations(pool(processSpec={**RUN, "env": env}))
    assert found.path == f"{POOL}.processSpec.env"
    assert "V16 grows beyond" in found.problem


def test_arguments_that_grow_without_bound_are_refused() -> None:
    task = {**RUN, "env": [{"name": "V", "value": "x" * 100_000}], "args": ["$(V)"] * 20_000}
    [found] = violations(pool(processSpec=task))
    assert found.path == f"{POOL}.processSpec.args"
    assert "argument 9 takes the arguments beyond 1,000,000 bytes" in found.problem


def test_all_ranks_together_have_a_limit() -> None:
    assert violations(pool(), pool(replicaCount=99_999)) == []
    assert violations(pool(), pool(replicaCount=50_000, processesPerWorker=2)) == [
        Violation(
            "jobSpec.workerPoolSpecs",
            "ask for 100,001 ranks; at most 100,000 are allowed",
            "lower replicaCount or processesPerWorker",
        )
    ]


@pytest.mark.parametrize(
    "task",
    [
        {"command": ["torchrun", "train.py"]},
        {"command": ["python"], "args": ["-m", "torch.distributed.run", "train.py"]},
    ],
)
def test_a_launcher_runs_once_per_worker(task: dict[str, Any]) -> None:
    assert violations(pool(processSpec=task)) == []
    [found] = violations(pool(processSpec=task, processesPerWorker=8))
    assert found == Violation(
        f"{POOL}.processesPerWorker",
        "must be 1, not 8: the command is a launcher, which starts the processes itself",
        "remove processesPerWorker, or run the training program without the launcher",
    )


def test_a_launcher_in_a_container_is_held_to_the_same() -> None:
    container = {**CONTAINER, "command": ["mpirun", "x"]}
    [found] = violations({"replicaCount": 1, "containerSpec": container, "processesPerWorker": 2})
    assert found.path == f"{POOL}.processesPerWorker"


@pytest.mark.parametrize(
    "task",
    [
        {"command": ["mpirun", "-n", "4", "python", "train.py"]},
        {"command": ["bash"], "args": ["-lc", "module load mpi; exec mpiexec.hydra python train.py"]},
        {"command": ["python", "-m", "horovod.runner", "train.py"]},
    ],
)
def test_mpi_on_each_of_several_workers_is_refused(task: dict[str, Any]) -> None:
    alone, rest = pool(processSpec=task), pool(processSpec=task, replicaCount=3)
    assert violations(alone) == []
    found = violations(alone, rest)
    assert [each.path for each in found] == [f"{POOL}.processSpec.command", f"{POOL[:-2]}1].processSpec.command"]
    assert "on each of 4 workers, and each would be a world of its own" in found[0].problem
    assert "write python mpi_gang.py before " in found[0].fix


@pytest.mark.parametrize(
    "task",
    [
        {"command": ["torchrun", "--standalone", "--nproc-per-node", "8", "train.py"]},
        {"command": ["bash"], "args": ["-lc", "torchrun --standalone --nnodes=1 train.py"]},
        {"command": ["uv", "run", "python", "-m", "torch.distributed.run", "--standalone", "train.py"]},
    ],
)
def test_torchrun_that_stays_on_its_host_is_refused_on_several_workers(task: dict[str, Any]) -> None:
    alone, rest = pool(processSpec=task), pool(processSpec=task, replicaCount=1)
    assert violations(alone) == []
    found = violations(alone, rest)
    assert [each.path for each in found] == [f"{POOL}.processSpec.command", f"{POOL[:-2]}1].processSpec.command"]
    assert "starts torchrun --standalone on each of 2 workers, and none would find the others" in found[0].problem
    assert found[0].fix.startswith("leave out --standalone")


def test_mpi_that_spans_the_workers_and_other_launchers_are_accepted() -> None:
    for command in (
        ["python", "mpi_gang.py", "mpirun", "python", "x.py"],
        ["torchrun", "x.py"],
        ["torchrun", "x.py", "--standalone"],
        ["torchrun", "-m", "trainer", "--standalone"],
        ["deepspeed", "x.py"],
    ):
        task = {"command": command}
        assert violations(pool(processSpec=task), pool(processSpec=task, replicaCount=3)) == []


def test_mpi_of_parameter_servers_and_evaluators_is_each_one_s_own() -> None:
    task = {"command": ["mpirun", "evaluate"]}
    assert violations(pool(), {}, {}, pool(processSpec=task, replicaCount=2)) == []


def test_rules_keep_silent_about_fields_that_were_refused_already() -> None:
    paths = [
        found.path
        for found in violations(
            pool(
                replicaCount="x",
                processesPerWorker=0,
                processSpec={"command": 5, "args": [1], "env": [7, {"name": "-"}, {"name": "A", "value": 1}]},
                machineSpec={"acceleratorType": "T", "acceleratorCount": "x"},
            ),
            pool(processSpec="x"),
        )
    ]
    task = f"{POOL}.processSpec"
    assert paths == [
        f"{POOL}.replicaCount",
        f"{task}.command",
        f"{task}.args[0]",
        f"{task}.env[0]",
        f"{task}.env[1].name",
        f"{task}.env[2].value",
        f"{POOL}.processesPerWorker",
        f"{POOL}.machineSpec.acceleratorCount",
        "jobSpec.workerPoolSpecs[1].processSpec",
    ]
