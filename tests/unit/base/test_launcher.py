"""Which commands start the ranks of a worker by themselves."""

from __future__ import annotations

import pytest

from holdfast._base.launcher import is_launcher


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
    ],
)
def test_launchers_are_known(command: str) -> None:
    assert is_launcher(command.split())


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
        "bash -c torchrun",
        "./my-torchrun train.py",
        "pythonic -m torch.distributed.run",
    ],
)
def test_other_commands_are_not(command: str) -> None:
    assert not is_launcher(command.split())
