"""Tells commands that start the ranks of a worker by themselves, such as torchrun.

Such a command runs once per worker; with several processes per worker each would start all ranks again.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import PurePosixPath

MPI_LAUNCHERS = frozenset({"mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "horovodrun"})
"""What reaches other hosts by ssh alone: started on each of several, it starts as many worlds."""
LAUNCHERS = MPI_LAUNCHERS | {"torchrun", "accelerate", "deepspeed", "mpi_gang.py"}
MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate",
    "deepspeed": "deepspeed",
    "deepspeed.launcher.runner": "deepspeed",
    "horovod.runner": "horovodrun",
    "horovod.runner.launch": "horovodrun",
}
"""Launchers that ``python -m`` runs."""

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "busybox"})
RUNNERS = frozenset(
    {
        "env", "timeout", "time", "nice", "ionice", "numactl", "taskset", "stdbuf", "setsid", "nohup", "exec", "tini",
        "dumb-init", "conda", "mamba", "micromamba", "uv", "uvx", "poetry", "pdm", "pipenv", "hatch", "pixi", "rye",
        "nsys",
    }
)  # fmt: skip
"""Programs that run the program in their arguments."""

_PYTHON = re.compile(r"(python|pypy)([0-9]+(\.[0-9]+)*t?)?")
_OPTIONS_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
_SCRIPT_SUFFIXES = (".py", ".sh", ".bash")
_BEFORE_COMMANDS = frozenset({"then", "do", "else", "if", "elif", "while", "until", "!", "{", "eval", "command"})
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_ASKS_ONLY = frozenset({"--help", "-h", "--version"})
_MODULE_FOLLOWS = frozenset({"-m", "--module", "--no-python", "--no_python", "--"})
_NESTED_MOST = 8
_TEXT_MOST = 64 * 1024


def is_launcher(command: Sequence[str]) -> bool:
    """Whether ``command`` (program and arguments) is a known launcher, or Python, a shell or ``uv run`` running one.

    What hides in a script file is not looked for; ``script_starts_launcher`` does that.
    """
    return bool(_launcher_in(command, _NESTED_MOST))


def stays_on_its_host(command: Sequence[str], *, nested: bool = True) -> bool:
    """Whether ``command`` is torchrun with ``--standalone``, which never meets torchrun on another host.

    With ``nested`` also a shell or ``uv run`` that runs it.
    """
    name, *options = _launcher_in(command, _NESTED_MOST if nested else 1) or [""]
    if name != "torchrun":
        return False
    before_program = takewhile(lambda word: not word.endswith(".py") and word not in _MODULE_FOLLOWS, options)
    return "--standalone" in before_program


def is_login_shell(command: Sequence[str]) -> bool:
    """Whether ``command`` is a shell with ``-l``: it takes PATH from the host's profile, not from its environment."""
    if not command or PurePosixPath(command[0]).name not in SHELLS:
        return False
    options = takewhile(lambda word: word.startswith("-"), command[1:])
    return any(word == "--login" or (word[1:2] != "-" and "l" in word) for word in options)


def mpi_launcher_in(command: Sequence[str]) -> str:
    """The name of the MPI launcher that ``command`` is, or runs by a shell or ``uv run``; empty for any other."""
    name, *_ = _launcher_in(command, _NESTED_MOST) or [""]
    return name if name in MPI_LAUNCHERS else ""


def _launcher_in(command: Sequence[str], depth: int) -> Sequence[str]:
    """The known name of the launcher, and its arguments; empty where there is none."""
    if not command or not depth:
        return ()
    program, rest = PurePosixPath(command[0]).name, command[1:]
    if program in LAUNCHERS:
        return () if rest and _ASKS_ONLY.issuperset(rest[:1]) else (program, *rest)
    if _PYTHON.fullmatch(program) is not None:
        return _python_runs(rest)
    if program in SHELLS:
        return _started_by(_inline(rest), depth - 1)
    if program in RUNNERS:
        return _launcher_in(_run_by(rest), depth - 1)
    return ()


def starts_programs(command: Sequence[str]) -> bool:
    """Whether a command may start the ranks of its worker: a launcher, a shell, a script of one, or ``uv run``."""
    if not command:
        return False
    program = PurePosixPath(command[0]).name
    return program in SHELLS or program in RUNNERS or program.endswith((".sh", ".bash")) or is_launcher(command)


def script_of(command: Sequence[str]) -> str:
    """The script file that a shell in ``command`` runs, or that is the command itself; empty where there is none."""
    for _ in range(_NESTED_MOST):
        if not command:
            return ""
        program, rest = PurePosixPath(command[0]).name, command[1:]
        if program in SHELLS:
            return "" if _inline(rest) else next((word for word in rest if not word.startswith(("-", "+"))), "")
        if program not in RUNNERS:
            return command[0] if "/" in command[0] or program.endswith(_SCRIPT_SUFFIXES[1:]) else ""
        command = _run_by(rest)
    return ""


def script_starts_launcher(text: str) -> bool:
    """Whether a shell script starts a known launcher; False for a script of another language."""
    first = text.partition("\n")[0]
    if first.startswith("#!") and not any(PurePosixPath(word).name in SHELLS for word in first[2:].split()):
        return False
    return bool(_started_by(text, _NESTED_MOST))


def _run_by(words: Sequence[str]) -> Sequence[str]:
    """The program with its arguments among the arguments of a runner."""
    for index, word in enumerate(words):
        name = PurePosixPath(word).name
        known = name in LAUNCHERS or name in SHELLS or name in RUNNERS or _PYTHON.fullmatch(name) is not None
        if known or "/" in word or word.endswith(_SCRIPT_SUFFIXES):
            return words[index:]
    return ()


def _inline(words: Sequence[str]) -> str:
    """The text of a shell's ``-c``; empty without one."""
    for index, word in enumerate(words):
        if not word.startswith("-"):
            return ""
        if not word.startswith("--") and "c" in word:
            return next((text for text in words[index + 1 :] if not text.startswith("-")), "")
    return ""


def _started_by(text: str, depth: int) -> Sequence[str]:
    """The first launcher that a shell's text starts."""
    commands = _commands(text) if len(text) <= _TEXT_MOST else ()
    return next(filter(None, (_launcher_in(words, depth) for words in commands)), ())


def _commands(text: str) -> Iterator[list[str]]:
    """The simple commands of a shell script, without their assignments; none of a line that can't be read."""
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        try:
            words = list(lexer)
        except ValueError:
            continue
        command: list[str] = []
        for word in [*words, ";"]:
            if not word.strip("();<>|&"):
                yield command
                command = []
            elif command or not (word in _BEFORE_COMMANDS or _ASSIGNMENT.match(word)):
                command.append(word)


def _python_runs(args: Sequence[str]) -> Sequence[str]:
    """The launcher that Python runs: its own options are read up to ``-m MODULE``, ``-c`` or a script."""
    rest = iter(args)
    for arg in rest:
        if not arg.startswith("-") or arg == "-":
            name = PurePosixPath(arg).name
            return (name, *rest) if name in LAUNCHERS else ()
        if arg in _OPTIONS_WITH_VALUE:
            next(rest, None)
        elif not arg.startswith("--"):
            flags, module_flag, module = arg[1:].partition("m")
            if flags.startswith(("W", "X")):  # their value is joined to them: -Wmodule, -Ximporttime
                continue
            if "c" in flags:
                return ()
            if module_flag:
                known = MODULES.get(module or next(rest, ""))
                return (known, *rest) if known else ()
    return ()
