"""A batch script of Slurm as a job, where its meaning is clear."""

from __future__ import annotations

import os
import subprocess

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
    made, said = job(SCRIPT)

    assert made.display_name == "llama"
    pools = made.job_spec.worker_pool_specs
    assert [pool.replica_count for pool in pools] == [1, 3]
    for pool in pools:
        assert pool.processes_per_worker == 8
        machine = pool.machine_spec
        assert (machine.accelerator_count, machine.cpu_count, machine.memory_mb) == (8, 32, 65536)
    command = list(pools[0].process_spec.command)
    assert command[:2] == ["bash", "-c"]
    assert command[2].splitlines()[2:] == [
        "module load cuda",
        "export OMP_NUM_THREADS=4",
        'python train.py     --lr "$LR" | tee out'.replace("$", "$$"),
    ]
    scheduling = made.job_spec.scheduling
    assert scheduling.timeout.seconds == 36 * 3600
    assert (scheduling.warning_signal.signal, scheduling.warning_signal.before.seconds) == ("SIGUSR1", 300)
    assert list(scheduling.host_selector.avoid_hosts) == ["n1", "n2", "n7"]
    unused, overwritten = said
    assert unused.startswith("nothing here corresponds to --account (line 9), --output (line 10: holdfast logs has")
    assert "--partition (line 9: --host-selector of submit chooses" in unused
    assert overwritten.startswith(
        "line 15: each of the 32 ranks writes out from its beginning, over what the others"
    )


def test_a_script_without_srun_is_one_task() -> None:
    made, unused = job(script("python train.py", options="--gpus=1"))

    (pool,) = made.job_spec.worker_pool_specs
    assert (pool.replica_count, pool.processes_per_worker, pool.machine_spec.accelerator_count) == (1, 1, 1)
    assert (made.display_name, unused) == ("job", [])


def test_lines_after_the_first_command_are_no_options() -> None:
    made, said = job(script("#SBATCH --nodes=1", "echo begun", "#SBATCH --nodes=9"))

    assert len(made.job_spec.worker_pool_specs) == 1
    assert said == ["line 4: #SBATCH behind the first command counts for nothing, as in Slurm"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 5400), ("1:30", 90), ("2:00:00", 7200), ("1-0", 86400), ("1-1:30", 91800), ("1-01:30:05", 91805)],
)
def test_times_are_read_as_slurm_reads_them(text: str, seconds: int) -> None:
    made, _ = job(script("true", options=f"--time={text}"))

    assert made.job_spec.scheduling.timeout.seconds == seconds


@pytest.mark.parametrize(
    ("options", "model", "partition"),
    [
        ("--gres=gpu:h100:4", "h100", ""),
        ("--gres=gpu:h100", "h100", ""),
        ("--gpus-per-node=a100_80gb:2", "a100_80gb", ""),
        ("--gres=gpu:1g.10gb:1,lscratch:100", "", "1g.10gb"),
        ("--gres=gpu:4", "", ""),
    ],
)
def test_a_type_of_gpus_is_the_model_or_the_mig_profile(options: str, model: str, partition: str) -> None:
    made, _ = job(script("srun true", options=options))

    machine = made.job_spec.worker_pool_specs[0].machine_spec
    assert (machine.accelerator_type, machine.gpu_partition_size) == (model, partition)


def test_gpus_of_two_types_are_refused() -> None:
    assert "several types" in refused(script("srun true", options="--gres=gpu:a100:1,gpu:h100:1"))
    assert "and another option for h100" in refused(script("srun true", options="--gpus=a100:1 --gres=gpu:h100:1"))


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
        (script("srun a && srun b"), "srun is not at the beginning of the last command"),
        (script("cd /data; srun a"), "srun is not at the beginning of the last command"),
        (script("timeout 60 srun a"), "srun is not at the beginning of the last command"),
        (script("srun -N1 a", options="-N4 --ntasks-per-node=2"), "--nodes=1 is not the script's --nodes=4"),
        (script("srun -n 2 a", options="-N4 --ntasks-per-node=2"), "--ntasks=2 is not the script's 8 tasks"),
        (script("srun --export=ALL,A=$B a"), "is not known before it runs (export it in a line before)"),
        (script("true", options="--export=ALL,9=x"), "'9=x' is no variable that is set here (write NAME=VALUE)"),
        (script("srun a", options="-N2 --ntasks-per-gpu=1"), "(write the number of ranks as --ntasks-per-node)"),
        (script("true", options="--job-name='a"), "has a quote without an end (close it)"),
        (script("python a.py", "sbatch next.sh"), "sbatch knows nothing of a job here"),
        (
            script("cd $SLURM_TMPDIR"),
            "SLURM_TMPDIR is not set here (write its value, or ${SLURM_TMPDIR:-…} with one",
        ),
        ("#!/usr/bin/env python3\n#SBATCH -N1\nimport os\n", "line 1: '/usr/bin/env python3' is no shell"),
        (script("export MASTER_ADDR=$(scontrol show hostnames | head -1)", "srun a"), "MASTER_ADDR"),
        (script("true", options="-"), "#SBATCH -: names no option (remove it)"),
        (script("true", options="-- -N1"), "#SBATCH --: names no option (remove it)"),
        (script("srun - true"), "srun's option - has no counterpart"),
        (script("true", options="--mem=9999999999999T"), "MiB on each node (write less)"),
        (script("true", options="--mem-per-gpu=4G"), "asks for memory of GPUs, and for no GPU"),
        (script("true", options="--gpus=99999999999999999999"), "no whole number of GPUs"),
        (script("srun a", options="-c 999999 -n 999999"), "cores on each node (write fewer)"),
        (script("true", options="--signal=USR1@5m"), "'USR1@5m' is no signal and seconds (write USR1@300, say)"),
        (script("true", options="--signal=@60"), "no signal and seconds"),
        (script("true", options="--nodelist=/tmp/hosts"), "#SBATCH --nodelist: '/tmp/hosts' is a file of names"),
        (script("true", options="--exclude=n[1-"), "#SBATCH --exclude: 'n[1-' is no host list"),
        (script("true", options="--export=RANK=3"), "RANK tells each rank which one it is; Holdfast sets it"),
        (
            script("srun torchrun a.py", options="-n8"),
            "#SBATCH --ntasks-per-node: is 8, and the script starts a launch",
        ),
        (script("echo $SLURMD_NODENAME"), "SLURMD_NODENAME is not set here"),
        (script("N=$((2 * SLURM_CPUS_ON_NODE))"), "SLURM_CPUS_ON_NODE is not set here"),
        (script("export MASTER_ADDR=$(hostname)", "srun a", options="-N2"), "MASTER_ADDR tells each rank how"),
        (script("MASTER_PORT=$((9000 + RANDOM)) srun a", options="-n2"), "line 3: MASTER_PORT tells each rank how"),
        (
            script("srun torchrun --rdzv_id $RANDOM a.py", options="-N2"),
            "--rdzv_id would be another one on each host (leave it out: torchrun has it here)",
        ),
        (
            script("srun torchrun --rdzv-endpoint=$(hostname):29500 a.py", options="-N2"),
            "--rdzv-endpoint would be another one on each host",
        ),
    ],
)
def test_what_is_not_clear_is_refused_with_what_to_do(text: str, said: str) -> None:
    assert said in refused(text)


def test_all_that_is_not_clear_is_named_at_once() -> None:
    options = "-N2 --export=RANK=3 --time=soon --nodelist=/etc/hosts --mem=much --dependency=later:1"
    said = refused(script("srun python train.py", options=options))
    assert said.startswith("job.sh has 5 problems")
    assert all(f"--{name}" in said for name in ("export", "time", "nodelist", "mem", "dependency")), said


def test_an_array_of_slurm_is_one_here_and_its_variables_are_set() -> None:
    made, _ = job(script("python train.py $SLURM_ARRAY_TASK_ID", options="--array=0-9:3%2"))
    assert made.job_spec.scheduling.array == "0-9:3%2"
    program = made.job_spec.worker_pool_specs[0].process_spec.command[2]
    assert "SLURM_ARRAY_TASK_ID=$$HOLDFAST_ARRAY_INDEX SLURM_ARRAY_TASK_COUNT=$$HOLDFAST_ARRAY_COUNT" in program


def test_dependencies_of_slurm_are_jobs_to_run_after() -> None:
    made, _ = job(script("true", options="--dependency=afterok:prep-1:data-2,afterany:eval-3,afternotok:bad-4"))
    ends = [(each.job, each.end) for each in made.job_spec.scheduling.after]
    assert ends == [("prep-1", 1), ("data-2", 1), ("eval-3", 2), ("bad-4", 3)]


def program(text: str) -> list[str]:
    """The lines that each rank runs, behind the variables of Slurm."""
    made, _ = job(text)
    return made.job_spec.worker_pool_specs[0].process_spec.command[-1].replace("$$", "$").splitlines()[2:]


def counts(text: str) -> tuple[int, int]:
    """Nodes, and tasks on each."""
    made, _ = job(text)
    pools = made.job_spec.worker_pool_specs
    return sum(pool.replica_count for pool in pools), pools[0].processes_per_worker


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ("-n 16 --ntasks-per-node=8", (2, 8)),
        ("-N 2 -n 8 --ntasks-per-node=8", (2, 4)),
        ("-N 2 \\\n#SBATCH --ntasks-per-node=8", (2, 8)),
        ("--ntasks-per-nod=8 -N2", (2, 8)),
        ("--nodes 3 --no-kill -n3", (3, 1)),
        ("-N2 -N4", (4, 1)),
        ("-N1\n  # indented\n  #SBATCH -N9\n#SBATCH\n#SBATCH--nodes=3", (3, 1)),
    ],
)
def test_tasks_are_as_many_as_slurm_starts(options: str, found: tuple[int, int]) -> None:
    assert counts(script("srun true", options=options)) == found


@pytest.mark.parametrize(
    ("step", "found"),
    [
        ("srun --ntasks-per-node=4 true", (2, 4)),
        ("srun -n 8 true", (2, 4)),
        ("srun --nodes=2 -n $SLURM_NTASKS --cpus-per-task=$SLURM_CPUS_PER_TASK true", (2, 1)),
    ],
)
def test_sizes_that_the_script_leaves_open_are_those_of_srun(step: str, found: tuple[int, int]) -> None:
    assert counts(script(step, options="-N2 -c 2")) == found


@pytest.mark.parametrize(
    ("line", "runs"),
    [
        ("exec srun python a.py", "exec python a.py"),
        ('OMP_NUM_THREADS=4 A="b c" srun -u python a.py', 'OMP_NUM_THREADS=4 A="b c" python a.py'),
        ("/usr/bin/srun --label time python a.py", "time python a.py"),
        ('srun bash -c "\n  cd /x\n  python a.py\n"', 'bash -c "\n  cd /x\n  python a.py\n"'),
        ("srun \\\n  --label \\\n  python a.py", "python a.py"),
        ("srun python a.py || :", "python a.py || :"),
        ("echo srun begins", "echo srun begins"),
    ],
)
def test_a_step_runs_as_it_is_written(line: str, runs: str) -> None:
    assert program(script(line)) == runs.splitlines()


def test_a_backslash_that_is_escaped_or_in_quotes_joins_no_line() -> None:
    for end in ("a\\\\", "'a\\'"):
        assert program(script(f"srun python {end}", options="-n 2")) == [f"python {end}"]
        assert "the one last command" in refused(script(f"srun python {end}", "echo done", options="-n 2"))


@pytest.mark.timeout(60)
def test_a_script_of_many_lines_that_go_on_is_read_once() -> None:
    many = ["srun python 'first", *["second \\"] * 20_000, *["third"] * 60_000]
    assert "the one last command" in refused(script(*many, "'", "srun python a.py", options="-n 2"))


def test_a_file_that_a_script_writes_has_all_its_lines() -> None:
    lines = ["cat > cfg <<'EOF'", "# a comment", "a: b \\", "  c", "EOF", "# train", "python train.py"]
    assert program(script(*lines)) == lines


def test_a_kind_of_gres_that_is_no_gpu_counts_for_nothing() -> None:
    made, said = job(script("true", options="--gres=gpu:2,lscratch:100"))
    assert made.job_spec.worker_pool_specs[0].machine_spec.accelerator_count == 2
    assert said == ["nothing here corresponds to --gres (line 2)"]


def test_the_shell_has_the_options_that_the_script_names() -> None:
    made, _ = job("#!/bin/bash -l\n#SBATCH -N1\nconda activate torch\npython train.py\n")
    assert made.job_spec.worker_pool_specs[0].process_spec.command[:3] == ["bash", "-l", "-c"]


def test_what_slurm_would_export_is_there() -> None:
    made, _ = sbatch.job(
        script("srun --export=ALL,B=2 true", options="-N2 -J fit --export=ALL,A='x y',C"),
        "job.sh",
        {"C": "3"},
        "/work",
    )
    (line,) = [
        line
        for line in made.job_spec.worker_pool_specs[0].process_spec.command[2].splitlines()
        if line.startswith("export SLURM_SUBMIT_DIR=")
    ]
    assert line.split()[1:3] == ["SLURM_SUBMIT_DIR=/work", "SLURM_JOB_NAME=fit"]
    assert {"SLURM_NNODES=2", "B=2", "C=3"} <= set(line.split())
    assert "A='x y'" in line


@pytest.mark.parametrize("text", ["0", "0:00:00", "UNLIMITED", "infinite", "99999-00", "9" * 30])
def test_a_time_without_end_is_the_longest_timeout(text: str) -> None:
    made, _ = job(script("true", options=f"--time={text}"))
    assert made.job_spec.scheduling.timeout.seconds == 3650 * 86400


@pytest.mark.parametrize(("nodes", "gpus"), [(49, 1), (49, 8), (75, 7), (100, 8)])
def test_gpus_of_all_nodes_are_shared_out_over_any_number_of_them(nodes: int, gpus: int) -> None:
    made, _ = job(script("srun true", options=f"-N{nodes} --gpus={nodes * gpus}"))
    assert made.job_spec.worker_pool_specs[0].machine_spec.accelerator_count == gpus


def test_one_task_may_set_where_it_meets_itself_and_others_where_they_keep_what_is_set() -> None:
    job(script("export MASTER_ADDR=$(hostname) MASTER_PORT=29500", "python a.py"))
    job(script('export MASTER_PORT="${MASTER_PORT:-29500}"', "srun a", options="-N2"))


def test_variables_that_are_set_may_be_reckoned_with() -> None:
    job(
        script("N=$((SLURM_NTASKS * 2 + ${SLURM_NNODES:-1} + $SLURM_PROCID)) M=$((N + 1))", "srun a", options="-n2")
    )


def test_a_way_of_mpi_s_to_meet_is_named() -> None:
    assert job(script("srun --mpi=pmix a", options="-N2"))[1] == ["nothing here corresponds to --mpi"]
    assert job(script("srun --mpi=none a", options="-N2"))[1] == []


def test_the_job_s_number_is_one_with_which_programs_can_reckon() -> None:
    made, _ = job(script('echo "$SLURM_JOB_ID $SLURM_JOBID $((SLURM_JOB_ID % 10000))"'))
    shell, _, text = made.job_spec.worker_pool_specs[0].process_spec.command
    environ = {"PATH": os.environ["PATH"], "HOLDFAST_JOB": "train-x7k2mq"}
    said = subprocess.run([shell, "-c", text.replace("$$", "$")], env=environ, capture_output=True, check=True)
    assert said.stdout.split() == [b"2683818868", b"2683818868", b"8868"]


def test_texts_that_are_no_utf_8_are_named() -> None:
    made, _ = sbatch.job(script("true"), "exp\udcff.sh", {}, "/work")
    assert made.display_name == "exp"
    for environ, cwd, said in (
        ({"A": "\udcff"}, "/work", "the value of A is not UTF-8"),
        ({"A": "a"}, "/\udcff", "this folder's name is not UTF-8"),
    ):
        with pytest.raises(InvalidSpec, match=said):
            sbatch.job(script("true", options="--export=A"), "job.sh", environ, cwd)


def test_a_line_ends_where_a_shell_ends_it() -> None:
    lines = ["printf 'a\fb\u2028c'", "python a.py"]
    text = script(*lines)
    assert program(text.replace("\n", "\r\n")) == program(text)
    made, _ = job(text)
    assert "\n".join(lines) in made.job_spec.worker_pool_specs[0].process_spec.command[2]


def test_cpus_and_memory_may_be_given_for_each_gpu() -> None:
    made, unused = job(script("true", options="--gpus-per-node=4 --cpus-per-gpu=8 --mem-per-gpu=2G"))
    machine = made.job_spec.worker_pool_specs[0].machine_spec
    assert (machine.cpu_count, machine.memory_mb, unused) == (32, 8192, [])
