"""From what a caller of ``submit`` gives to the job that is sent: a file, a mapping, or arguments as ``run`` has."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, ParamSpec, TypedDict, TypeVar

from holdfast import spec
from holdfast._base import config
from holdfast.cli.submission.job_options import JobOptions, dependency_of
from holdfast.cli.submission.packaging import CodeOptions, Packed, bring_code
from holdfast.cli.submission.programs import program_of
from holdfast.cli.submission.run_spec import RunRequest, job_of
from holdfast.cli.submission.typed_options import WORKERS, in_words_of
from holdfast.errors import InvalidInput, Violation
from holdfast.v1 import job_pb2

P = ParamSpec("P")
R = TypeVar("R")

JobSource = str | os.PathLike[str] | Mapping[str, Any] | spec.JobFile | job_pb2.CustomJob
"""A path of a YAML or JSON file, its content, a job file that was read, or a message."""
Duration = float | str | timedelta
"""Seconds, a text such as ``"90s"`` or ``"2h"``, or a ``timedelta``."""

WHAT = "The call of submit"
_SHELL = re.compile(r"[|&;<>()$`*?\n]")
_OPTION = re.compile(r"--([a-z][a-z-]*)")


class Arguments(TypedDict, total=False):
    """Keyword arguments of ``submit``; None counts as left out."""

    command: str | Sequence[str] | None
    name: str | None
    replicas: int | None
    gpus: int | None
    gpu_type: str | None
    gpu_partition_size: str | None
    machine_type: str | None
    processes_per_worker: int | None
    cpus: int | None
    memory_mb: int | None
    env: Mapping[str, object] | None
    labels: Mapping[str, str] | None
    workdir: str | os.PathLike[str] | None
    package: str | os.PathLike[str] | None
    requirements: Sequence[str] | None
    max_restarts: int | None
    restart_on_hang: bool | None
    hang_timeout: Duration | None
    grace: Duration | None
    project: str | None
    priority: int | None
    after: str | Sequence[str] | None
    pause_if_unmet: bool | None
    timeout: Duration | None
    max_wait: Duration | None
    run_as: str | None
    secrets: Mapping[str, str] | None
    request_id: str | None


_OF_COMMAND = (
    *("command", "replicas", "gpus", "gpu_type", "gpu_partition_size", "machine_type", "processes_per_worker"),
    *("cpus", "memory_mb", "env", "workdir", "package", "requirements"),
    *("max_restarts", "restart_on_hang", "hang_timeout", "grace"),
)
"""What a job file says itself."""


def job_from(source: JobSource | None, asked: Arguments, packed: Packed) -> job_pb2.CustomJob:
    """The job to send; folders to be sent along are packed. Raises ``InvalidInput`` that names each argument."""
    if source is None:
        job = _of_command(asked, packed)
    else:
        if given := [name for name in _OF_COMMAND if asked.get(name) is not None]:
            raise _wrong(given[0], "goes with command=, and a job was given", "write it into the job")
        job = _of_source(source, packed)
        job.display_name = asked.get("name") or job.display_name
    options = JobOptions(
        project=asked.get("project"),
        priority=_whole("priority", asked.get("priority"), 1),
        after=_dependencies(asked.get("after") or ()),
        pause_if_unmet=bool(asked.get("pause_if_unmet")),
        timeout_s=seconds_of("timeout", asked.get("timeout")),
        max_wait_s=seconds_of("max_wait", asked.get("max_wait")),
        run_as=asked.get("run_as"),
        secrets=tuple(_mapping("secrets", asked.get("secrets"), '{"KEY": "wandb"}').items()),
    )
    options.apply(job)
    for key, value in _mapping("labels", asked.get("labels"), '{"team": "vision"}').items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise _wrong("labels", f"{key!r}: {value!r} is no pair of texts", 'such as {"team": "vision"}')
        job.labels[key] = value
    if job.job_spec.scheduling.array:
        fix = "leave scheduling.array out and call submit for each index, or type: holdfast submit FILE"
        raise _wrong("job", "makes an array, and submit returns one job", fix)
    return job


def _of_source(source: JobSource, packed: Packed) -> job_pb2.CustomJob:
    if isinstance(source, job_pb2.CustomJob):
        copy = job_pb2.CustomJob()
        copy.CopyFrom(source)
        return copy
    if isinstance(source, spec.JobFile):
        return spec.job_to_proto(source)
    if isinstance(source, Mapping):
        data: object = _plain(source)
        what, name = "The job", "job"
    elif isinstance(source, (str, os.PathLike)):
        what, name = os.fspath(source), spec.name_of(os.fspath(source))
        if isinstance(source, str) and not os.path.exists(source):
            fix = "a job file is meant here; a command goes in command=, such as command=['python', 'train.py']"
            raise _wrong("job", f"there is no file {source[:80]!r}", fix)
        text = spec.text_of(source)
        if runs := program_of(what, text):
            fix = f"run it with: submit(command={[*runs, what]!r})"
            raise _wrong("job", f"{what!r:.80} is a program, not a job file", fix)
        data = spec.load_text(text, source=what)
    else:
        fix = "give the path of a job file, its content as a dict, or command=[…]"
        raise _wrong("job", f"a {type(source).__name__} is no job", fix)
    if isinstance(data, dict):
        with _names_of_arguments():
            bring_code(data, None, packed)
    return spec.job_to_proto(spec.parse(data, what=what, name=name))


def _plain(value: object) -> object:
    """The same in dicts and lists of our own, so that packing writes nothing into the caller's."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value


def _of_command(asked: Arguments, packed: Packed) -> job_pb2.CustomJob:
    command, package, workdir = asked.get("command"), asked.get("package"), asked.get("workdir")
    if command is None:
        fix = "such as submit('train.yaml') or submit(command=['python', 'train.py'], gpus=8)"
        raise _wrong("command", "is missing, and no job was given", fix)
    if asked.get("requirements") is not None and package is None:
        raise _wrong("requirements", "goes with package=", "name the folder of your code")
    replicas = _whole("replicas", asked.get("replicas"), 1)
    request = RunRequest(
        command=tuple(_words(command)),
        gpus=_whole("gpus", asked.get("gpus"), 0) or 0,
        replicas=1 if replicas is None else replicas,
        processes_per_worker=_whole("processes_per_worker", asked.get("processes_per_worker"), 1),
        name=asked.get("name") or "",
        env=tuple(_variables(_mapping("env", asked.get("env"), '{"LR": "0.1"}'))),
        max_restarts=_whole("max_restarts", asked.get("max_restarts"), 0),
        cpus=_whole("cpus", asked.get("cpus"), 0) or 0,
        memory_mb=_whole("memory_mb", asked.get("memory_mb"), 0) or 0,
        grace_s=seconds_of("grace", asked.get("grace")),
        workdir=os.fspath(workdir) if workdir is not None else "",
        restart_on_hang=bool(asked.get("restart_on_hang")),
        hang_timeout_s=seconds_of("hang_timeout", asked.get("hang_timeout")),
        gpu_type=asked.get("gpu_type"),
        gpu_partition_size=asked.get("gpu_partition_size"),
        machine_type=asked.get("machine_type"),
    )
    with _names_of_arguments():
        job = job_of(request, os.environ, os.getcwd())
        if package is not None:
            code = CodeOptions(
                os.fspath(package),
                requirements=tuple(asked.get("requirements") or ()),
                folder_option="--package",
            )
            packed.give(job, code, keep_directory=workdir is not None)
    return job


def _dependencies(after: str | Sequence[str]) -> tuple[tuple[str, str], ...]:
    """(Job, end) of each, given as ``"prep-x7k2mq"`` or ``"prep-x7k2mq:any"``."""
    words: list[Any] = list(after) if isinstance(after, (list, tuple)) else [after]
    for word in words:
        if not isinstance(word, str) or not word.partition(":")[0].strip():
            raise _wrong("after", f"{word!r:.80} is no id of a job", 'such as job.id, or f"{job.id}:any"')
    return tuple(map(dependency_of, words))


def _words(command: str | Sequence[str]) -> list[str]:
    if isinstance(command, str):
        if _SHELL.search(command):
            fix = f"for a shell, write command=['bash', '-c', {command[:60]!r}]; else give a list of words"
            raise _wrong("command", "has signs of a shell, and none reads it", fix)
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise _wrong("command", f"can't be read: {error}", "give a list of words") from error
    else:
        words = [os.fspath(word) if isinstance(word, os.PathLike) else word for word in command]
    if not words or not all(isinstance(word, str) for word in words):
        raise _wrong("command", "is no list of words", "such as ['python', 'train.py', '--lr', '0.1']")
    return words


def _mapping(name: str, value: Mapping[str, R] | None, example: str) -> Mapping[str, R]:
    if value is not None and not isinstance(value, Mapping):
        raise _wrong(name, f"{value!r:.80} is no mapping", f"give a dict, such as {example}")
    return value or {}


def _variables(env: Mapping[str, object]) -> list[str]:
    """``NAME=VALUE`` for each, and ``NAME`` alone for one that carries the caller's own value."""
    for name, value in env.items():
        if not isinstance(name, str) or not name or "=" in name:
            raise _wrong("env", f"{name!r} is no name of a variable", 'such as {"LR": "0.1"}')
        if isinstance(value, bool) or not isinstance(value, (str, int, float, os.PathLike, type(None))):
            raise _wrong(f"env[{name!r}]", f"{value!r:.80} is no text", f"write {str(value)!r:.80}")
    return [name if value is None else f"{name}={_text(value)}" for name, value in env.items()]


def _text(value: object) -> str:
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def _whole(name: str, value: object, least: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 1 << 31:
        raise _wrong(name, f"{value!r:.80} is no whole number from {least}", f"such as {max(least, 1)}")
    return value


def seconds_of(name: str, value: Duration | None) -> float | None:
    """A duration in seconds. Raises ``InvalidInput`` that names the argument."""
    if value is None:
        return None
    try:
        seconds = value.total_seconds() if isinstance(value, timedelta) else config.duration_s(value)
    except ValueError as error:
        raise _wrong(name, str(error)) from error
    if not 0 <= seconds < float("inf"):
        raise _wrong(name, f"{value!r:.80} is no duration", 'write seconds, or "90s", "15m", "2h"')
    return seconds


@contextlib.contextmanager
def _names_of_arguments() -> Iterator[None]:
    """Errors raised inside name options of the command line; ours are the same words with underscores."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(map(_as_arguments, error.violations), what=WHAT) from None


def refused(error: InvalidInput, job: JobSource | None, asked: Arguments) -> InvalidInput:
    """The controller's refusal in the names of the arguments that have set the fields; those of a job file stay."""

    def argument(parameter: str) -> str | None:
        name = parameter.removesuffix("_s")
        if asked.get(name) is not None:
            return name
        return "" if parameter == WORKERS and job is None else None

    return in_words_of(error, argument, WHAT)


def _as_arguments(violation: Violation) -> Violation:
    path, problem, fix = (
        _OPTION.sub(lambda found: found[1].replace("-", "_"), text)
        for text in (violation.path, violation.problem, violation.fix)
    )
    return Violation(path, problem, fix)


def _wrong(path: str, problem: str, fix: str = "") -> InvalidInput:
    return InvalidInput([Violation(path, problem, fix)], what=WHAT)


def guessing(function: Callable[P, R]) -> Callable[P, R]:
    """Name the argument that was meant where one is unknown. Raises ``TypeError``, as Python does.

    The function shows the arguments of ``submit`` one by one where it takes them together.
    """
    signature, shown = inspect.signature(function), list[inspect.Parameter]()
    for each in signature.parameters.values():
        if each.kind is not each.VAR_KEYWORD:
            shown.append(each)
            continue
        for name, hint in Arguments.__annotations__.items():
            written = getattr(hint, "__forward_arg__", hint)
            shown.append(inspect.Parameter(name, each.KEYWORD_ONLY, default=None, annotation=written))
    known = [each.name for each in shown[1:]]

    @functools.wraps(function)
    def checked(*args: P.args, **words: P.kwargs) -> R:
        for name in words:
            if name not in known:
                close = get_close_matches(name, known, n=1, cutoff=0.5)
                hint = f"Did you mean {close[0]}=?" if close else f"There are: {', '.join(known)}."
                raise TypeError(f"{function.__name__}() has no argument {name!r}. {hint}")
        return function(*args, **words)

    checked.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
    return checked
