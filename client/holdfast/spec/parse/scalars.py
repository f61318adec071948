"""The single values of a job spec: text, whole numbers, durations, names out of an enum.

Each kind is a frozen object that pydantic finds in ``Annotated`` metadata. It reads what a user wrote, says what is
wrong with it and how to put it right, and describes itself in the JSON Schema. Reading a value that was read
already gives it back unchanged.
"""

from __future__ import annotations

import difflib
import enum
import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from holdfast._base.config import duration_s

_SHOWN = 60
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,19}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class Refused(ValueError):
    """A value breaks the rules of its field. ``problem`` and ``fix`` go into the field's violation."""

    def __init__(self, problem: str, fix: str = "") -> None:
        super().__init__(f"{problem} ({fix})" if fix else problem)
        self.problem = problem
        self.fix = fix


@dataclass(frozen=True, slots=True)
class Unquoted:
    """A YAML scalar without quotes that YAML takes for something else than text."""

    value: bool | int | float | str | None
    """As read; text where YAML's reading (octal, base 60) is hardly what was meant."""
    written: str
    kind: str
    """``number``, ``boolean`` or ``null``."""


def plain(value: object) -> object:
    """The value behind an ``Unquoted``; anything else as it is."""
    return value.value if isinstance(value, Unquoted) else value


def shown(value: object) -> str:
    """``value`` in a few words, for a message. Never long, whatever was given."""
    match value:
        case Unquoted():
            return shortened(value.written) if value.written else "nothing"
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() if abs(value) >= 10**20:
            return "a huge number"
        case int() | float():
            return str(value)
        case str():
            return json.dumps(shortened(value), ensure_ascii=not value.isprintable())
        case list() | tuple():
            return "a list"
        case dict():
            return "a mapping"
        case _:
            return shortened(type(value).__name__)


def shortened(text: str) -> str:
    """The first characters of a long text."""
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


class Scalar:
    """What the kinds of values share: how pydantic calls them."""

    def read(self, value: object) -> Any:
        """The value in its one internal form. Raises ``Refused``."""
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        """The JSON Schema of what ``read`` accepts."""
        raise NotImplementedError

    def print(self, value: Any) -> Any:
        """The JSON form of a value that was read."""
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self.read, serialization=core_schema.plain_serializer_function_ser_schema(self.print, when_used="json")
        )


def scalar_in(metadata: Iterable[object]) -> Scalar:
    """The scalar among a field's or an annotation's metadata."""
    return next(item for item in metadata if isinstance(item, Scalar))


@dataclass(frozen=True, slots=True)
class Text(Scalar):
    """Unicode text without NUL. Numbers and booleans are never taken for text: ``yes`` would become ``true``."""

    max_chars: int | None = None
    max_bytes: int | None = None
    empty: bool = True
    control: bool = False
    """Whether control characters (line ends, escapes) may stand in it."""
    pattern: str = ""
    must: str = ""
    """What ``pattern`` asks for, in words that follow "must"."""

    def read(self, value: object) -> str:
        if not isinstance(value, str):
            raise _not_text(value)
        if not self.empty and not value.strip():
            raise Refused("must not be empty")
        if "\0" in value:
            raise Refused("contains a NUL byte, which no program can be given", "remove it")
        try:
            size = len(value.encode())
        except UnicodeEncodeError:
            raise Refused("is not valid Unicode: it holds half of a surrogate pair", "write it in UTF-8") from None
        if self.max_chars is not None and len(value) > self.max_chars:
            raise Refused(f"has {len(value):,} characters; at most {self.max_chars:,} are allowed")
        if self.max_bytes is not None and size > self.max_bytes:
            raise Refused(f"has {size:,} bytes; at most {self.max_bytes:,} are allowed", "pass long text in a file")
        if not self.control and _CONTROL.search(value):
            raise Refused("contains a control character", "use printable characters on one line")
        if self.pattern and value and not re.fullmatch(self.pattern, value):
            raise Refused(f"must {self.must}, not {shown(value)}")
        return value

    def describe(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "string"}
        if not self.empty:
            schema["minLength"] = 1
        if self.max_chars is not None:
            schema["maxLength"] = self.max_chars
        if self.pattern:
            schema["pattern"] = f"^{self.pattern}$" if not self.empty else f"^({self.pattern})?$"
        return schema


def _not_text(value: object) -> Refused:
    if isinstance(value, Unquoted):
        if not value.written:
            return Refused("must be text, but nothing stands there", 'write "" for empty text')
        return Refused(
            f"must be text, but YAML reads {shown(value)} without quotes as a {value.kind}",
            f"put it in quotes: {json.dumps(shortened(value.written), ensure_ascii=False)}",
        )
    if value is None:
        return Refused("must be text, not null", 'write "" for empty text')
    if isinstance(value, (bool, int, float)):
        return Refused(f"must be text, not {shown(value)}", f'put it in quotes: "{shown(value)}"')
    return Refused(f"must be text, not {shown(value)}")


@dataclass(frozen=True, slots=True)
class Whole(Scalar):
    """A whole number from ``low`` to ``high``; as JSON has it for int64, also in a string. ``true`` is not 1."""

    low: int
    high: int
    bits: int = 32

    def read(self, value: object) -> int:
        number = plain(value)
        if isinstance(number, str) and _WHOLE.fullmatch(number):
            number = int(number)
        if isinstance(number, float) and number.is_integer() and abs(number) < 2**53:
            number = int(number)
        if not isinstance(number, int) or isinstance(number, bool):
            raise Refused(f"must be a whole number, not {shown(value)}", f"from {self.low:,} to {self.high:,}")
        if number < self.low:
            raise Refused(f"must be at least {self.low:,}, not {shown(value)}")
        if number > self.high:
            raise Refused(f"must be at most {self.high:,}, not {shown(value)}")
        return number

    def describe(self) -> dict[str, Any]:
        number = {"type": "integer", "minimum": self.low, "maximum": self.high}
        return {"anyOf": [number, {"type": "string", "pattern": "^(0|[1-9][0-9]*)$"}]}


@dataclass(frozen=True, slots=True)
class Flag(Scalar):
    """True or false; never a word in quotes, which a program could read either way."""

    def read(self, value: object) -> bool:
        flag = plain(value)
        if isinstance(flag, bool):
            return flag
        quoted = isinstance(value, str) and value.lower() in ("true", "false")
        fix = f"write {str(value).lower()} without quotes" if quoted else ""
        raise Refused(f"must be true or false, not {shown(value)}", fix)

    def describe(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Seconds(Scalar):
    """A duration: seconds, or text such as ``90s``, ``15m``, ``2h``. Kept as seconds, printed as ``"90s"``."""

    high: float
    zero: bool = True
    optional: bool = False
    """Whether None may stand for "unset" where no number is its default."""

    def read(self, value: object) -> float | None:
        if value is None and self.optional:
            return None
        given = plain(value)
        try:
            # Nanoseconds are what a protobuf Duration holds; rounding here keeps every way round exact.
            seconds = round(duration_s(given), 9)
        except (ValueError, OverflowError):
            raise Refused(
                f"must be a duration, not {shown(value)}", 'write seconds, or "90s", "15m", "2h"'
            ) from None
        if not math.isfinite(seconds) or seconds < 0:
            raise Refused(f"must be a duration of 0 or more, not {shown(value)}")
        if seconds == 0 and not self.zero:
            raise Refused("must be longer than 0 seconds")
        if seconds > self.high:
            raise Refused(f"must be at most {written_duration(self.high)}, not {shown(value)}")
        return seconds

    def print(self, value: float | None) -> str | None:
        return None if value is None else f"{value:.9f}".rstrip("0").rstrip(".") + "s"

    def describe(self) -> dict[str, Any]:
        bound = "minimum" if self.zero else "exclusiveMinimum"
        number = {"type": "number", bound: 0, "maximum": self.high}
        return {"anyOf": [{"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(ms|s|m|h|d)?$"}, number]}


def written_duration(seconds: float) -> str:
    """Whole seconds as a person writes them: ``3600`` is ``1 h``."""
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= (2 if unit == "days" else 1) * length and seconds % length == 0:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:g} s"


@dataclass(frozen=True, slots=True)
class Choice(Scalar):
    """A member of an enum whose values are the names in the contract; the prefix may be left out."""

    of: type[enum.Enum]
    prefix: str
    default: enum.Enum | None
    """What ``…_UNSPECIFIED`` stands for; None where that is "unset"."""

    def read(self, value: object) -> enum.Enum | None:
        if isinstance(value, self.of) or (value is None and self.default is None):
            return value
        name = value.removeprefix(self.prefix) if isinstance(value, str) else ""
        if name == "UNSPECIFIED":
            return self.default
        found = self.of.__members__.get(name)
        if found is None:
            near = difflib.get_close_matches(name[:60].upper().removeprefix(self.prefix), self.of.__members__, n=1)
            hint = f"did you mean {near[0]}?" if near else ""
            raise Refused(f"must be {' or '.join(self.of.__members__)}, not {shown(value)}", hint)
        return found

    def print(self, value: enum.Enum | None) -> Any:
        return value.value if value is not None else None

    def describe(self) -> dict[str, Any]:
        return {"enum": [*(member.value for member in self.of), *self.of.__members__]}


@dataclass(frozen=True, slots=True)
class Many:
    """How many entries a list or mapping may have. ``fix`` helps where there are too many."""

    low: int
    high: int
    fix: str = ""

    def check(self, count: int) -> None:
        """Raises ``Refused`` for too few or too many."""
        if count < self.low:
            raise Refused("must not be empty" if self.low == 1 else f"needs at least {self.low} entries")
        if count > self.high:
            raise Refused(f"has {count:,} entries; at most {self.high:,} are allowed", self.fix)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def _checked(self, value: Any) -> Any:
        self.check(len(value))
        return value
