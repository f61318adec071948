"""The single values of a job spec: text, whole numbers, durations, names out of an enum; and how many of them.

Each kind is a frozen object that pydantic finds in ``Annotated`` metadata. It reads what a user wrote, says what is
wrong with it and how to put it right, and describes itself in the JSON Schema. Reading a value that was read
already gives it back unchanged.
"""

from __future__ import annotations

import difflib
import enum
import functools
import json
import math
import re
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import (
    BaseModel,
    GetCoreSchemaHandler,
    SerializationInfo,
    ValidationError,
    ValidatorFunctionWrapHandler,
)
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from holdfast._base.config import duration_s
from holdfast._base.dataclass import dataclass
from holdfast.spec.wording import Refused, Unquoted, plain, shortened, shown, written_duration

REFUSED: Any = enum.Enum("Refused", "REFUSED").REFUSED  # type: ignore[attr-defined]
"""Stands where a value was refused already, so that what is left can be read; it is read as None."""
PROTO = "proto"
"""Mode in which a model is dumped for protobuf's constructors."""
REPEATED = "repeated_key"
"""Type of pydantic's error for a key that stands twice in one mapping of a text."""

_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,19}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_UNSEEN = re.compile("[\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]")
"""Change the order of what is read, or make two names look alike. Words and emoji need joiners (U+200C, U+200D)."""


class Scalar:
    """Base of the kinds of values: how pydantic calls them."""

    def read(self, value: object) -> Any:
        """The value in its one internal form. Raises ``Refused``."""
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        """The JSON Schema of what ``read`` accepts."""
        raise NotImplementedError

    def _read(self, value: object) -> Any:
        return None if value is REFUSED else self.read(value)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._read)


class Written(Scalar):
    """A kind of value that JSON and protobuf have in another form."""

    def json(self, value: Any) -> Any:
        """The JSON form of a value that was read."""
        raise NotImplementedError

    def proto(self, value: Any) -> Any:
        """The form of a value that protobuf's constructors take."""
        return self.json(value)

    def _write(self, value: Any, info: SerializationInfo) -> Any:
        if value is None or info.mode == "python":
            return value
        return self.json(value) if info.mode == "json" else self.proto(value)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        written = core_schema.plain_serializer_function_ser_schema(self._write, info_arg=True)
        return core_schema.no_info_plain_validator_function(self._read, serialization=written)


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
        if not self.control and (unseen := _UNSEEN.search(value)):
            raise Refused(f"contains the invisible character U+{ord(unseen[0]):04X}", "remove it")
        if self.pattern and value and not re.fullmatch(self.pattern, value):
            raise Refused(f"must {self.must}, not {shown(value)}")
        return value

    def describe(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "string"}
        if not self.empty:
            schema["minLength"] = 1
        most = self.max_chars if self.max_chars is not None else self.max_bytes
        if most is not None:
            schema["maxLength"] = most
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
class Seconds(Written):
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

    def json(self, value: float) -> str:
        return f"{value:.9f}".rstrip("0").rstrip(".") + "s"

    def proto(self, value: float) -> dict[str, int]:
        whole, fraction = divmod(round(value * 1e9), 10**9)
        return {"seconds": whole, "nanos": fraction}

    def describe(self) -> dict[str, Any]:
        bound = "minimum" if self.zero else "exclusiveMinimum"
        number = {"type": "number", bound: 0, "maximum": self.high}
        return {"anyOf": [{"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(ms|s|m|h|d)?$"}, number]}


@dataclass(frozen=True, slots=True)
class Choice(Written):
    """A member of an enum whose values are the names in the contract; the prefix may be left out."""

    of: type[enum.Enum]
    prefix: str
    default: enum.Enum | None
    """What ``…_UNSPECIFIED`` stands for; None where that is "unset"."""

    def read(self, value: object) -> enum.Enum | None:
        if isinstance(value, self.of) or (value is None and self.default is None):
            return value
        written = value.written if isinstance(value, Unquoted) else value  # OFF is false to YAML
        name = written.removeprefix(self.prefix) if isinstance(written, str) else ""
        if self._unspecified(name):
            return self.default
        found = self.of.__members__.get(name)
        if found is None:
            near = difflib.get_close_matches(name[:60].upper().removeprefix(self.prefix), self.of.__members__, n=1)
            hint = f"did you mean {near[0]}?" if near else ""
            raise Refused(f"must be {' or '.join(self.of.__members__)}, not {shown(value)}", hint)
        return found

    def _unspecified(self, name: str) -> bool:
        """Whether it names the enum's default, with the last words of the prefix or without any."""
        words = name.removesuffix("UNSPECIFIED")
        return words != name and f"_{self.prefix}".endswith(f"_{words}")

    def json(self, value: enum.Enum) -> Any:
        return value.value

    def describe(self) -> dict[str, Any]:
        return {"enum": [*(member.value for member in self.of), *self.of.__members__]}


@dataclass(frozen=True, slots=True)
class Many:
    """How many entries a list or mapping may have. ``fix`` helps where there are too many."""

    low: int
    high: int
    fix: str = ""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        item = typing.get_args(source)[0]
        of_models = isinstance(item, type) and issubclass(item, BaseModel)
        read = self._mapping if typing.get_origin(source) is dict else functools.partial(self._list, of_models)
        return core_schema.no_info_wrap_validator_function(read, handler(source))

    def _list(self, of_models: bool, value: object, handler: ValidatorFunctionWrapHandler) -> Any:
        if value is REFUSED:
            return None
        if not isinstance(value, (list, tuple)):
            raise Refused(f"must be a list, not {shown(value)}", _as_list(of_models, value))
        self._count(len(value))
        read = handler(value)
        if of_models or None not in read:
            return read
        # None is a name for "unset", unless the item was refused.
        return None if REFUSED in value else tuple(item for item in read if item is not None)

    def _mapping(self, value: object, handler: ValidatorFunctionWrapHandler) -> Any:
        if value is REFUSED:
            return None
        if not isinstance(value, Mapping):
            raise Refused(f"must be a mapping of names to text, not {shown(value)}")
        self._count(len(value))
        return read_once(value, value, handler)

    def _count(self, count: int) -> None:
        if count < self.low:
            raise Refused("must not be empty" if self.low == 1 else f"needs at least {self.low} entries")
        if count > self.high:
            raise Refused(f"has {count:,} entries; at most {self.high:,} are allowed", self.fix)


def _as_list(of_models: bool, value: object) -> str:
    """How to turn a lone value into the list that was asked for."""
    if of_models:
        return "start each entry with a dash in YAML, or put it in [ ]"
    if isinstance(value, str) and value:
        return f"such as {json.dumps(value[:60].split(), ensure_ascii=not value.isprintable())}"
    return ""


def read_once(written: object, value: object, handler: ValidatorFunctionWrapHandler) -> Any:
    """Return ``handler(value)``. Keys that are repeated in ``written`` are errors beside the handler's own."""
    repeated = getattr(written, "repeated", None)
    if not repeated:
        return handler(value)
    found: list[InitErrorDetails] = [_error(REPEATED, (key,)) for key in repeated]
    try:
        handler(value)
    except ValidationError as error:
        found += (_error(each["type"], each["loc"], each["input"], each.get("ctx")) for each in error.errors())
    raise ValidationError.from_exception_data("repeated", found)


def _error(
    kind: str, loc: tuple[str | int, ...], value: object = None, ctx: dict[str, Any] | None = None
) -> InitErrorDetails:
    return {"type": PydanticCustomError(kind, "{kind}", {"kind": kind, **(ctx or {})}), "loc": loc, "input": value}
