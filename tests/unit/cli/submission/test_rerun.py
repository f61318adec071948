"""A job as it is submitted again: what stays, what changes, and what is said of the difference."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.app import root
from holdfast.cli.jobs.rerun import rerun
from holdfast.cli.submission.run_spec import RunRequest, job_of
from holdfast.cli.submission.spec_changes import LABELS_MOST, RERUN_OF, again, differences
from holdfast.errors import InvalidInput
from holdfast.v1 import job_pb2, spec_pb2


def of_run(
    *command: str, gpus: int = 2, replicas: int = 1, name: str = "", cwd: str = "/jobs"
) -> job_pb2.CustomJob:
    """A job of ``holdfast run``, as the controller shows it."""
    request = RunRequest(
        command or ("python", "train.py"), gpus=gpus, replicas=replicas, name=name, env=("LR=0.1",)
    )
    job = job_of(request, {"PATH": "/bin"}, cwd)
    job.id, job.owner, job.state, job.project = "train-abc", "ann", job_pb2.JOB_STATE_FAILED, "vision"
    job.labels["team"] = "nlp"
    job.annotations["note"] = "first"
    job.workers.add(name="workerpool0-0")
    for pool in job.job_spec.worker_pool_specs:
        pool.process_spec.secret_env.add(name="KEY", secret="wandb")
    return job


def test_without_changes_it_is_the_same_job_with_a_label_of_the_first() -> None:
    old = of_run()
    new = again(old, RunRequest(), {}, "/")
    assert new.job_spec == old.job_spec
    assert (new.display_name, new.project, dict(new.annotations)) == (old.display_name, "vision", {"note": "first"})
    assert dict(new.labels) == {"team": "nlp", RERUN_OF: "train-abc"}
    assert not (new.id or new.state or new.owner or new.workers)
    assert differences(old, new) == []


def test_a_rerun_of_a_rerun_names_the_one_it_was_made_of() -> None:
    new = again(of_run(), RunRequest(), {}, "/")
    new.id = "train-def"
    assert again(new, RunRequest(), {}, "/").labels[RERUN_OF] == "train-def"


def test_a_job_with_as_many_labels_as_there_may_be_can_be_submitted_again() -> None:
    old = of_run()
    for number in range(LABELS_MOST - 1):
        old.labels[f"k{number}"] = ""
    assert again(old, RunRequest(), {}, "/").labels == old.labels


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (3, 5), (2, 2), (1, 1)])
def test_another_number_of_workers_makes_the_pools_that_run_would_make(before: int, after: int) -> None:
    new = again(of_run(replicas=before), RunRequest(replicas=after), {}, "/")
    assert new.job_spec == of_run(replicas=after).job_spec


def test_other_gpus_and_hosts_are_asked_for_in_every_pool_and_empty_ones_take_that_back() -> None:
    asked = RunRequest(gpu_type="H200", gpu_partition_size="1g.18gb", machine_type="big")
    new = again(of_run(replicas=3), asked, {}, "/")
    kinds = [each.machine_spec for each in new.job_spec.worker_pool_specs]
    assert [(each.accelerator_type, each.gpu_partition_size, each.machine_type) for each in kinds] == [
        ("H200", "1g.18gb", "big")
    ] * 2
    new.id = "train-def"
    plain = again(new, RunRequest(gpu_type="", gpu_partition_size="", machine_type=""), {}, "/")
    assert plain.job_spec == of_run(replicas=3).job_spec


def test_a_pool_of_several_workers_stays_one_pool() -> None:
    old = of_run(replicas=1)
    old.job_spec.worker_pool_specs[0].replica_count = 4
    (pool,) = again(old, RunRequest(replicas=6), {}, "/").job_spec.worker_pool_specs
    assert pool.replica_count == 6


def test_more_workers_have_terminals_too() -> None:
    old = of_run()
    old.job_spec.worker_pool_specs[0].process_spec.terminal = True
    pools = again(old, RunRequest(replicas=2), {}, "/").job_spec.worker_pool_specs
    assert [pool.process_spec.terminal for pool in pools] == [True, True]


def test_workers_that_differ_keep_their_numbers() -> None:
    old = of_run(replicas=3)
    old.job_spec.worker_pool_specs[1].machine_spec.cpu_count = 8
    with pytest.raises(
        InvalidInput, match=r"--replicas: this job's workers are not all alike.*job show JOB -o yaml"
    ):
        again(old, RunRequest(replicas=2), {}, "/")


def test_changes_are_made_in_every_pool_and_said_once() -> None:
    old = of_run(replicas=3)
    new = again(
        old, RunRequest(("python", "train.py", "--lr", "$X"), env=("LR=0.2", "NEW="), gpus=4, cpus=8), {}, "/"
    )
    for pool in new.job_spec.worker_pool_specs:
        assert (pool.machine_spec.accelerator_count, pool.processes_per_worker) == (4, 4)
        assert list(pool.process_spec.command)[-1] == "$$X"
        assert [each.name for each in pool.process_spec.secret_env] == ["KEY"]
    assert sorted(differences(old, new)) == [
        "machineSpec.acceleratorCount: 2 → 4",
        "machineSpec.cpuCount: not set → 8",
        "name: python train.py → python train.py --lr '$X'",
        "processSpec.command: python train.py → python train.py --lr $X",
        "processSpec.env.LR: 0.1 → 0.2",
        "processSpec.env.NEW: not set → ",
        "processesPerWorker: 2 → 4",
    ]


def test_a_name_that_was_chosen_stays_with_another_command() -> None:
    assert again(of_run(name="mine"), RunRequest(("true",)), {}, "/").display_name == "mine"
    assert again(of_run(name="mine"), RunRequest(("true",), name="other"), {}, "/").display_name == "other"


def test_a_launcher_still_starts_once_a_worker(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("torchrun train.py\n")
    for command in (("torchrun", "train.py"), ("bash", "run.sh")):
        new = again(of_run(*command, gpus=1, cwd=str(tmp_path)), RunRequest(gpus=4), {}, "/")
        assert new.job_spec.worker_pool_specs[0].processes_per_worker == 1


def test_ranks_that_were_not_one_for_each_gpu_stay_as_many() -> None:
    old = of_run(gpus=8)
    old.job_spec.worker_pool_specs[0].processes_per_worker = 2
    assert again(old, RunRequest(gpus=4), {}, "/").job_spec.worker_pool_specs[0].processes_per_worker == 2
    new = again(old, RunRequest(gpus=4, processes_per_worker=1), {}, "/")
    assert new.job_spec.worker_pool_specs[0].processes_per_worker == 1


def test_a_variable_takes_the_place_of_a_secret_of_its_name() -> None:
    (pool,) = again(of_run(), RunRequest(env=("KEY=x",)), {}, "/").job_spec.worker_pool_specs
    assert not pool.process_spec.secret_env
    assert {each.name: each.value for each in pool.process_spec.env}["KEY"] == "x"


def test_a_value_that_looks_secret_is_not_printed() -> None:
    old = of_run()
    old.job_spec.worker_pool_specs[0].process_spec.env.add(name="API_TOKEN", value="first-value")
    lines = differences(old, again(old, RunRequest(env=("API_TOKEN=next-value",)), {}, "/"))
    assert lines == ["processSpec.env.API_TOKEN: *** → ***"]


def test_a_module_has_no_command_to_change() -> None:
    old = job_pb2.CustomJob(id="a")
    old.job_spec.worker_pool_specs.add(python_package_spec=spec_pb2.PythonPackageSpec(python_module="pkg.train"))
    with pytest.raises(InvalidInput, match=r"pythonPackageSpec: runs the Python module pkg\.train"):
        again(old, RunRequest(("true",)), {}, "/")


def test_a_variable_of_the_contract_is_refused() -> None:
    with pytest.raises(InvalidInput, match="RANK"):
        again(of_run(), RunRequest(env=("RANK=3",)), {}, "/")


def test_a_receiver_whose_url_is_not_kept_is_left_out() -> None:
    old = of_run()
    old.job_spec.notifications.add(url="https://hooks.example/***")
    old.job_spec.notifications.add(channel="team")
    (kept,) = again(old, RunRequest(), {}, "/").job_spec.notifications
    assert kept.channel == "team"


def test_a_change_in_one_of_several_pools_names_it() -> None:
    old = of_run(replicas=2)
    new = again(old, RunRequest(), {}, "/")
    new.job_spec.worker_pool_specs[1].machine_spec.cpu_count = 3
    assert differences(old, new) == ["workerPoolSpecs[1].machineSpec.cpuCount: not set → 3"]


def test_an_argument_of_the_program_is_told_from_a_command() -> None:
    with pytest.raises(InvalidInput, match="the whole command"):
        again(of_run(), RunRequest(command=("--lr", "0.7")), {}, "/")
    done = CliRunner().invoke(root, ["job", "rerun", "train-abc", "--lr", "0.7"])
    assert done.exit_code == 2 and "job rerun JOB -- python train.py" in done.output


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["x", "--max-restart", "3"], "--max-restarts"),
        (["x", "--image", "i"], "containerSpec.imageUri"),
        (["x", "--pty"], "run --pty"),
        (["--replica", "2", "x", "python", "t.py"], "--replicas"),
    ],
)
def test_an_unknown_option_of_rerun_has_a_hint_about_itself(words: list[str], hint: str) -> None:
    done = CliRunner().invoke(root, ["job", "rerun", *words])
    assert done.exit_code == 2 and hint in done.output
    assert "whole command" not in done.output


@pytest.mark.parametrize("option", ["--lr", "--image", "--max-restart", "-z"])
def test_an_option_behind_the_program_is_taken_for_the_program_s(option: str) -> None:
    done = CliRunner().invoke(root, ["job", "rerun", "--gpus", "2", "x", "python", "t.py", option, "1"])
    assert done.exit_code == 2 and "job rerun JOB -- python train.py" in done.output


def test_what_follows_failures_and_where_it_runs_changes_as_options_of_run_do() -> None:
    old = of_run()
    changes = RunRequest(workdir="/new", max_restarts=2, restart_on_hang=True, hang_timeout_s=60, grace_s=30)
    new = again(old, changes, {}, "/")
    assert sorted(differences(old, new)) == [
        "faultTolerance.hangDetection.action: not set → HANG_ACTION_RESTART",
        "faultTolerance.hangDetection.timeout: not set → 60s",
        "faultTolerance.maxWorkerRestarts: not set → 2",
        "processSpec.workingDirectory: /jobs → /new",
        "scheduling.gracePeriod: not set → 30s",
    ]


def test_a_module_has_no_working_directory_to_change() -> None:
    old = job_pb2.CustomJob(id="a")
    old.job_spec.worker_pool_specs.add(python_package_spec=spec_pb2.PythonPackageSpec(python_module="pkg.train"))
    with pytest.raises(InvalidInput, match="leave out --workdir"):
        again(old, RunRequest(workdir="/new"), {}, "/")


def test_the_options_of_run_about_failures_are_options_of_rerun() -> None:
    shown = CliRunner().invoke(rerun, ["--help"]).output
    for option in ("--max-restarts", "--restart-on-hang", "--hang-timeout", "--grace", "--workdir"):
        assert option in shown


def test_the_help_of_a_rerun_promises_no_defaults() -> None:
    assert "default:" not in CliRunner().invoke(rerun, ["--help"]).output
