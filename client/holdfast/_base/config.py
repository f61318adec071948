"""Configuration files: one frozen dataclass each, read once; unknown keys and wrong types are errors.

A loader of our own, because the agent must stay small: no pydantic there. Values come from the TOML file,
then from ``HOLDFAST_<KEY>`` in the environment where a key says so. Durations may be written "90s", "15m".
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
import types
import typing
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from holdfast.errors import ConfigError

T = TypeVar("T")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")
_UNQUOTED = str.maketrans("", "", "'\"")
_UNIT_S = {"ms": 0.001, "s": 1.0, None: 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def duration_s(value: object) -> float:
    """Seconds of ``90``, ``"90s"``, ``"1.5h"``, ``"250ms"``. Raises ``ValueError`` with what is accepted."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise ValueError("the number is too large for a duration") from None
    found = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f'{value!r} is no duration; write seconds, or "90s", "15m", "2h"')
    return float(found[1]) * _UNIT_S[found[2]]


def load(cls: type[T], path: Path) -> T:
    """Read ``path`` (TOML) into the dataclass ``cls``, whose ``made_by`` is the command that writes such a file.

    Relative paths count from the file's folder. Raises ``ConfigError`` that names the file, the
    key and what is expected.
    """
    try:
        text = path.read_bytes().decode()
        table = tomllib.loads(text)
    except OSError as error:
        made_by = getattr(cls, "made_by", "") if isinstance(error, FileNotFoundError) else ""
        fix = f"Name another with --config FILE, or make it: {made_by}" if made_by else ""
        raise ConfigError(f"Cannot read {path}: {error.strerror}.", fix=fix) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.") from error
    try:
        return from_table(cls, table, path)
    except ConfigError as error:
        raise placed(error, path) from error


def placed(error: ConfigError, path: Path) -> ConfigError:
    """The same problem with the file, and the line of the key that its text begins with, where the file has it."""
    said = error.message.removeprefix(f"{path}: ")
    try:
        line = _line_of(path.read_text(), said)
    except (OSError, UnicodeDecodeError):
        line = 0
    return type(error)(f"{path}:{line}: {said}" if line else f"{path}: {said}", fix=error.fix)


def _line_of(text: str, said: str) -> int:
    """Number of the line with the key that a message names first, counted from 1; 0 if there is none.

    The key is written as ``quotas.llm.gpus``, ``notifications[1].url`` or ``[hooks] prolog``.
    """
    words = [word.strip("'\":,.") for word in said.removeprefix("unknown key ").split()[:2]]
    if len(words) > 1 and words[0].startswith("["):
        words[0] = f"{words[0].strip('[]')}.{words[1]}"
    wanted = words[0].translate(_UNQUOTED) if words else ""
    table, found, count = "", dict[str, int](), dict[str, int]()
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.split("#")[0].strip().translate(_UNQUOTED)
        if bare.startswith("[[") and bare.endswith("]]"):
            name = bare.strip("[] ")
            table = f"{name}[{count.setdefault(name, 0)}]"
            count[name] += 1
            found.setdefault(table, number)
        elif bare.startswith("[") and bare.endswith("]"):
            table = bare.strip("[] ")
            found.setdefault(table, number)
        elif "=" in bare:
            key = bare.partition("=")[0].strip()
            found.setdefault(f"{table}.{key}" if table else key, number)
    while wanted and wanted not in found:
        wanted = wanted[: max(wanted.rfind("."), wanted.rfind("["), 0)]
    return found.get(wanted, 0)


def from_table(cls: type[T], table: dict[str, Any], path: Path, within: str = "") -> T:
    """Read settings from a parsed table, by the rules of ``load``; ``within`` is its name and a dot, or empty."""
    fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    if unknown := sorted(set(table) - set(fields)):
        raise ConfigError(f"{path}: unknown key {within + unknown[0]!r}.", fix=_meant(unknown[0], fields))
    hints = typing.get_type_hints(cls)
    values: dict[str, Any] = {}
    for name, field in fields.items():
        if name in table:
            values[name] = _convert(table[name], hints[name], f"{path}: {within}{name}", path)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ConfigError(f"{path}: the key {within + name!r} is missing.")
    return cls(**values)


def _meant(unknown: str, known: Iterable[str]) -> str:
    import difflib  # only for a mistake: a daemon that has made none need not hold it

    near = difflib.get_close_matches(unknown, known, 1)
    return f"{f'Did you mean {near[0]}? ' if near else ''}Known keys: {', '.join(sorted(known))}."


def _convert(value: Any, hint: Any, where: str, path: Path) -> Any:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        hint = next(arg for arg in typing.get_args(hint) if arg is not type(None))
        return _convert(value, hint, where, path)
    if origin is dict:
        if not isinstance(value, dict):
            raise ConfigError(f"{where} must be a table.")
        inner = typing.get_args(hint)[1]
        return {key: _convert(v, inner, f"{where}.{key}", path) for key, v in value.items()}
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, dict):
            raise ConfigError(f"{where} must be a table.")
        return from_table(hint, value, path, where.removeprefix(f"{path}: ") + ".")
    if origin is tuple:
        if not isinstance(value, list):
            raise ConfigError(f"{where} must be a list.")
        inner = typing.get_args(hint)[0]
        return tuple(_convert(v, inner, f"{where}[{i}]", path) for i, v in enumerate(value))
    if hint is Path:
        if not isinstance(value, str):
            raise ConfigError(f"{where} must be a path in quotes.")
        return path.parent.absolute() / Path(value).expanduser()  # a daemon's children are elsewhere
    if hint is float:
        try:
            return duration_s(value)
        except ValueError as error:
            raise ConfigError(f"{where}: {error}.") from error
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise ConfigError(f"{where} must be {_NAMES.get(hint, hint.__name__)}, not {value!r}.")
    return value


_NAMES = {int: "a whole number", str: "text in quotes", bool: "true or false"}
