"""Options of a batch script, as Slurm reads them: what is taken, what is refused, what is said to count for nothing."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.unit.cli.submission.test_sbatch import job, refused, script


def notes(text: str) -> str:
    """All that is said of a script that is taken."""
    return "\n".join(job(text)[1])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (script("true", options="--gres=gpu:h100:4(S:0-1)"), "no whole number of GPUs for each node"),
        (script("true", options="--gres=gpu=4"), "line 2: #SBATCH --gres: 'gpu=4' is no number of GPUs"),
        (script("true", options="--gres=gres/gpu:4"), "'gres/gpu:4' is no number of GPUs (write --gres=gpu:8"),
        (script("true", options="--tres-per-task=gres/gpu:1"), "--tres-per-task: has no counterpart"),
        (script("true", options="--gpus-per-socket=2"), "(write --gpus-per-node=8, say)"),
        (script("true", options="--begin=now+1hour"), "line 2: #SBATCH --begin: starts a job later, and none here"),
        (script("true", options="-Hv"), "line 2: #SBATCH --hold: keeps a job from starting"),
        (script("true", options="--test-only"), "--test-only: asks for no job (leave it out, and give submit --d"),
        (script("true", options="-i data"), "#SBATCH --input: is not what ranks read (write < FILE behind"),
        (script("true", options="--container-image=a"), "(write a job file with a containerSpec)"),
        (script("true", options="--wrap='python x'"), "--wrap: is a script in place of this one"),
        (script("true", options="--cpu-per-task=4"), "is no option of sbatch (write --cpus-per-task)"),
        (script("true", options="--tim=10"), "is no option of sbatch (write --time or --time-min)"),
        (script("true", options="--gpu-count=10"), "line 2: #SBATCH --gpu-count=10: is no option of sbatch"),
        (script("true", options="-Z"), "#SBATCH -Z: is no option of sbatch (leave it out)"),
        (script("true", options="--nodes="), "#SBATCH --nodes=: needs a value (write --nodes=…, or leave it out)"),
        (script("true", options="-N"), "line 2: #SBATCH -N: needs a value"),
        (script("true", options="--nodes --ntasks=2"), "'--ntasks=2' is no number above 0"),
        (script("true", options="--requeue=yes"), "--requeue=yes: has no value in Slurm (write --requeue)"),
        (
            script("srun true", options="-N2 --ntasks-per-node=4 -n16"),
            "16 tasks are more than 4 on each of 2 nodes",
        ),
        ("#!/bin/sh\n#SBATCHX -N2\ntrue\n", "line 2: #SBATCH X: has no counterpart (options begin with a dash)"),
        (script("srun ./a : -n3 ./b", options="-n4"), "srun starts several programs (write a job file with a pool"),
    ],
)
def test_what_slurm_would_refuse_or_do_otherwise_is_refused_with_what_to_do(text: str, said: str) -> None:
    assert said in refused(text)


def test_the_last_of_two_options_counts() -> None:
    def memory(options: str) -> int:
        found: int = job(script("true", options=options))[0].job_spec.worker_pool_specs[0].machine_spec.memory_mb
        return found

    assert memory("--mem=8G --mem-per-cpu=4G -c 4") == 16384
    assert memory("--mem-per-cpu=4G -c 4 --mem=8G") == 8192
    assert job(script("true", options="--no-requeue"))[0].job_spec.scheduling.disable_retries
    assert not job(script("true", options="--no-requeue --requeue"))[0].job_spec.scheduling.disable_retries


@pytest.mark.parametrize("options", ["--gres=gpu:0", "--gpus=0", "--gres=none", "--gpus-per-node=h100:0"])
def test_no_gpu_may_be_asked_for(options: str) -> None:
    made, said = job(script("true", options=options))
    assert (made.job_spec.worker_pool_specs[0].machine_spec.accelerator_count, said) == (0, [])


@pytest.mark.parametrize("text", ["usr1@120", "B:USR1@120", "SIGUSR1@120", "R:10@120", "10@120"])
def test_a_signal_is_named_in_any_way_that_slurm_knows(text: str) -> None:
    warning = job(script("true", options=f"--signal={text}"))[0].job_spec.scheduling.warning_signal
    assert (warning.signal, warning.before.seconds) == ("SIGUSR1", 120)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--constraint='a&b'", "--constraint (line 2: --host-selector of submit chooses hosts by labels)"),
        ("--exclusive", "--exclusive (line 2: other jobs may use what is left of the hosts)"),
        (
            "--mail-type=END --mail-user=a@b",
            "--mail-type (line 2: notifications of a job file tell of its end), --m",
        ),
        ("-o %x-%j_%t.out -e %j.err", "--error (line 2: holdfast logs has what ranks write), --output (line 2:"),
        ("--exclusive -W -s -Q --time 10", "--oversubscribe (line 2), --wait (line 2: submit --wait waits)"),
        ("-A ml -q high --nice=10", "--account (line 2), --nice (line 2), --qos (line 2)"),
        ("-n1\n#PBS -l nodes=2", "line 3: #PBS counts for nothing; write #SBATCH"),
    ],
)
def test_what_counts_for_nothing_is_said_with_its_line(options: str, said: str) -> None:
    assert said in notes(script("true", options=options))


@pytest.mark.parametrize(
    ("step", "written"),
    [
        ("srun a > log 2>&1", "log"),
        ("srun a &>'a b'", "'a b'"),
        ("srun a 2>&1 | tee log", "tee -a log"),
        ("srun a \\\n  > log", "log"),
        ("srun a >> log", ""),
        ("srun a > /dev/null 2>&1", ""),
        ("srun a | tee -a log", ""),
        ("srun a > >(cat)", ""),
        ("srun a > log.$SLURM_PROCID", ""),
        ("srun bash -c 'a > b'", ""),
        ("srun a '>' b", ""),
    ],
)
def test_a_file_that_all_ranks_write_from_its_beginning_is_named(step: str, written: str) -> None:
    said = notes(script(step, options="-n4"))
    assert ("each of the 4 ranks writes" in said, written in said) == (bool(written), True)
    assert "writes" not in notes(script(step, options="-n1"))


@pytest.mark.parametrize("seed", ["0", "1", "2"])
def test_what_is_refused_comes_in_the_order_of_the_script(seed: str) -> None:
    """In a Python of its own: the order of a set would be another one in each."""
    code = (
        "from tests.unit.cli.submission.test_sbatch import refused, script;"
        "print(refused(script('srun a', options='--hold\\n#SBATCH --begin=now\\n#SBATCH --test-only')))"
    )
    env = {**os.environ, "PYTHONHASHSEED": seed}
    said = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    assert said.index("--hold") < said.index("--begin") < said.index("--test-only")
