"""A worker's whole life through the real agent and the real shim."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.integration.agent.conftest import HOST, Agent
from tests.integration.agent.controller import Controller, assignment

from holdfast.v1 import agent_pb2, job_pb2

PYTHON = sys.executable
SLEEP = [PYTHON, "-c", "import time; time.sleep(600)"]


async def launch(controller: Controller, command: list[str], **options: Any) -> agent_pb2.WorkerReport:
    """Prepare and run one generation; returns its PREPARED report."""
    which = {name: options[name] for name in ("generation", "worker") if name in options}
    await controller.assign(assignment("PREPARE", command, **options))
    prepared = await controller.state("PREPARED", **which)
    await controller.assign(assignment("RUN", command, prepared=prepared, **options))
    return prepared


async def test_exit_code_travels_from_rank_to_controller(agent: Agent, controller: Controller) -> None:
    hello = await controller.connected()
    assert hello.inventory.cpu_count > 0
    assert len(hello.inventory.gpus) == 4
    assert hello.boot_id
    assert controller.callers == [f"holdfast://test/host/{HOST}"]
    prepared = await launch(
        controller, [PYTHON, "-c", "import sys; print('bye', file=sys.stderr); sys.exit(7)"], attempt=3
    )
    assert prepared.port
    assert prepared.master_port not in (0, prepared.port)
    report = await controller.exit()
    assert report.exit.exit_code == 7
    assert not report.exit.HasField("signal")
    assert report.exit.reason == job_pb2.EXIT_REASON_NONZERO_EXIT
    assert report.exit.attempt == 3
    assert list(report.stderr_tail) == ["bye"]
    assert not report.port_taken
    await controller.state("EMPTY")


async def test_ranks_find_the_contract_in_their_environment(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    command = [PYTHON, "-c", "import os, json; print(json.dumps(dict(os.environ)))"]
    gpus = (f"GPU-sim-{HOST}-1", f"GPU-sim-{HOST}-2")
    user = {"GREETING": "rank $(RANK)", "RANK": "99"}
    prepared = await launch(controller, command, env=user, processes=2, gpus=gpus)
    for rank in (0, 1):
        assert (await controller.exit(rank)).exit.exit_code == 0
        env = json.loads((agent.logs / f"job-1/g1/workerpool0-0.r{rank}.out").read_text())
        assert env["RANK"] == env["LOCAL_RANK"] == str(rank)
        assert env["GREETING"] == f"rank {rank}"
        assert env["MASTER_PORT"] == str(prepared.master_port)
        assert env["CUDA_VISIBLE_DEVICES"] == "1,2"
        assert not [name for name in env if name.startswith("PYTEST")]
    assert (agent.logs / "job-1/latest").readlink() == Path("g1")


async def test_signal_and_core_flag_are_told_and_no_code(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    await launch(controller, [PYTHON, "-c", "import os; os.kill(os.getpid(), 11)"])
    report = await controller.exit()
    assert report.exit.signal == 11
    assert not report.exit.HasField("exit_code")
    assert report.exit.reason == job_pb2.EXIT_REASON_SIGNALED


async def test_running_report_names_every_rank_and_its_pid(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    await launch(controller, SLEEP, processes=3)
    running = await controller.state("RUNNING")
    assert [rank.rank for rank in running.ranks] == [0, 1, 2]
    assert [os.getsid(rank.pid) for rank in running.ranks] == [running.shim_pid] * 3


async def test_gang_restarts_in_place_with_the_same_shim(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    await launch(controller, SLEEP, processes=2)
    first = await controller.state("RUNNING")
    os.kill(first.ranks[1].pid, signal.SIGKILL)
    assert (await controller.exit(1)).exit.signal == signal.SIGKILL
    await launch(controller, SLEEP, processes=2, generation=2)
    stopped = await controller.exit(0)
    assert stopped.exit.reason == job_pb2.EXIT_REASON_STOPPED
    second = await controller.state("RUNNING", generation=2)
    assert second.shim_pid == first.shim_pid
    assert not {rank.pid for rank in first.ranks} & set(agent.processes())


async def test_rank_that_ignores_sigterm_is_killed_after_the_grace(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    await launch(controller, [PYTHON, "-c", code])
    await controller.state("RUNNING")
    await agent.output("job-1/g1/workerpool0-0.r0.out", "up")
    await controller.assign(assignment("STOP", grace_s=0.5, stop_reason="HANG_KILLED"))
    report = await controller.exit()
    assert report.exit.signal == signal.SIGKILL
    assert report.exit.reason == job_pb2.EXIT_REASON_HANG_KILLED
    await controller.state("EMPTY")


async def test_forgotten_worker_leaves_only_its_logs(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    await launch(controller, [PYTHON, "-c", "open('scratch.txt', 'w')"])
    await controller.state("EMPTY")
    assert (agent.root / "state/scratch/job-1/scratch.txt").exists()
    [shim] = agent.shim_pids()
    await controller.assign(assignment("FORGET"))
    await agent.gone(agent.workers / "job-1")
    await agent.gone(agent.root / "state/scratch/job-1")
    await agent.gone(Path(f"/proc/{shim}"))
    assert (agent.logs / "job-1/g1/workerpool0-0.r0.out").exists()
    await controller.assign(assignment("FORGET", generation=2))
    await controller.state("EMPTY", generation=2)


async def test_python_exception_of_torchs_error_file_is_told_once(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    code = (
        "import json, os, sys\n"
        "error = {'message': {'message': 'ValueError: bad batch', 'extraInfo': {}}}\n"
        "json.dump(error, open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w'))\n"
        "sys.exit(1)\n"
    )
    await launch(controller, [PYTHON, "-c", code])
    exited = (await controller.exit()).exit
    assert exited.raised == "ValueError: bad batch"
    assert exited.message == "exited with code 1; it raised ValueError: bad batch"


async def test_port_that_was_taken_is_flagged(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    code = (
        "import os, socket; a, b = socket.socket(), socket.socket(); a.bind(('', int(os.environ['MASTER_PORT'])))\n"
        "a.listen(); b.bind(('', int(os.environ['MASTER_PORT'])))"
    )
    await launch(controller, [PYTHON, "-c", code])
    report = await controller.exit()
    assert report.port_taken
    assert report.exit.exit_code == 1


@pytest.mark.parametrize(
    ("command", "cwd", "words"),
    [
        (["no-such-program-x"], "", "is not on the worker's PATH"),
        (["/no/such/program"], "", "does not exist"),
        (["/etc/passwd"], "", "is not an executable file"),
        ([PYTHON], "/no/such/place", "working directory /no/such/place does not exist"),
        ([PYTHON], "/dev/null", "working directory /dev/null is no directory"),
        ([PYTHON], "relative", "is not an absolute path"),
    ],
)
async def test_what_can_not_run_here_is_said_with_the_host(
    agent: Agent, controller: Controller, command: list[str], cwd: str, words: str
) -> None:
    await controller.connected()
    await controller.assign(assignment("PREPARE", command, cwd=cwd))
    refused = await controller.state("CANNOT_PREPARE")
    assert refused.message.startswith(f"{HOST}: ")
    assert words in refused.message
    await controller.assign(assignment("PREPARE", SLEEP))
    await controller.state("PREPARED")


@pytest.mark.parametrize("hint", ["", "; python3 is"])
async def test_a_host_that_has_python3_alone_says_so(
    agent: Agent, controller: Controller, tmp_path: Path, hint: str
) -> None:
    if hint:
        (tmp_path / "python3").symlink_to(PYTHON)
    await controller.connected()
    await controller.assign(assignment("PREPARE", ["python", "train.py"], env={"PATH": str(tmp_path)}))
    refused = await controller.state("CANNOT_PREPARE")
    assert refused.message == f"{HOST}: the command 'python' is not on the worker's PATH ({tmp_path}){hint}."


@pytest.mark.parametrize(
    ("file", "written"), [("train.py", "python3 train.py"), ("run.sh", "bash run.sh"), ("train", "./train")]
)
async def test_a_file_of_the_working_directory_is_answered_with_how_it_is_started(
    agent: Agent, controller: Controller, tmp_path: Path, file: str, written: str
) -> None:
    (tmp_path / file).touch()
    await controller.connected()
    await controller.assign(assignment("PREPARE", [file], cwd=str(tmp_path)))
    refused = await controller.state("CANNOT_PREPARE")
    assert refused.message.endswith(f"; it is a file of the working directory: write {written}.")


@pytest.mark.parametrize("settings", [{"allow_root_workers": False}])
@pytest.mark.skipif(os.geteuid() != 0, reason="only a root agent would start root workers")
async def test_root_workers_are_refused_unless_the_admin_allows_them(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    await controller.assign(assignment("PREPARE", SLEEP))
    assert "would run as root" in (await controller.state("CANNOT_PREPARE")).message


@pytest.mark.parametrize("settings", [{"allow_root_workers": False, "worker_user": "nobody"}])
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start workers as somebody else")
async def test_workers_run_as_the_worker_user(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    agent.open_to_others()
    script = "id -u; id -G; echo $HOME; touch made; echo x > $TORCHELASTIC_ERROR_FILE && echo written"
    await launch(controller, ["/bin/sh", "-c", script])
    assert (await controller.exit()).exit.exit_code == 0
    lines = (agent.logs / "job-1/g1/workerpool0-0.r0.out").read_text().split("\n")
    assert lines[0] == "65534"
    assert lines[3] == "written"
