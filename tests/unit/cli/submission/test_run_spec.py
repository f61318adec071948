"""From the words of ``holdfast run`` to a job."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from holdfast.cli.kit.shell_words import shell_line
from holdfast.cli.submission.run_spec import RunRequest, environment, job_of, literal, name_of
from holdfast.errors import InvalidInput
from holdfast.v1 import spec_pb2

ENVIRON = {"PATH": "/usr/bin", "HOME": "/root", "CONDA_PREFIX": "/opt/conda", "SECRET": "x", "VIRTUAL_ENV": "/v"}


def pools(request: RunRequest) -> list[spec_pb2.WorkerPoolSpec]:
    return list(job_of(request, ENVIRON, "/jobs").job_spec.worker_pool_specs)


def test_one_worker_makes_one_pool() -> None:
    (pool,) = pools(RunRequest(("a",)))
    assert (pool.replica_count, pool.processes_per_worker) == (1, 1)


def test_replicas_make_a_primary_and_the_rest() -> None:
    assert [pool.replica_count for pool in pools(RunRequest(("a",), replicas=4))] == [1, 3]


def test_each_gpu_gets_a_rank() -> None:
    (pool,) = pools(RunRequest(("a",), gpus=8))
    assert (pool.machine_spec.accelerator_count, pool.processes_per_worker) == (8, 8)


def test_model_profile_and_class_of_hosts_are_asked_for_in_each_pool() -> None:
    asked = RunRequest(
        ("a",), gpus=1, replicas=3, gpu_type="H100", gpu_partition_size="1g.10gb", machine_type="big"
    )
    wanted = spec_pb2.MachineSpec(
        accelerator_count=1, accelerator_type="H100", gpu_partition_size="1g.10gb", machine_type="big"
    )
    assert [pool.machine_spec for pool in pools(asked)] == [wanted, wanted]


def test_processes_can_be_chosen() -> None:
    (pool,) = pools(RunRequest(("a",), gpus=8, processes_per_worker=2))
    assert pool.processes_per_worker == 2


def test_a_launcher_starts_once_a_worker() -> None:
    (pool,) = pools(RunRequest(("torchrun", "--nproc-per-node", "8", "t.py"), gpus=8))
    assert pool.processes_per_worker == 1


def test_a_launcher_with_several_processes_is_refused() -> None:
    with pytest.raises(InvalidInput, match="torchrun starts its processes itself"):
        pools(RunRequest(("torchrun", "t.py"), processes_per_worker=2))


@pytest.mark.parametrize(
    "command", [("./run.sh",), ("bash", "run.sh"), ("nice", "bash", "-e", "run.sh", "--lr", "1")]
)
def test_a_launcher_in_a_shell_script_is_seen(tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "run.sh").write_text("#!/bin/bash\nsource env\ntorchrun train.py\n")
    job = job_of(RunRequest(command, gpus=8, workdir=str(tmp_path)), {}, "/")
    assert job.job_spec.worker_pool_specs[0].processes_per_worker == 1


def test_a_script_that_starts_no_launcher_or_is_not_here_runs_once_for_each_gpu(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("python train.py\n")
    os.mkfifo(tmp_path / "fifo.sh")
    for command in ("./run.sh", "./missing.sh", "./fifo.sh", "./", "./\0.sh"):
        job = job_of(RunRequest((command,), gpus=8), {}, str(tmp_path))
        assert job.job_spec.worker_pool_specs[0].processes_per_worker == 8, command


def test_processes_asked_for_are_kept_whatever_a_script_starts(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("torchrun train.py\n")
    job = job_of(RunRequest(("./run.sh",), gpus=8, processes_per_worker=2), {}, str(tmp_path))
    assert job.job_spec.worker_pool_specs[0].processes_per_worker == 2


def test_success_takes_every_rank() -> None:
    assert job_of(RunRequest(("a",)), {}, "/").job_spec.success_policy == spec_pb2.SUCCESS_POLICY_ALL


def test_wishes_about_hangs_are_set_only_where_they_were_said() -> None:
    assert not job_of(RunRequest(("a",)), {}, "/").job_spec.fault_tolerance.HasField("hang_detection")

    request = RunRequest(("a",), restart_on_hang=True, hang_timeout_s=90.5)
    hang = job_of(request, {}, "/").job_spec.fault_tolerance.hang_detection
    assert hang.action == spec_pb2.HANG_ACTION_RESTART
    assert hang.timeout.ToMilliseconds() == 90_500

    hang = job_of(RunRequest(("a",), hang_timeout_s=60), {}, "/").job_spec.fault_tolerance.hang_detection
    assert hang.action == spec_pb2.HANG_ACTION_UNSPECIFIED
    assert hang.timeout.ToSeconds() == 60


def test_dollars_arrive_as_typed() -> None:
    (pool,) = pools(RunRequest(("sh", "-c", "echo $(date) $$ $HOME")))
    assert list(pool.process_spec.command) == ["sh", "-c", "echo $$(date) $$$$ $$HOME"]


@pytest.mark.parametrize("text", ["", "a", "$", "$$", "$(A)", "$$(A)", "a$b$$c$"])
def test_what_is_doubled_is_halved_by_the_spec(text: str) -> None:
    assert literal(text).replace("$$", "$") == text


def test_only_the_allowlist_is_carried() -> None:
    names = [(each.name, each.value) for each in environment((), ENVIRON)]
    assert names == [("CONDA_PREFIX", "/opt/conda"), ("PATH", "/usr/bin"), ("VIRTUAL_ENV", "/v")]


def test_asked_variables_win() -> None:
    found = {each.name: each.value for each in environment(("PATH=/x", "SECRET", "EMPTY="), ENVIRON)}
    assert (found["PATH"], found["SECRET"], found["EMPTY"]) == ("/x", "x", "")


def test_dollars_in_variables_are_literal_too() -> None:
    (found,) = environment(("A=$(B)",), {})
    assert found.value == "$$(B)"


@pytest.mark.parametrize(
    ("item", "problem"),
    [("NOPE", "is not set here"), ("=x", "has no name"), ("RANK=1", "RANK tells each rank which one it is")],
)
def test_a_variable_that_cannot_be_meant_is_refused(item: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        environment((item,), {})


@pytest.mark.parametrize(
    ("workdir", "expected"), [("", "/jobs"), ("sub", "/jobs/sub"), ("../x", "/x"), ("/abs", "/abs")]
)
def test_the_working_directory_is_absolute(workdir: str, expected: str) -> None:
    (pool,) = pools(RunRequest(("a",), workdir=workdir))
    assert pool.process_spec.working_directory == expected


def test_limits_and_times_are_set_only_when_asked() -> None:
    spec = job_of(RunRequest(("a",)), {}, "/").job_spec
    assert not spec.HasField("scheduling")
    # A job at a prompt is restarted in place, but not placed anew unless asked for.
    assert spec.fault_tolerance == spec_pb2.FaultTolerance(max_job_retries=0)
    asked = RunRequest(("a",), grace_s=90.5, max_restarts=0, cpus=2, memory_mb=512)
    spec = job_of(asked, {}, "/").job_spec
    assert spec.scheduling.grace_period.ToMilliseconds() == 90_500
    assert spec.fault_tolerance.HasField("max_worker_restarts")
    machine = spec.worker_pool_specs[0].machine_spec
    assert (machine.cpu_count, machine.memory_mb) == (2, 512)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("/usr/bin/python", "train.py"), "python train.py"),
        (("python", "-c", "import os\nprint(1)"), "python -c 'import os print(1)'"),
        (("python", "-c", "print('x')", "a b", "$HOME"), "python -c \"print('x')\" 'a b' '$HOME'"),
        (("x", "y" * 100), "x " + "y" * 57 + "…"),
        (("x", "\x1b[31m"), "x '?[31m'"),
    ],
)
def test_a_job_is_named_after_its_command(command: tuple[str, ...], name: str) -> None:
    assert name_of(command) == name


def test_a_given_name_wins() -> None:
    assert job_of(RunRequest(("a",), name="mine"), {}, "/").display_name == "mine"


def test_a_command_line_in_quotes_is_refused_with_the_way_to_write_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as refused:
        job_of(RunRequest(("python train.py",)), {}, str(tmp_path))
    assert "Leave out the quotes: holdfast run -- python train.py" in str(refused.value.violations[0])
    (tmp_path / "my program").touch()
    assert job_of(RunRequest(("my program",)), {}, str(tmp_path)).display_name == "'my program'"


@pytest.mark.parametrize(
    "words", [["print('x')"], ["a b", ""], ["it's $HOME"], ['"'], ["\\", "`ls`", "!x"], ["ünï", "*"], ["plain"]]
)
def test_a_shell_reads_back_the_words_of_a_line(words: list[str]) -> None:
    assert shlex.split(shell_line(words)) == words
    printed = subprocess.run(["bash", "-c", f"printf '%s\\n' {shell_line(words)}"], capture_output=True, text=True)
    assert printed.stdout == "".join(word + "\n" for word in words)


def test_an_option_is_no_command() -> None:
    with pytest.raises(InvalidInput, match="'--lr' is an option and no program"):
        job_of(RunRequest(("--lr", "3")), {}, "/jobs")


@pytest.mark.parametrize(
    ("item", "fix"),
    [
        ("LR:3", "Write --env LR=3."),
        ("LR: 3", "Write --env LR=3."),
        ("LR 1 2", "Write --env 'LR=1 2'."),
        ("3:x", "Write --env NAME=VALUE."),
    ],
)
def test_a_variable_written_otherwise_is_answered_with_how_to_write_it(item: str, fix: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        environment((item,), {})
    assert refused.value.violations[0].fix == fix


def test_a_variable_before_the_program_is_an_option(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as refused:
        job_of(RunRequest(("LR=1", "python", "train.py")), {}, str(tmp_path))
    assert "--env LR=1 -- python train.py" in str(refused.value.violations[0])
    (tmp_path / "A=b").touch()
    assert job_of(RunRequest(("A=b",)), {}, str(tmp_path)).display_name == "A=b"


BYTES = "caf\udce9"
"""As Python has the bytes of a name that is not UTF-8."""


@pytest.mark.parametrize(
    ("request_", "cwd", "field"),
    [
        (RunRequest(("cat", BYTES)), "/jobs", "COMMAND"),
        (RunRequest(("a",), workdir=BYTES), "/jobs", "--workdir"),
        (RunRequest(("a",)), f"/home/{BYTES}", "--workdir"),
        (RunRequest(("a",), name=BYTES), "/jobs", "--name"),
        (RunRequest(("a",), env=(f"A={BYTES}",)), "/jobs", "--env"),
        (RunRequest(("a",), env=("OLD",)), "/jobs", "--env OLD"),
    ],
)
def test_what_is_not_utf8_is_refused_by_its_field(request_: RunRequest, cwd: str, field: str) -> None:
    with pytest.raises(InvalidInput, match=r"is not UTF-8") as refused:
        job_of(request_, ENVIRON | {"OLD": BYTES}, cwd)
    assert [each.path for each in refused.value.violations] == [field]


def test_folders_that_are_not_utf8_are_left_out_of_what_is_carried() -> None:
    environ = {"PATH": f"/usr/bin:/opt/{BYTES}/bin::/bin", "VIRTUAL_ENV": f"/v/{BYTES}", "CONDA_SHLVL": ""}
    assert {each.name: each.value for each in environment((), environ)} == {
        "PATH": "/usr/bin::/bin",
        "CONDA_SHLVL": "",
    }


def test_each_variable_that_can_t_be_meant_is_named() -> None:
    with pytest.raises(InvalidInput) as refused:
        job_of(RunRequest(("a",), env=("RANK=1", "A=1", "NOPE", "LR:3", "NOPE")), {}, "/jobs")
    assert [each.problem.split()[0] for each in refused.value.violations] == ["RANK", "NOPE", "'LR:3'"]
