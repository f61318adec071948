"""The time that Slurm leaves: until its limit, and between its TERM and its KILL."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from holdfast.guard import limits, slurm
from holdfast.guard.allocation import read
from holdfast.v1 import job_pb2

ALONE = read({}, "box")
IN_SLURM = replace(ALONE, kind="slurm")


@pytest.mark.parametrize(
    ("kill_wait", "grace_s"),
    [("30 sec", 10.0), ("12 sec", 7.0), ("5 sec", 1.0), ("", None), ("(null)", None)],
)
def test_ranks_have_what_kill_wait_leaves(
    monkeypatch: pytest.MonkeyPatch, kill_wait: str, grace_s: float | None
) -> None:
    monkeypatch.setattr(slurm, "settings", lambda: {"KillWait": kill_wait})

    monkeypatch.setenv("SLURM_JOB_ID", "17")
    assert slurm.grace_s(None) == grace_s
    assert slurm.grace_s(20.0) == 20.0
    monkeypatch.delenv("SLURM_JOB_ID")
    assert slurm.grace_s(None) is None


def test_settings_are_read_from_what_scontrol_prints() -> None:
    printed = b"Configuration data as of now\nKillWait                = 30 sec\nAuthInfo = socket=/run/x,ttl=5\n"

    assert slurm.facts(printed, "=")["KillWait"] == "30 sec"
    assert slurm.facts(printed, "=")["AuthInfo"] == "socket=/run/x,ttl=5"


@pytest.mark.parametrize(
    ("of_job", "of_step", "left_s"),
    [
        ("5:00", "UNLIMITED 0:00", 300.0),
        ("1-00:00:30", "2:00:00 0:30", 7170.0),
        ("59", "UNLIMITED 0:01", None),  # no time as squeue writes one
        ("UNLIMITED", "UNLIMITED 1:00", None),
        ("", "", None),
    ],
)
def test_the_nearer_limit_of_job_and_step_counts(
    monkeypatch: pytest.MonkeyPatch, of_job: str, of_step: str, left_s: float | None
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.delenv("SLURM_JOB_END_TIME", raising=False)
    said = {("-j", "17", "-o", "%L"): of_job, ("-s", "17.0", "-o", "%l %M"): of_step}
    monkeypatch.setattr(slurm, "_squeue", lambda *options: said[options])
    monkeypatch.setattr(slurm, "settings", dict)

    assert slurm.time_left_s(replace(IN_SLURM, job="17.0-restart1")) == left_s


def test_a_script_and_the_shell_of_salloc_have_the_limit_of_their_job(monkeypatch: pytest.MonkeyPatch) -> None:
    # It may be that of a job which a shell has outlived, as one of tmux does.
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(round(time.time()) - 1000))
    monkeypatch.setattr(slurm, "_squeue", lambda *options: {("-j", "17", "-o", "%L"): "5:00"}[options])
    monkeypatch.setattr(slurm, "settings", dict)

    monkeypatch.setenv("SLURM_JOB_ID", "17")
    assert slurm.time_left_s(ALONE) == 300.0
    monkeypatch.delenv("SLURM_JOB_ID")
    assert slurm.time_left_s(ALONE) is None


def test_the_end_in_the_environment_is_taken_and_what_a_site_adds_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(round(time.time()) + 1000))
    monkeypatch.setattr(slurm, "_squeue", lambda *_: "UNLIMITED 0:00")
    monkeypatch.setattr(slurm, "settings", lambda: {"OverTimeLimit": "2 min"})

    assert slurm.time_left_s(replace(IN_SLURM, job="17.0")) == pytest.approx(1120, abs=100)


@pytest.mark.parametrize("end", ["", "soon", "9" * 5000])
def test_without_squeue_no_limit_is_known(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURM_JOB_END_TIME", end)
    monkeypatch.setenv("PATH", "/nowhere")

    assert slurm.time_left_s(replace(IN_SLURM, job="17.0")) is None


@pytest.mark.parametrize(
    ("left_s", "warning", "timeout_s", "signal", "said"),
    [
        (600.0, ("SIGUSR1", 300.0), 600, "SIGUSR1", ""),
        (600.0, None, 600, "", ""),
        (None, None, 0, "", ""),
        (-5.0, None, 1, "", ""),
        (
            200.0,
            ("SIGUSR1", 300.0),
            200,
            "",
            "only 200 s are left until the time limit, so the ranks get no SIGUSR1",
        ),
        (
            None,
            ("SIGUSR1", 9.0),
            0,
            "",
            "no time limit is known, so the ranks get no SIGUSR1: say it by --time-limit",
        ),
    ],
)
def test_the_job_is_told_its_time(
    left_s: float | None, warning: tuple[str, float] | None, timeout_s: int, signal: str, said: str
) -> None:
    job = job_pb2.CustomJob()

    assert limits.give(job, left_s, warning) == said
    assert job.job_spec.scheduling.timeout.seconds == timeout_s
    assert job.job_spec.scheduling.warning_signal.signal == signal


@pytest.mark.parametrize(
    ("environ", "devices", "why"),
    [
        ({}, [], ""),
        ({"SLURM_STEP_GPUS": "0,1"}, ["nvidia0", "nvidiactl"], ""),
        ({"SLURM_STEP_GPUS": "0"}, ["kfd"], ""),
        (
            {"SLURM_STEP_GPUS": "0,1"},
            ["nvidiactl", "null"],
            "there is no device of one in /dev. See that its driver",
        ),
        (
            {"SLURM_JOB_GPUS": "0", "CUDA_VISIBLE_DEVICES": "NoDevFiles"},
            ["nvidia0"],
            "VISIBLE_DEVICES is 'NoDevFiles'",
        ),
    ],
)
def test_a_task_that_sees_none_of_its_gpus_is_told_which_host_that_is(
    environ: dict[str, str], devices: list[str], why: str
) -> None:
    said = slurm.hidden_gpus(environ, devices, "n2")

    assert bool(said) == bool(why)
    assert why in said
    assert not why or ("of n2 to this step" in said and said.endswith("--exclude=n2."))


@pytest.mark.parametrize(
    ("hosts", "tasks", "ranks", "said"),
    [
        ("4", "4", 1, "this job 4 hosts, and the guard runs one rank, on this host alone."),
        ("2", "16", 8, "this job 2 hosts, and the guard runs 8 ranks, on this host alone."),
        ("1", "8", 1, "this job 8 tasks, and the guard runs one rank beside them."),
        ("1", "8", 8, ""),
        ("1", "1", 1, ""),
        ("1", "", 1, ""),
        ("many", "x", 1, ""),
        ("9" * 5000, "9" * 5000, 1, ""),
    ],
)
def test_a_script_without_srun_hears_what_its_guard_leaves_out(
    hosts: str, tasks: str, ranks: int, said: str
) -> None:
    environ = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": hosts, "SLURM_NTASKS": tasks}
    found = slurm.beside_script(environ, ranks)
    assert bool(found) == bool(said)
    assert said in found
    assert slurm.beside_script({**environ, "SLURM_JOB_ID": ""}, ranks) == ""
