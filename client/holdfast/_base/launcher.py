"""Tells commands that start the ranks of a worker by themselves, such as torchrun.

Such a command runs once per worker; with several processes per worker each would start all ranks again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

LAUNCHERS = frozenset(
    {"torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "mpiexec.hydra", "orterun", "horovodrun"}
)
MODULES = frozenset(
    {
        "torch.distributed.run",
        "torch.distributed.launch",
        "accelerate.commands.launch",
        "deepspeed",
        "deepspeed.launcher.runner",
        "horovod.runner",
        "horovod.runner.launch",
    }
)

_PYTHON = re.compile(r"(python|pypy)([0-9]+(\.[0-9]+)*t?)?")
_OPTIONS_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")


def is_launcher(command: Sequence[str]) -> bool:
    """Whether ``command`` (program and arguments) is a known launcher, or Python running one.

    Plain cases only: what hides behind a shell, ``env`` or a script of the user's is not looked for.
    """
    if not command:
        return False
    program = PurePosixPath(command[0]).name
    if program in LAUNCHERS:
        return True
    return _PYTHON.fullmatch(program) is not None and _python_runs_launcher(command[1:])


def _python_runs_launcher(args: Sequence[str]) -> bool:
    """Reads the interpreter's own options up to its ``-m MODULE``, ``-c`` or script."""
    rest = iter(args)
    for arg in rest:
        if not arg.startswith("-") or arg == "-":
            return PurePosixPath(arg).name in LAUNCHERS
        if arg in _OPTIONS_WITH_VALUE:
            next(rest, None)
        elif not arg.startswith("--"):
            flags, module_flag, module = arg[1:].partition("m")
            if flags.startswith(("W", "X")):  # their value is joined to them: -Wmodule, -Ximporttime
                continue
            if "c" in flags:
                return False
            if module_flag:
                return (module or next(rest, "")) in MODULES
    return False
