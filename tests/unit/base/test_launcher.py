"""Which commands start the ranks of a worker by themselves."""

from __future__ import annotations

import shlex

import pytest

from holdfast._base.job_file.launcher import is_launcher, script_of, script_starts_launcher, starts_programs


@pytest.mark.parametrize(
    "command",
    [
        "torchrun --nproc-per-node 2 train.py",
        "/opt/venv/bin/torchrun train.py",
        "accelerate launch train.py",
        "deepspeed train.py",
        "mpirun -n 4 python train.py",
        "mpiexec python train.py",
        "horovodrun -np 4 python train.py",
        "python -m torch.distributed.run train.py",
        "python3.11 -u -m torch.distributed.launch train.py",
        "/usr/bin/python3 -W ignore -X dev -m accelerate.commands.launch train.py",
        "python -Wignore -m torch.distributed.run train.py",
        "python -um torch.distributed.run train.py",
        "python -mtorch.distributed.run train.py",
        "python --check-hash-based-pycs always -m torch.distributed.run",
        "python /opt/venv/bin/torchrun train.py",
        "bash -c torchrun",
        "bash -lc 'source venv/bin/activate && exec torchrun train.py'",
        "sh -ec 'cd /data; A=1 B=2 python -m torch.distributed.run train.py'",
        "bash -c 'if true; then torchrun --nnodes 1 train.py; fi'",
        "uv run torchrun train.py",
        "uv run --with numpy -- torchrun train.py",
        "conda run --no-capture-output -n pt torchrun train.py",
        "poetry run python -m accelerate.commands.launch train.py",
        "env -u HOME A=1 torchrun train.py",
        "timeout -k 5 1h nice -n 5 bash -c 'torchrun train.py'",
    ],
)
def test_launchers_are_known(command: str) -> None:
    assert is_launcher(split(command))


@pytest.mark.parametrize(
    "command",
    [
        "",
        "python",
        "python train.py",
        "python train.py -m torch.distributed.run",
        "python -m trainer.task torchrun",
        "python -m",
        "python -c m torch.distributed.run",
        "python -cm torchrun",
        "python - torchrun",
        "python -X",
        "torchrun.sh train.py",
        "./my-torchrun train.py",
        "pythonic -m torch.distributed.run",
        "torchrun --help",
        "bash run.sh torchrun",
        "bash -c 'echo torchrun'",
        "bash -c 'python train.py # torchrun'",
        "bash -c 'torchrun --version; python train.py'",
        'bash -c "torchrun \'unclosed"',
        "uv run train.py torchrun",
        "timeout 60 python train.py torchrun",
        "env",
        "uv run",
        "bash -c",
    ],
)
def test_other_commands_are_not(command: str) -> None:
    assert not is_launcher(split(command))


def split(command: str) -> list[str]:
    return shlex.split(command)


def test_commands_nested_without_end_are_no_launchers() -> None:
    assert not is_launcher(["env"] * 5000 + ["torchrun"])


@pytest.mark.parametrize(
    ("command", "may"),
    [
        ("bash run.sh", True),
        ("./run.sh", True),
        ("uv run train.py", True),
        ("torchrun train.py", True),
        ("python train.py", False),
        ("./train", False),
        ("", False),
    ],
)
def test_commands_that_may_start_the_ranks_themselves(command: str, may: bool) -> None:
    assert starts_programs(split(command)) is may


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("./run.sh --lr 1", "./run.sh"),
        ("run.sh", "run.sh"),
        ("bash -e run.sh torchrun", "run.sh"),
        ("/bin/bash -x scripts/train", "scripts/train"),
        ("timeout 1h env A=1 bash run.sh", "run.sh"),
        ("bin/train", "bin/train"),
        ("bash -c torchrun", ""),
        ("python train.py", ""),
        ("uv run", ""),
        ("", ""),
    ],
)
def test_the_script_of_a_command_is_found(command: str, script: str) -> None:
    assert script_of(split(command)) == script


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        ("#!/bin/bash\nset -e\nexport A=1\ntorchrun \\\n  --nnodes 2 \\\n  train.py\n", True),
        ("#!/usr/bin/env bash\nsource env\n  exec python -m torch.distributed.run train.py", True),
        ("torchrun train.py > log 2>&1 &\nwait", True),
        ("for i in 1 2; do uv run torchrun x.py; done", True),
        ("#!/usr/bin/env python3\ntorchrun train.py", False),
        ("# torchrun train.py\npython train.py", False),
        ("echo 'it is\ntorchrun'", False),
        ("python train.py", False),
        ("", False),
        ("x" * 70_000 + "\ntorchrun train.py", False),
    ],
)
def test_scripts_that_start_a_launcher_are_known(text: str, starts: bool) -> None:
    assert script_starts_launcher(text) is starts
