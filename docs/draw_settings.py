"""Draw the tables of ``docs/admins/settings.md`` from the code: ``python docs/draw_settings.py [--check]``."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast_agent.shell.config import Config
from holdfast_agent.shell.main import reload as agent_reload
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.main import reload as controller_reload

PAGE = Path(__file__).with_name("admins") / "settings.md"
BEGIN, END = "<!-- drawn by docs/draw_settings.py -->", "<!-- drawn until here -->"
_TYPES = {int: "whole number", str: "text", bool: "true or false", float: "duration", Path: "path"}
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"))


@dataclasses.dataclass(frozen=True)
class Key:
    """One key of a settings file: its table (empty at the top), name, type, default and meaning, in words."""

    table: str
    name: str
    kind: str
    default: str
    meaning: str
    live: bool
    """A reload applies it."""


def keys(cls: type[Any], live: frozenset[str], table: str = "", top: str = "") -> Iterator[Key]:
    """All keys of a settings class in their order, those of its tables after its own."""
    hints, said = typing.get_type_hints(cls), meanings(cls)
    tables: list[tuple[type[Any], str, str]] = []
    for field in dataclasses.fields(cls):
        inner, form = _table_of(hints[field.name])
        if inner is not None:
            within = f"{table.strip('[]')}." if table else ""
            tables.append((inner, form.format(within + field.name), field.name))
            continue
        missing = dataclasses.MISSING
        default = "required" if field.default is missing and field.default_factory is missing else _default(field)
        kind = _kind(hints[field.name])
        yield Key(table, field.name, kind, default, said.get(field.name, ""), (top or field.name) in live)
    for inner, name, key in tables:
        yield from keys(inner, live, name, top or key)


def _table_of(hint: Any) -> tuple[type[Any] | None, str]:
    """The class of a table and how its head is written; None where the key is no table."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return hint, "[{}]"
    item = inner[1] if origin is dict else inner[0] if origin is tuple else None
    if dataclasses.is_dataclass(item) and isinstance(item, type):
        return item, "[{}.NAME]" if origin is dict else "[[{}]]"
    return None, ""


def _kind(hint: Any) -> str:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _kind(next(arg for arg in inner if arg is not type(None)))
    if origin is tuple:
        return f"list of {_kind(inner[0])}s".replace("texts", "text")
    if origin is dict:
        return f"table of {_kind(inner[1])}"
    return _TYPES[hint]


def _default(field: dataclasses.Field[Any]) -> str:
    value = field.default_factory() if callable(field.default_factory) else field.default
    if value is None or value in ("", (), {}):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f'`"{_duration(value)}"`'
    if isinstance(value, int):
        return f"{value}"
    if isinstance(value, tuple):
        return "`[" + ", ".join(f'"{each}"' for each in value) + "]`"
    return f'`"{value}"`'


def _duration(seconds: float) -> str:
    for size, unit in _UNITS:
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"


def meanings(cls: type[Any]) -> dict[str, str]:
    """The docstring of each field of a class, on one line."""
    found: dict[str, str] = {}
    body = ast.parse(inspect.getsource(cls)).body[0]
    assert isinstance(body, ast.ClassDef)
    for one, following in zip(body.body, [*body.body[1:], None], strict=True):
        if not isinstance(one, ast.AnnAssign) or not isinstance(one.target, ast.Name):
            continue
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            found[one.target.id] = " ".join(str(following.value.value).split()).replace("``", "`").rstrip(".")
    return found


def controller() -> list[Key]:
    """All keys of controller.toml."""
    return list(keys(ControllerConfig, controller_reload.LIVE))


def agent() -> list[Key]:
    """All keys of agent.toml."""
    return list(keys(Config, agent_reload.LIVE))


def table(found: list[Key]) -> str:
    """A table for each table of the file, after its heading."""
    parts = []
    for name in dict.fromkeys(key.table for key in found):
        head = f"### `{name}`\n" if name else ""
        rows = [
            f"| `{key.name}` | {key.kind} | {key.default} | {'reload' if key.live else 'restart'} | {key.meaning} |"
            for key in found
            if key.table == name
        ]
        parts.append(
            "\n".join([f"{head}| key | type | default | takes effect | |", "|---|---|---|---|---|", *rows])
        )
    return "\n\n".join(parts)


def page() -> str:
    """The whole page, with the settings as the code has them now."""
    head, _, rest = PAGE.read_text().partition(BEGIN)
    drawn = f"{BEGIN}\n## controller.toml\n{table(controller())}\n\n## agent.toml\n{table(agent())}\n{END}"
    return head + drawn + rest.partition(END)[2]


def main() -> None:
    """Write the page; with ``--check`` say whether it is current instead."""
    if "--check" in sys.argv:
        raise SystemExit(PAGE.read_text() != page())
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
