"""A batch script of Slurm as a job, where its meaning is clear."""

from __future__ import annotations

import pytest

from holdfast.cli.submission import sbatch
from holdfast.errors import InvalidSpec
from holdfast.v1 import job_pb2

SCRIPT = """\
#!/bin/bash
#SBATCH --job-name=llama
#SBATCH -N 4 --ntasks-per-node=8   # a node has eight GPUs
#SBATCH --gres=gpu:h100:8 -c 4
#SBATCH --mem=64G
#SBATCH --time=1-12:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --exclude=n[1-2],n7
#SBATCH --partition=gpu --account=ml
#SBATCH -o logs/%j.out
#SBATCH --requeue

module load cuda
export OMP_NUM_THREADS=4
srun --label -n 32 python train.py \\
    --lr "$LR" | tee out
"""


def job(text: str) -> tuple[job_pb2.CustomJob, list[str]]:
    return sbatch.job(text, "job.sh", {"PATH": "/usr/bin"}, "/work")


def script(*lines: str, options: str = "") -> str:
    return "\n".join(("#!/bin/sh", *(f"#SBATCH {options}",) * bool(options), *lines, ""))


def refused(text: str) -> str:
    with pytest.raises(InvalidSpec) as raised:
        job(text)
    return str(raised.value)


def test_a_usual_script_is_the_job_that_slurm_would_run() -> None:
    made, unused = job(SCRIPT)

    assert made.display_name == "llama"
    pools = made.job_spec.worker_pool_specs
    assert [pool.replica_count for pool in pools] == [1, 3]
    for pool in pools:
        assert pool.processes_per_worker == 8
        machine = pool.machine_spec
        assert (machine.accelerator_count, machine.cpu_count, machine.memory_mb) == (8, 32, 65536)
    command = list(pools[0].process_spec.command)
    assert command[:2] == ["bash", "-c"]
    assert command[2].splitlines()[1:] == [
        "",
        "module load cuda",
        "export OMP_NUM_THREADS=4",
        'python train.py      --lr "$LR" | tee out'.replace("$", "$$"),
    ]
    scheduling = made.job_spec.scheduling
    assert scheduling.timeout.seconds == 36 * 3600
    assert (scheduling.warning_signal.signal, scheduling.warning_signal.before.seconds) == ("SIGUSR1", 300)
    assert list(scheduling.host_selector.avoid_hosts) == ["n1", "n2", "n7"]
    assert unused == ["account", "partition"]


def test_a_script_without_srun_is_one_task() -> None:
    made, unused = job(script("python train.py", options="--gpus=1"))

    (pool,) = made.job_spec.worker_pool_specs
    assert (pool.replica_count, pool.processes_per_worker, pool.machine_spec.accelerator_count) == (1, 1, 1)
    assert (made.display_name, unused) == ("job", [])


def test_lines_after_the_first_command_are_no_options() -> None:
    made, _ = job(script("#SBATCH --nodes=1", "echo begun", "#SBATCH --nodes=9"))

    assert len(made.job_spec.worker_pool_specs) == 1


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 5400), ("1:30", 90), ("2:00:00", 7200), ("1-0", 86400), ("1-1:30", 91800), ("1-01:30:05", 91805)],
)
def test_times_are_read_as_slurm_reads_them(text: str, seconds: int) -> None:
    made, _ = job(script("true", options=f"--time={text}"))

    assert made.job_spec.scheduling.timeout.seconds == seconds


@pytest.mark.parametrize(
    ("options", "gpus"),
    [
        ("--gpus-per-node=4", 4),
        ("--gres=gpu", 1),
        ("-N2 --gpus=8", 4),
        ("--ntasks-per-node=4 --gpus-per-task=2", 8),
    ],
)
def test_gpus_are_those_of_each_node(options: str, gpus: int) -> None:
    made, _ = job(script("srun true", options=options))

    assert made.job_spec.worker_pool_specs[0].machine_spec.accelerator_count == gpus


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (script("true", options="--array=9-0"), "the range 9-0 ends before it begins"),
        (
            script("true", options="--dependency=singleton"),
            "'singleton' has no counterpart (write afterok, afterany",
        ),
        (script("true", options="--dependency=afterok:a?afterok:b"), "has no counterpart"),
        (script("true", options="--dependency=afterok:"), "'afterok:' has no counterpart"),
        (script("true", options="hetjob"), "has no counterpart (write a job file with a pool for each part)"),
        (script("true", options="nodes=2"), "has no counterpart (options begin with a dash)"),
        (script("true", options="--nodes=2-4"), "no number above 0 (write one, such as 2)"),
        (script("srun true", options="-N3 -n4"), "shared out evenly"),
        (script("srun true", options="-N3 --gpus=4"), "(write --gpus-per-node=8, say)"),
        (script("true", options="--time=soon"), "no time"),
        (script("true", options="--mem=lots"), "no size"),
        (script("python train.py", options="-N2"), "(write srun before the program, or ask for one task)"),
        (script("srun a", "srun b"), "submit one job for each"),
        (script("srun a", "echo done"), "not the one last command"),
        (script("srun a &"), "runs in the background (leave out the &)"),
        (script("srun --het-group=0 a"), "--het-group=0 has no counterpart (leave it out)"),
        (script("export MASTER_ADDR=$(scontrol show hostnames | head -1)", "srun a"), "MASTER_ADDR"),
    ],
)
def test_what_is_not_clear_is_refused_with_what_to_do(text: str, said: str) -> None:
    assert said in refused(text)


def test_an_array_of_slurm_is_one_here_and_its_variables_are_set() -> None:
    made, _ = job(script("python train.py $SLURM_ARRAY_TASK_ID", options="--array=0-9:3%2"))
    assert made.job_spec.scheduling.array == "0-9:3%2"
    program = made.job_spec.worker_pool_specs[0].process_spec.command[2]
    assert "SLURM_ARRAY_TASK_ID=$$HOLDFAST_ARRAY_INDEX SLURM_ARRAY_TASK_COUNT=$$HOLDFAST_ARRAY_COUNT" in program


def test_dependencies_of_slurm_are_jobs_to_run_after() -> None:
    made, _ = job(script("true", options="--dependency=afterok:prep-1:data-2,afterany:eval-3,afternotok:bad-4"))
    ends = [(each.job, each.end) for each in made.job_spec.scheduling.after]
    assert ends == [("prep-1", 1), ("data-2", 1), ("eval-3", 2), ("bad-4", 3)]
