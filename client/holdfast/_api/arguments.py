"""Arguments of calls, each read by its kind; of ``submit`` all that are wrong are in one error."""

from __future__ import annotations

import datetime
import operator
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypedDict

from holdfast._base import config
from holdfast._base.proto_values import LONGEST_S
from holdfast.cli.kit.parameters import is_utf8
from holdfast.cli.submission.job_options import dependency_of
from holdfast.errors import InvalidInput, Violation

Duration = float | str | datetime.timedelta
"""Seconds, a text such as ``"90s"`` or ``"2h"``, or a ``timedelta``."""

WHAT = "The call of submit"
_SHELL = re.compile(r"[|&;<>()$`*?\n]")


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


def read(asked: Arguments) -> dict[str, Any]:
    """The arguments that are given, as ``run`` has its options; names of times end in ``_s``.

    Raises ``InvalidInput`` with each that is wrong.
    """
    found: dict[str, Any] = {}
    violations: list[Violation] = []
    for name, value in asked.items():
        if value is None:
            continue
        try:
            found[name + "_s" * (name in _TIMES)] = _READERS[name](name, value)
        except InvalidInput as error:
            violations += error.violations
    if violations:
        raise InvalidInput(violations, what=WHAT)
    return found


def seconds_of(name: str, value: Duration | None, what: str = WHAT) -> float | None:
    """A duration in seconds. Raises ``InvalidInput`` that names the argument."""
    if value is None:
        return None
    try:
        seconds = value.total_seconds() if isinstance(value, datetime.timedelta) else config.duration_s(value)
    except ValueError as error:
        raise wrong(name, str(error), what=what) from error
    if not 0 <= seconds <= LONGEST_S:
        raise wrong(name, f"{value!r:.80} is no duration", 'write seconds, or "90s", "15m", "2h"', what=what)
    return seconds


def since_of(value: Duration | datetime.datetime | None, what: str) -> float | datetime.datetime | None:
    """Seconds before now, or a time with its zone; one without is the caller's local time."""
    if not isinstance(value, datetime.datetime):
        return seconds_of("since", value, what)
    try:
        return value.astimezone(datetime.UTC)
    except (ValueError, OverflowError) as error:
        raise wrong("since", f"{value!r:.80} is before or after all times there are", what=what) from error


def labels_of(value: Mapping[str, str] | None, what: str) -> tuple[tuple[str, str], ...]:
    """Labels that are looked for. Raises ``InvalidInput``."""
    try:
        return () if value is None else _READERS["labels"]("labels", value)
    except InvalidInput as error:
        raise InvalidInput(error.violations, what=what) from None


def ranks_of(value: int | Iterable[int], what: str) -> list[int]:
    """Numbers of ranks. Raises ``InvalidInput``."""
    found = []
    for each in [value] if isinstance(value, int) else value:
        number = operator.index(each) if hasattr(each, "__index__") else -1
        if not 0 <= number < 1 << 31:
            raise wrong("ranks", f"{each!r:.80} is no number of a rank", "such as 0, or [0, 1]", what=what)
        found.append(number)
    return found


def wrong(path: str, problem: str, fix: str = "", *, what: str = WHAT) -> InvalidInput:
    """The error about one argument."""
    return InvalidInput([Violation(path, problem, fix)], what=what)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise wrong(name, f"{value!r:.80} is no text", f'such as "{value!s:.40}"' if type(value) is int else "")
    if not is_utf8(value):
        raise wrong(name, f"{value!r:.80} is no valid Unicode: it holds half of a surrogate pair")
    return value


def _path(name: str, value: object) -> str:
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(path, str):
        raise wrong(name, f"{value!r:.80} is no path", "give a text or a Path")
    return path


def _whole(least: int, name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 1 << 31:
        raise wrong(name, f"{value!r:.80} is no whole number from {least}", f"such as {max(least, 1)}")
    return value


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise wrong(name, f"{value!r:.80} is neither True nor False")
    return value


def _texts(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)):
        fix = f"such as [{value!r:.60}]" if isinstance(value, str) else ""
        raise wrong(name, f"{value!r:.80} is no list of texts", fix)
    return tuple(_text(f"{name}[{index}]", each) for index, each in enumerate(value))


def _mapping(name: str, value: object, example: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise wrong(name, f"{value!r:.80} is no mapping", f"give a dict, such as {example}")
    return value


def _pairs(example: str, name: str, value: object) -> tuple[tuple[str, str], ...]:
    pairs = _mapping(name, value, example)
    for key, each in pairs.items():
        if not isinstance(key, str) or not isinstance(each, str):
            raise wrong(name, f"{key!r:.80}: {each!r:.80} is no pair of texts", f"such as {example}")
    return tuple((_text(name, key), _text(f"{name}[{key!r}]", each)) for key, each in pairs.items())


def _variables(name: str, value: object) -> tuple[str, ...]:
    """``NAME=VALUE`` for each, and ``NAME`` alone for one that carries the caller's own value."""
    env = _mapping(name, value, '{"LR": "0.1"}')
    for key, each in env.items():
        if not isinstance(key, str) or not key or "=" in key:
            raise wrong(name, f"{key!r:.80} is no name of a variable", 'such as {"LR": "0.1"}')
        if isinstance(each, bool) or not isinstance(each, (str, int, float, os.PathLike, type(None))):
            raise wrong(f"{name}[{key!r}]", f"{each!r:.80} is no text", f"write {str(each)!r:.80}")
    return tuple(key if each is None else f"{key}={_written(each)}" for key, each in env.items())


def _written(value: object) -> str:
    return os.fsdecode(value) if isinstance(value, os.PathLike) else str(value)


def _dependencies(name: str, value: object) -> tuple[tuple[str, str], ...]:
    """(Job, end) of each, given as ``"prep-x7k2mq"`` or ``"prep-x7k2mq:any"``."""
    words: list[Any] = list(value) if isinstance(value, (list, tuple)) else [value]
    for word in words:
        if not isinstance(word, str) or not word.partition(":")[0].strip() or not is_utf8(word):
            raise wrong(name, f"{word!r:.80} is no id of a job", 'such as job.id, or f"{job.id}:any"')
    return tuple(map(dependency_of, words))


def _words(name: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        if _SHELL.search(value):
            fix = f"for a shell, write command=['bash', '-c', {value[:60]!r}]; else give a list of words"
            raise wrong(name, "has signs of a shell, and none reads it", fix)
        try:
            words: list[Any] = shlex.split(value)
        except ValueError as error:
            raise wrong(name, f"can't be read: {error}", "give a list of words") from error
    else:
        given = value if isinstance(value, Sequence) and not isinstance(value, bytes) else ()
        words = [os.fspath(word) if isinstance(word, os.PathLike) else word for word in given]
    if not words or not all(isinstance(word, str) for word in words):
        raise wrong(name, "is no list of words", "such as ['python', 'train.py', '--lr', '0.1']")
    return tuple(words)


_TIMES = ("timeout", "max_wait", "grace", "hang_timeout")
_READERS: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(("name", "project", "run_as", "request_id"), _text),
    **dict.fromkeys(("gpu_type", "gpu_partition_size", "machine_type"), _text),
    **dict.fromkeys(("workdir", "package"), _path),
    **dict.fromkeys(("replicas", "processes_per_worker", "priority"), partial(_whole, 1)),
    **dict.fromkeys(("gpus", "cpus", "memory_mb", "max_restarts"), partial(_whole, 0)),
    **dict.fromkeys(_TIMES, seconds_of),
    **dict.fromkeys(("restart_on_hang", "pause_if_unmet"), _flag),
    "command": _words,
    "requirements": _texts,
    "after": _dependencies,
    "env": _variables,
    "labels": partial(_pairs, '{"team": "vision"}'),
    "secrets": partial(_pairs, '{"KEY": "wandb"}'),
}
"""By argument: what reads it."""
