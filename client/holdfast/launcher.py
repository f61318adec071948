"""Which commands start a worker's processes themselves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

_PROGRAMS = frozenset({"torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "horovodrun"})
_MODULES = frozenset(
    {
        "torch.distributed.run",
        "torch.distributed.launch",
        "accelerate.commands.launch",
        "deepspeed.launcher.runner",
        "deepspeed.launcher.launch",
    }
)
_PYTHON_OPTIONS_WITH_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs"})


def is_launcher(command: Sequence[str]) -> bool:
    """Whether the command is one that starts several processes itself, such as torchrun.

    Sees through ``env NAME=VALUE …`` and ``python -m``; not through shells and scripts of the user's own.
    """
    words = list(command)
    if words and PurePosixPath(words[0]).name == "env":
        words = words[1:]
        while words and ("=" in words[0] or words[0].startswith("-")):
            words = words[1:]
    if not words:
        return False
    program = PurePosixPath(words[0]).name
    if program in _PROGRAMS:
        return True
    return program.startswith("python") and _module(words[1:]) in _MODULES


def _module(arguments: list[str]) -> str | None:
    """What ``-m`` names, or a console script that is handed to the interpreter."""
    rest = iter(arguments)
    for word in rest:
        if word == "-m":
            return next(rest, None)
        if word in _PYTHON_OPTIONS_WITH_VALUE:
            next(rest, None)
        elif not word.startswith("-"):
            return "torch.distributed.run" if PurePosixPath(word).name in _PROGRAMS else None
        elif word == "-c":
            return None
    return None
