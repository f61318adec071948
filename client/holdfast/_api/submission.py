"""From what a caller of ``submit`` gives to the job that is sent: a file, a mapping, or arguments as ``run`` has."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, ParamSpec, TypeVar

from holdfast import spec
from holdfast._api.arguments import WHAT, Arguments, read, wrong
from holdfast.cli.submission.job_options import JobOptions
from holdfast.cli.submission.packaging import CodeOptions, Packed, bring_code
from holdfast.cli.submission.programs import program_of
from holdfast.cli.submission.run_spec import RunRequest, job_of
from holdfast.cli.submission.typed_options import WORKERS, in_words_of
from holdfast.errors import InvalidInput, Violation
from holdfast.spec.parse.text import MAX_DEPTH
from holdfast.v1 import job_pb2

P = ParamSpec("P")
R = TypeVar("R")
Options = TypeVar("Options", JobOptions, RunRequest)

JobSource = str | os.PathLike[str] | Mapping[str, Any] | spec.JobFile | job_pb2.CustomJob
"""A path of a YAML or JSON file, its content, a job file that was read, or a message."""
_OPTION = re.compile(r"--([a-z][a-z-]*)")
_OF_COMMAND = (
    *("command", "replicas", "gpus", "gpu_type", "gpu_partition_size", "machine_type", "processes_per_worker"),
    *("cpus", "memory_mb", "env", "workdir", "package", "requirements"),
    *("max_restarts", "restart_on_hang", "hang_timeout", "grace"),
)
"""What a job file says itself."""


def job_from(source: JobSource | None, asked: Arguments, packed: Packed) -> job_pb2.CustomJob:
    """The job to send; folders to be sent along are packed. Raises ``InvalidInput`` that names each argument."""
    given = read(asked)
    if source is None:
        job = _of_command(given, packed)
    else:
        if misplaced := [name for name in _OF_COMMAND if asked.get(name) is not None]:
            raise wrong(misplaced[0], "goes with command=, and a job was given", "write it into the job")
        job = _of_source(source, packed)
        job.display_name = given.get("name") or job.display_name
    _given_of(JobOptions, given).apply(job)
    if job.job_spec.scheduling.array:
        fix = "leave scheduling.array out and call submit for each index, or type: holdfast submit FILE"
        raise wrong("job", "makes an array, and submit returns one job", fix)
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
            raise wrong("job", f"there is no file {source[:80]!r}", fix)
        text = spec.text_of(source)
        if runs := program_of(what, text):
            fix = f"run it with: submit(command={[*runs, what]!r})"
            raise wrong("job", f"{what!r:.80} is a program, not a job file", fix)
        data = spec.load_text(text, source=what)
    else:
        fix = "give the path of a job file, its content as a dict, or command=[…]"
        raise wrong("job", f"a {type(source).__name__} is no job", fix)
    if isinstance(data, dict):
        with _names_of_arguments():
            bring_code(data, None, packed)
    return spec.job_to_proto(spec.parse(data, what=what, name=name))


def _plain(value: object, depth: int = 0) -> object:
    """The same in dicts and lists of our own, so that packing writes nothing into the caller's."""
    if depth > MAX_DEPTH:
        raise wrong("job", f"is nested more than {MAX_DEPTH} deep")
    if isinstance(value, Mapping):
        return {key: _plain(each, depth + 1) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each, depth + 1) for each in value]
    return value


def _of_command(given: dict[str, Any], packed: Packed) -> job_pb2.CustomJob:
    package = given.get("package")
    if "command" not in given:
        fix = "such as submit('train.yaml') or submit(command=['python', 'train.py'], gpus=8)"
        raise wrong("command", "is missing, and no job was given", fix)
    if "requirements" in given and package is None:
        raise wrong("requirements", "goes with package=", "name the folder of your code")
    with _names_of_arguments():
        job = job_of(_given_of(RunRequest, given), os.environ, os.getcwd())
        if package is not None:
            code = CodeOptions(package, requirements=given.get("requirements", ()), folder_option="--package")
            packed.give(job, code, keep_directory="workdir" in given)
    return job


def _given_of(kind: type[Options], given: Mapping[str, Any]) -> Options:
    """The options of that kind, with those arguments that are of them."""
    return kind(**{field.name: given[field.name] for field in fields(kind) if field.name in given})


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
