"""From the words of ``holdfast run`` to a job: pools, ranks, environment, and ``$`` kept as it was typed."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from holdfast._base.dataclass import dataclass
from holdfast._base.job_file.launcher import is_launcher, script_of, script_starts_launcher
from holdfast._base.job_file.rank_variables import purpose_of
from holdfast._base.printable import one_line
from holdfast.cli.kit.parameters import is_utf8, wrong
from holdfast.cli.kit.shell_words import shell_line
from holdfast.cli.submission.job_options import set_seconds
from holdfast.errors import InvalidInput, Violation
from holdfast.v1 import job_pb2, spec_pb2

_CARRIED = ("PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
_CARRIED_TO_TERMINAL = ("TERM", "COLORTERM")
_CARRIED_PREFIX = "CONDA_"
_NAME_LENGTH = 60
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SCRIPT_CHARS = 64 * 1024


@dataclass(frozen=True, slots=True)
class RunRequest:
    """Options of ``run`` and ``job rerun`` as the user gave them. Times in seconds.

    What is None or empty is left to the defaults, and in a job that is run again as it was.
    """

    command: tuple[str, ...] = ()
    name: str = ""
    env: tuple[str, ...] = ()
    gpus: int | None = None
    gpu_type: str | None = None
    gpu_partition_size: str | None = None
    machine_type: str | None = None
    replicas: int | None = None
    processes_per_worker: int | None = None
    cpus: int | None = None
    memory_mb: int | None = None
    workdir: str = ""
    max_restarts: int | None = None
    restart_on_hang: bool = False
    hang_timeout_s: float | None = None
    grace_s: float | None = None
    terminal: bool = False

    def give_failures(self, spec: spec_pb2.CustomJobSpec) -> None:
        """Writes what was given into the spec, over what it says itself."""
        if self.max_restarts is not None:
            spec.fault_tolerance.max_worker_restarts = self.max_restarts
        if self.restart_on_hang:
            spec.fault_tolerance.hang_detection.action = spec_pb2.HANG_ACTION_RESTART
        if self.hang_timeout_s is not None:
            set_seconds(spec.fault_tolerance.hang_detection.timeout, self.hang_timeout_s)
        if self.grace_s is not None:
            set_seconds(spec.scheduling.grace_period, self.grace_s)

    def give_machine(self, machine: spec_pb2.MachineSpec) -> None:
        """Writes what was given over what the machine spec says itself."""
        if self.gpus is not None:
            machine.accelerator_count = self.gpus
        if self.cpus is not None:
            machine.cpu_count = self.cpus
        if self.memory_mb is not None:
            machine.memory_mb = self.memory_mb
        if self.gpu_type is not None:
            machine.accelerator_type = self.gpu_type
        if self.gpu_partition_size is not None:
            machine.gpu_partition_size = self.gpu_partition_size
        if self.machine_type is not None:
            machine.machine_type = self.machine_type


def job_of(request: RunRequest, environ: Mapping[str, str], cwd: str) -> job_pb2.CustomJob:
    """The job to submit. Raises ``InvalidInput`` for a command or variable that can't be meant."""
    directory = os.path.normpath(os.path.join(cwd, request.workdir))
    check_words(request.command, directory)
    _check_utf8("--name", request.name)
    _check_utf8("--workdir", directory)
    launcher = is_launcher(request.command)
    processes = request.processes_per_worker
    if processes is None:
        launcher = launcher or launches_in_script(request.command, directory)
        processes = 1 if launcher else max(1, request.gpus or 0)
    elif launcher and processes > 1:
        fix = f"Leave --processes-per-worker out, and give {request.command[0]} the number of processes itself."
        raise wrong("--processes-per-worker", f"{request.command[0]} starts its processes itself.", fix)
    process = spec_pb2.ProcessSpec(
        command=[literal(word) for word in request.command],
        env=environment(request.env, environ, _CARRIED_TO_TERMINAL if request.terminal else ()),
        working_directory=directory,
    )
    machine = spec_pb2.MachineSpec()
    request.give_machine(machine)
    pools = [
        spec_pb2.WorkerPoolSpec(
            machine_spec=machine, replica_count=count, process_spec=process, processes_per_worker=processes
        )
        for count in (1, (request.replicas or 1) - 1)
        if count > 0
    ]
    spec = spec_pb2.CustomJobSpec(worker_pool_specs=pools, success_policy=spec_pb2.SUCCESS_POLICY_ALL)
    # What runs at a prompt is restarted as often as its option says; a job file's job is retried beyond that.
    spec.fault_tolerance.max_job_retries = 0
    request.give_failures(spec)
    if request.terminal:
        for pool in spec.worker_pool_specs:
            pool.process_spec.terminal = True
        if request.max_restarts is None:
            spec.fault_tolerance.max_worker_restarts = 0  # a debugger that was quit is no failure to repair
    return job_pb2.CustomJob(display_name=request.name or name_of(request.command), job_spec=spec)


def check_words(command: Sequence[str], directory: str) -> None:
    """Refuse a whole command line in quotes, which no shell will read, and words that no message can hold."""
    for word in command:
        _check_utf8("COMMAND", word)
    words = command[0].split()
    if command[0].startswith("-"):
        fix = f"After -- goes the whole command: -- python train.py {command[0]} …"
        raise wrong("COMMAND", f"{command[0]!r} is an option and no program.", fix)
    variable, equals, _ = command[0].partition("=")
    if equals and _NAME.fullmatch(variable) and not os.path.exists(os.path.join(directory, command[0])):
        fix = f"Write it before the program: --env {shell_line(command[:1])} -- {shell_line(command[1:]) or '…'}"
        raise wrong("COMMAND", f"{command[0]!r:.80} sets a variable, which a shell would read.", fix)
    if len(command) == 1 and len(words) > 1 and not os.path.exists(os.path.join(directory, command[0])):
        fix = f"Leave out the quotes: holdfast run -- {command[0]}; or have a shell read it: -- bash -c '…'."
        raise wrong("COMMAND", "it is one word with blanks in it, which no program is called.", fix)


def launches_in_script(command: Sequence[str], directory: str) -> bool:
    """Whether the command is a shell script of this machine that starts a launcher, as ``run.sh`` often does."""
    script = script_of(command)
    if not script:
        return False
    try:
        with open(os.path.join(directory, script), errors="replace", opener=_without_waiting) as file:
            return script_starts_launcher(file.read(_SCRIPT_CHARS))
    except (OSError, ValueError):
        return False  # it may lie on the hosts alone


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def literal(text: str) -> str:
    """The text with every ``$`` doubled: specs expand ``$(NAME)`` and read ``$$`` as ``$``."""
    return text.replace("$", "$$")


def environment(
    asked: Sequence[str], environ: Mapping[str, str], also: Sequence[str] = ()
) -> list[spec_pb2.EnvVar]:
    """Environment passed on to workers, and ``--env``: ``NAME=VALUE``, or ``NAME`` for today's value.

    Of what is passed on without ``--env``, folders whose names are not UTF-8 are left out.
    """
    values = {
        name: carried
        for name, value in sorted(environ.items())
        if name in _CARRIED or name in also or name.startswith(_CARRIED_PREFIX)
        if (carried := ":".join(filter(is_utf8, value.split(":")))) or not value
    } | asked_environment(asked, environ)
    return [spec_pb2.EnvVar(name=name, value=literal(value)) for name, value in values.items()]


def asked_environment(asked: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of ``--env``, as they were typed. Raises ``InvalidInput``."""
    values: dict[str, str] = {}
    wrong: list[Violation] = []
    for item in asked:
        try:
            name, value = _asked_variable(item, environ)
        except InvalidInput as error:
            wrong += error.violations
        else:
            values[name] = value
    if wrong:
        raise InvalidInput(dict.fromkeys(wrong), what="The command line")
    return values


def _asked_variable(item: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """Name and value. Raises ``InvalidInput``."""
    _check_utf8("--env", item)
    name, equals, value = item.partition("=")
    if not name:
        raise wrong("--env", f"{item!r} has no name.", "Write --env NAME=VALUE, or --env NAME.")
    if purpose := purpose_of(name):
        raise wrong("--env", f"{name} {purpose}; Holdfast sets it.", "Leave it out, or use another name.")
    if equals:
        return name, value
    if not _NAME.fullmatch(name):
        begun = _NAME.match(name)
        value = name[begun.end() :] if begun else ""
        fix = "Write --env NAME=VALUE."
        if begun and value[:1] in (":", " "):
            fix = f"Write --env {shell_line([f'{begun[0]}={value[1:].strip()}'])}."
        raise wrong("--env", f"{name!r:.80} is no name of a variable.", fix)
    if name not in environ:
        raise wrong("--env", f"{name} is not set here.", f"Write --env {name}=VALUE.")
    _check_utf8(f"--env {name}", environ[name])
    return name, environ[name]


def name_of(command: Sequence[str]) -> str:
    """A display name that people recognise the command by."""
    return one_line(shell_line([PurePosixPath(command[0]).name, *command[1:]]), _NAME_LENGTH)


def _check_utf8(path: str, text: str) -> None:
    if not is_utf8(text):
        fix = "Rename what is called so, or have a script on the hosts name it."
        raise wrong(path, f"{os.fsencode(text)!r:.80} is not UTF-8, as all texts of a job are.", fix)
