"""YAML and JSON texts to plain data, safely: bounded in size, depth and in what aliases make of them.

Built from YAML's event stream rather than its constructors, so that nothing recurses, no tag makes an object,
repeated keys are noticed, and a scalar that YAML takes for a number or boolean keeps the words of its writer.
"""

from __future__ import annotations

import json
import math
import os
import re
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import yaml

from holdfast.errors import InvalidSpec, Violation
from holdfast.spec.wording import Table, Unquoted, shortened, shown

MAX_BYTES = 1 << 20
MAX_DEPTH = 64
MAX_WEIGHT = 4 * MAX_BYTES
"""Characters and nodes once every alias is counted in full; a text without aliases stays far below."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_RESOLVER: Any = yaml.resolver.Resolver()
_TAG = "tag:yaml.org,2002:"
_KINDS = {f"{_TAG}int": "number", f"{_TAG}float": "number", f"{_TAG}bool": "boolean", f"{_TAG}null": "null"}
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,29})")


class Unreadable(ValueError):
    """The text is no YAML or JSON that we take; says where and why."""


class Commented(Unreadable):
    """JSON with a comment, as in templates that people fill in; YAML has others."""


def read_file(path: str | os.PathLike[str]) -> str:
    """The file's text. Raises ``InvalidSpec`` where it can't be read, is too large or is not UTF-8."""
    where = str(path)
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        fix = "name a job file in it, or send its code: holdfast run --package DIR -- COMMAND"
        is_folder = isinstance(error, IsADirectoryError)
        problem = f"cannot be read: {error.strerror}"
        raise InvalidSpec([Violation("", problem, fix if is_folder else "")], what=where) from error
    return decoded(content, where)


def decoded(content: bytes, where: str) -> str:
    """The text of a job file's bytes. Raises ``InvalidSpec`` where they are too many or no UTF-8."""
    if len(content) > MAX_BYTES:
        raise InvalidSpec([_too_large()], what=where)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problem = f"is not UTF-8 text: byte {error.start} is {content[error.start]:#04x}"
        raise InvalidSpec([Violation("", problem, "save it as UTF-8")], what=where) from error


def load(text: str, *, source: str) -> object:
    """The data in a YAML or JSON text. Raises ``InvalidSpec`` that names ``source`` and the line."""
    text = text.removeprefix("\ufeff")
    if len(text) > MAX_BYTES or len(text.encode(errors="surrogatepass")) > MAX_BYTES:
        raise InvalidSpec([_too_large()], what=source)
    try:
        if PurePath(source).suffix == ".json":
            return _load_json(text)
        if text.lstrip().startswith(("{", "[")):
            # Nearly all JSON is YAML, but not its tabs and surrogate pairs; nearly all that starts so is JSON.
            try:
                return _load_json(text)
            except Commented as commented:
                return _load_yaml_or(text, commented)
            except Unreadable:
                return _load_yaml(text)
        return _load_yaml(text)
    except Unreadable as error:
        raise InvalidSpec([Violation("", str(error))], what=source) from error


def load_json(text: str, *, source: str) -> object:
    """The plain data of a JSON text; YAML is refused. Raises ``InvalidSpec``."""
    if len(text) > MAX_BYTES or len(text.encode(errors="surrogatepass")) > MAX_BYTES:
        raise InvalidSpec([_too_large()], what=source)
    try:
        return _load_json(text)
    except Unreadable as error:
        raise InvalidSpec([Violation("", str(error))], what=source) from error


def _too_large() -> Violation:
    return Violation("", f"is larger than {MAX_BYTES:,} bytes", "a job file is a few lines; check that it is one")


def _load_json(text: str) -> object:
    try:
        found = json.loads(text, object_pairs_hook=_json_table, parse_constant=_json_constant, parse_int=_json_int)
        if text.count("[") + text.count("{") > MAX_DEPTH:
            _check_depth(found)
        return found
    except json.JSONDecodeError as error:
        if text.startswith(("//", "/*"), error.pos):
            where = f"line {error.lineno}, column {error.colno}"
            raise Commented(f"is not valid JSON: {where}: JSON has no comments; remove this one") from error
        raise Unreadable(f"is not valid JSON: line {error.lineno}, column {error.colno}: {error.msg}") from error
    except RecursionError:
        raise Unreadable("is nested too deeply") from None


def _check_depth(data: object) -> None:
    """Raises ``Unreadable`` for what readers that call themselves for each level would fail on."""
    level = [data]
    for _ in range(MAX_DEPTH + 1):
        level = [
            inner
            for each in level
            if isinstance(each, (list, dict))
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return
    raise Unreadable(f"is nested more than {MAX_DEPTH} deep")


def _json_table(pairs: list[tuple[str, Any]]) -> Table:
    table = Table(pairs)
    if len(table) < len(pairs):
        seen: set[str] = set()
        table.repeated = [key for key, _ in pairs if key in seen or seen.add(key)]  # type: ignore[func-returns-value]
    return table


def _json_constant(name: str) -> object:
    raise Unreadable(f"is not valid JSON: {name} is no number there")


def _json_int(digits: str) -> int | float:
    """Numbers beyond any limit become infinite: Python refuses to read thousands of digits."""
    return int(digits) if len(digits) <= 30 else math.inf


@dataclass(slots=True)
class _Open:
    """A list or mapping that has begun and not ended."""

    value: list[Any] | Table
    anchor: str | None
    line: int
    weight: int = 1
    key: str | None = None
    merging: bool = False
    merged: list[Table] = field(default_factory=list)


class _Builder:
    """Makes data from events. An alias shares what it names, and is counted as if it were written out."""

    def __init__(self) -> None:
        self.open: list[_Open] = []
        self.anchors: dict[str, tuple[Any, int]] = {}
        self.documents: list[Any] = []

    def take(self, event: Any) -> None:
        match event:
            case yaml.ScalarEvent():
                self._scalar(event)
            case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                self._start(event)
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                self._end()
            case yaml.AliasEvent():
                if event.anchor not in self.anchors:
                    raise Unreadable(
                        f"line {_line(event)}: nothing above is named by &{shortened(str(event.anchor))}"
                    )
                value, weight = self.anchors[event.anchor]
                self._put(value, weight, _line(event))
            case yaml.DocumentStartEvent() if self.documents:
                raise Unreadable(f"line {_line(event)}: a second document starts; a file holds one job")

    def _scalar(self, event: Any) -> None:
        top = self.open[-1] if self.open else None
        is_key = top is not None and isinstance(top.value, Table) and top.key is None and not top.merging
        if is_key and event.value == "<<" and not event.style:
            assert top is not None
            top.merging = True
            return
        # A key is text whatever YAML 1.1 takes it for: a label named "on" doesn't mean true.
        value = event.value if is_key else _scalar_value(event)
        weight = len(event.value) + 1
        if event.anchor:
            self.anchors[event.anchor] = (value, weight)
        self._put(value, weight, _line(event))

    def _start(self, event: Any) -> None:
        mapping = isinstance(event, yaml.MappingStartEvent)
        if event.tag not in (None, "!", f"{_TAG}map" if mapping else f"{_TAG}seq"):
            raise Unreadable(f"line {_line(event)}: the tag {shown(event.tag)} is not allowed")
        if len(self.open) >= MAX_DEPTH:
            raise Unreadable(f"line {_line(event)}: is nested more than {MAX_DEPTH} deep")
        self.open.append(_Open(Table() if mapping else [], event.anchor, _line(event)))

    def _end(self) -> None:
        done = self.open.pop()
        if isinstance(done.value, Table):
            for table in done.merged:
                for key, value in table.items():
                    done.value.setdefault(key, value)
        if done.anchor:
            self.anchors[done.anchor] = (done.value, done.weight)
        self._put(done.value, done.weight, done.line)

    def _put(self, value: Any, weight: int, line: int) -> None:
        """Adds a finished value to what is open around it."""
        if not self.open:
            self.documents.append(value)
            return
        top = self.open[-1]
        top.weight += weight
        if top.weight > MAX_WEIGHT:
            raise Unreadable(f"line {line}: its aliases make it larger than {MAX_WEIGHT:,} characters")
        if isinstance(top.value, list):
            top.value.append(value)
        elif top.merging:
            top.merged.extend(_merged(value, line))
            top.merging = False
        elif top.key is None:
            if not isinstance(value, str):
                raise Unreadable(f"line {line}: a field's name must be text")
            top.key = value
        else:
            if top.key in top.value:
                top.value.repeated.append(top.key)
            top.value[top.key] = value
            top.key = None


def _load_yaml_or(text: str, otherwise: Unreadable) -> object:
    """The data of a YAML text. Raises ``otherwise`` where it can't be read."""
    try:
        return _load_yaml(text)
    except Unreadable:
        raise otherwise from None


def _load_yaml(text: str) -> object:
    builder = _Builder()
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise Unreadable(f"is not valid YAML: {where}{_problem(text, error)}") from error
    except yaml.YAMLError as error:
        raise Unreadable(f"is not valid YAML: {' '.join(str(error).split())[:200]}") from error
    except UnicodeEncodeError:
        raise Unreadable("is not valid Unicode: it holds half of a surrogate pair") from None
    if not builder.documents:
        raise Unreadable("is empty")
    return builder.documents[0]


def _problem(text: str, error: yaml.MarkedYAMLError) -> str:
    """The parser's words, and a fix where a character of the text is all there is to it."""
    mark = error.problem_mark
    lines = text.splitlines() if mark and "cannot start any token" in str(error.problem) else []
    found = lines[mark.line][mark.column : mark.column + 1] if mark and mark.line < len(lines) else ""
    fix = f"; put text that begins with {found} in quotes" if found else ""
    if found == "\t":
        fix = "; it is a tab: indent with blanks"
    return f"{error.problem or error.context}{fix}"


def _scalar_value(event: Any) -> object:
    """Text, or an ``Unquoted`` for what YAML takes for something else. Dates are text: no field holds one."""
    if event.tag not in (None, "!", f"{_TAG}str"):
        raise Unreadable(f"line {_line(event)}: the tag {shown(event.tag)} is not allowed")
    if event.tag is not None or not event.implicit[0]:
        return event.value
    kind = _KINDS.get(_RESOLVER.resolve(yaml.ScalarNode, event.value, event.implicit))
    if kind is None:
        return event.value
    return Unquoted(_unquoted_value(kind, event.value), event.value, kind)


def _unquoted_value(kind: str, written: str) -> bool | int | float | str | None:
    if kind == "null":
        return None
    if kind == "boolean":
        return written.lower() in ("yes", "true", "on")
    if _INTEGER.fullmatch(written):
        return int(written)
    try:
        number = float(written) if any(c in written for c in ".eE") else math.nan
    except ValueError:
        return written
    return number if math.isfinite(number) else written


def _merged(value: object, line: int) -> list[Table]:
    """The mappings that ``<<`` merges: one, or a list in which earlier ones win."""
    tables = []
    for table in value if isinstance(value, list) else [value]:
        if not isinstance(table, Table):
            raise Unreadable(f"line {line}: << must be followed by a mapping")
        tables.append(table)
    return tables


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1
