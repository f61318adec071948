"""What the user's shell has set and the job won't find is named where the program would miss it."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from holdfast import spec
from holdfast.cli.submission.run_spec import RunRequest, job_of
from holdfast.cli.submission.unsent import not_executable, notes, unsent, unsent_directory, unsent_input
from holdfast.v1 import job_pb2

SHELL = {"PATH": "/venv/bin:/bin", "VIRTUAL_ENV": "/venv", "PYTHONPATH": "/src"}
PYTHONPATH = "PYTHONPATH is set here and not sent: "


def run(*env: str) -> job_pb2.CustomJob:
    return job_of(RunRequest(("python", "train.py"), replicas=2, env=env), SHELL, "/")


def submitted(**task: object) -> job_pb2.CustomJob:
    pools = [{"replicaCount": count, **task} for count in (1, 2)]
    return spec.job_to_proto(spec.parse({"workerPoolSpecs": pools}, name="x"))


def test_run_names_pythonpath_once_until_it_is_sent() -> None:
    assert unsent(run(), SHELL, by_run=True) == [f"{PYTHONPATH}--env PYTHONPATH sends it"]
    assert unsent(run("PYTHONPATH"), SHELL, by_run=True) == []
    assert unsent(run("PYTHONPATH=/other"), SHELL, by_run=True) == []
    assert unsent(run(), {**SHELL, "PYTHONPATH": ""}, by_run=True) == []


@pytest.mark.parametrize(
    ("command", "noted"),
    [
        (("bash", "-lc", "python train.py"), True),
        (("/bin/sh", "-l", "run.sh"), True),
        (("bash", "-c", "python -l"), False),
        (("python", "-l"), False),
    ],
)
def test_run_names_a_login_shell_that_drops_the_path(command: tuple[str, ...], noted: bool) -> None:
    notes = unsent(job_of(RunRequest(command, replicas=2), {"PATH": "/venv/bin:/bin"}, "/"), {}, by_run=True)
    assert [note.endswith("to keep yours, write it without -l") for note in notes] == [True] * noted


@pytest.mark.parametrize("name", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_submit_names_an_environment_that_its_program_is_not_from(name: str, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").touch()
    notes = unsent(submitted(processSpec={"command": ["python"]}), {name: str(tmp_path)}, by_run=False)
    own = f"{tmp_path}/bin/python"
    assert notes == [f"{name} is set here and not sent: python is the hosts' own; to run yours, write {own}"]
    assert unsent(submitted(processSpec={"command": ["bash"]}), {name: str(tmp_path)}, by_run=False) == []
    packaged = submitted(processSpec={"command": ["python"], "packagedCode": {"bundle": "a" * 64}})
    assert unsent(packaged, {name: str(tmp_path)}, by_run=False) == []


@pytest.mark.parametrize(
    "task",
    [
        {"processSpec": {"command": ["/venv/bin/python"], "env": [{"name": "PYTHONPATH", "value": ""}]}},
        {
            "processSpec": {
                "command": ["python"],
                "env": [{"name": name, "value": "/venv/bin"} for name in ("PATH", "PYTHONPATH")],
            }
        },
        {"containerSpec": {"imageUri": "registry.lab/train:1", "command": ["python"]}},
    ],
)
def test_submit_is_silent_where_nothing_is_missed(task: dict[str, object]) -> None:
    assert unsent(submitted(**task), SHELL, by_run=False) == []


def test_a_job_file_can_name_pythonpath_itself() -> None:
    notes = unsent(submitted(processSpec={"command": ["./train"]}), SHELL, by_run=False)
    assert notes == [f"{PYTHONPATH}the job's env can name it"]


STDIN = "stdin is not sent: the program reads an empty one."


def test_what_waits_on_stdin_is_said_to_stay_there(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    assert unsent_input(reader) == [], "an empty pipe, as a script's or CI's"
    os.write(writer, b"1 2 3\n")
    [note] = unsent_input(reader)
    assert note.startswith(STDIN)
    assert os.read(reader, 100) == b"1 2 3\n", "a loop that reads the same pipe gets it all"
    os.close(writer)
    assert unsent_input(reader) == [], "at its end"
    os.close(reader)
    with pytest.raises(OSError):
        os.fstat(reader)
    assert unsent_input(reader) == [], "closed"
    file = tmp_path / "data.csv"
    file.write_bytes(b"1 2 3\n")
    with file.open("rb") as opened:
        assert unsent_input(opened.fileno())[0].startswith(STDIN)
        os.lseek(opened.fileno(), 0, os.SEEK_END)
        assert unsent_input(opened.fileno()) == []
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert unsent_input(ours.fileno()) == []
        theirs.sendall(b"x")
        assert unsent_input(ours.fileno())[0].startswith(STDIN)
    with open(os.devnull, "rb") as nothing:
        assert unsent_input(nothing.fileno()) == []


@pytest.mark.parametrize(
    ("array", "said"),
    [
        ("20", ["array 20 is the index 20 only; 20 jobs are 1-20"]),
        ("20%4", ["array 20 is the index 20 only; 20 jobs are 1-20"]),
        ("1-20", []),
        ("3,7", []),
        ("1", []),
        ("", []),
    ],
)
def test_a_single_number_is_an_index_and_said_to_be(array: str, said: list[str]) -> None:
    job = run("PYTHONPATH")
    job.job_spec.scheduling.array = array
    assert notes(job, SHELL, by_run=True) == said


@pytest.mark.parametrize(
    ("task", "named"),
    [
        ({"command": ["python", "train.py"]}, "train.py"),
        ({"command": ["python"], "args": ["-u", "./train.py", "train.py"]}, "./train.py"),
        ({"command": ["./train.py"]}, "./train.py"),
        ({"command": ["train.py"]}, ""),
        ({"command": ["python", "other.py"]}, ""),
        ({"command": ["python", "/jobs/train.py"]}, ""),
        ({"command": ["python", "train.py"], "workingDirectory": "/jobs"}, ""),
    ],
)
def test_submit_names_a_script_of_this_directory_that_it_does_not_carry(
    task: dict[str, object], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    said = notes(submitted(processSpec=task), {}, by_run=False)
    assert len(said) == bool(named)
    if named:
        assert said[0].startswith(f"{named} is in this directory, and submit does not carry your directory: set")
    assert not unsent_directory(submitted(processSpec=task), "/")


def test_run_names_a_script_without_permission_to_be_run(tmp_path: Path) -> None:
    for name in ("run.sh", "a.py", "ready.sh"):
        (tmp_path / name).write_text("echo\n")
    (tmp_path / "ready.sh").chmod(0o755)

    def said(program: str) -> list[str]:
        return not_executable(job_of(RunRequest((program,)), {}, str(tmp_path)))

    assert said("./run.sh") == ["./run.sh is not executable: bash run.sh, or chmod +x run.sh"]
    assert said("./a.py") == ["./a.py is not executable: python a.py, or chmod +x a.py"]
    assert said("./ready.sh") == said("./missing.sh") == said("run.sh") == []
