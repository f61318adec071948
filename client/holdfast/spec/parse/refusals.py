"""Violations from pydantic's errors: the path as the user spelled it, a sentence, and a guess at what was meant."""

from __future__ import annotations

import difflib
import functools
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails, ValidationError

from holdfast.errors import Violation
from holdfast.spec.compat.ignored_fields import KEPT
from holdfast.spec.models.base import Model, model_in
from holdfast.spec.models.job import JobFile
from holdfast.spec.models.scalars import REFUSED, REPEATED
from holdfast.spec.wording import Place, shown

MAX_VIOLATIONS = 50
"""More are counted, not listed."""

FOREIGN = frozenset(
    {
        "encryptionSpec",
        "lustreMounts",
        "protectedArtifactLocationId",
        "reservationAffinity",
        "tpuTopology",
    }
)
"""Fields of managed training services that have no counterpart here."""

_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_KEY = "[key]"
"""How pydantic ends the place of a mapping's key that is refused."""
_UNKNOWN, _REPEATED, _VALUE, _REPEATED_NAME, _MISSING = range(5)
"""In which order the errors of one mapping are listed."""


class Reading:
    """What is wrong with one job file. Places are counted from the job file; a list is cut after ``at_most``."""

    def __init__(self, data: object, at_most: int = MAX_VIOLATIONS) -> None:
        self.count = 0
        self.bare = False
        """Whether the data is the job spec alone."""
        self._data = data
        self._at_most = at_most
        self._listed: list[Violation] = []

    def refuse(self, place: Place, problem: str, fix: str = "") -> None:
        """Adds a complaint about a place."""
        self.count += 1
        if len(self._listed) < self._at_most:
            self._listed.append(Violation(self.path(place), problem, fix))

    def take(self, errors: list[ErrorDetails], model: type[Model], data: object) -> None:
        """Adds the errors of reading ``data`` as ``model``, in the order of the data."""
        sites = _Sites(data, model)
        errors = sorted(errors, key=sites.order)
        # Guessing is slow; nobody reads a guess beyond what is listed.
        listed = max(0, self._at_most - self.count)
        for error in errors[:listed]:
            self.refuse(*sites.in_words(error))
        self.count += len(errors[listed:])

    def path(self, place: Place) -> str:
        """``jobSpec.workerPoolSpecs[0].env``: names as the user spelled them, camelCase where they did not."""
        text, here = "", self._data
        for step in place[1:] if self.bare and place[:1] == ("job_spec",) else place:
            if isinstance(step, str):
                step = step if isinstance(here, dict) and step in here else to_camel(step)
                if _BARE.fullmatch(step) and len(step) <= 60:
                    text += f".{step}" if text else step
                else:
                    text += f"[{shown(step)}]"
            else:
                text += f"[{step}]"
            here = _inside(here, step)
        return text

    def violations(self) -> list[Violation]:
        """All of them, or as many as are listed, of which the last counts the rest."""
        if self.count <= self._at_most:
            return self._listed
        return [*self._listed[: self._at_most - 1], Violation("", f"and {self.count - self._at_most + 1:,} more")]


class _Holder(NamedTuple):
    """What has a value: a model's fields, a list, or a mapping of names to text."""

    model: type[Model] | None
    data: Any
    order: tuple[tuple[int, int], ...]
    """Sorts it among others as the data does."""
    positions: Mapping[Any, int]
    """Of the keys; nothing for a list."""

    def place(self, step: str | int) -> int:
        """Where a key or an index is among others; missing keys come last."""
        if isinstance(step, int) and not self.positions:
            return step
        return self.positions.get(step, len(self.positions))


class _Sites:
    """Where errors are in the data and in the models."""

    def __init__(self, data: object, model: type[Model]) -> None:
        self._known: dict[Place, _Holder] = {(): _Holder(model, data, (), _positions(data))}

    def order(self, error: ErrorDetails) -> tuple[tuple[int, int], ...]:
        """Sorts errors as their places are in the data."""
        if not error["loc"]:
            return ()
        *outer, last = error["loc"]
        holder = self._holder(tuple(outer))
        position = holder.place(last)
        match error["type"]:
            case "extra_forbidden" | "invalid_key":
                return (*holder.order, (_UNKNOWN, position))
            case "repeated_key":
                return (*holder.order, (_REPEATED if holder.model else _REPEATED_NAME, position))
            case "missing":
                return (*holder.order, (_MISSING, list(_fields(holder.model)).index(str(last))))
            case _:
                return (*holder.order, (_VALUE, position))

    def _holder(self, place: Place) -> _Holder:
        if place not in self._known:
            *outer, last = place
            around = self._holder(tuple(outer))
            model, data = around.model, _inside(around.data, last)
            if isinstance(last, str) and model is not None:
                model = model_in(model.model_fields[_fields(model)[last]].annotation)
            order = (*around.order, (_VALUE, around.place(last)))
            self._known[place] = _Holder(model, data, order, _positions(data))
        return self._known[place]

    def in_words(self, error: ErrorDetails) -> tuple[Place, str, str]:
        """Place, problem and fix."""
        loc, value = error["loc"], error["input"]
        match error["type"]:
            case "value_error":
                refused = error["ctx"]["error"]
                return loc[:-2] if _is_key(error) else loc, refused.problem, refused.fix
            case "missing":
                return loc, "is missing", _example(self._holder(loc[:-1]).model, str(loc[-1]))
            case "repeated_key":
                return loc, "is given twice", "keep one of them"
            case "invalid_key":
                return loc[:-1], f"has {shown(value)} for a field's name; names are text", ""
            case "extra_forbidden":
                return self._unknown(error)
            case _:
                return loc, f"must be a mapping of fields to values, not {shown(value)}", ""

    def _unknown(self, error: ErrorDetails) -> tuple[Place, str, str]:
        *outer, key = error["loc"]
        model, data, *_ = self._holder(tuple(outer))
        assert model is not None
        if (name := _fields(model).get(str(key))) is None:
            return error["loc"], "is no known field", guess(str(key), model)
        first, second = (each for each in data if _fields(model).get(each) == name)
        return (*outer, first), f"is given twice, as {first} and as {second}", "keep one of them"


def errors_of(error: ValidationError) -> list[ErrorDetails]:
    """pydantic's errors, each once and at the place of its own."""
    errors = error.errors(include_url=False)
    for each in errors:
        if each["type"] == "string_unicode":
            # A field's name with half of a surrogate pair; pydantic gives the place of the mapping around it.
            each["type"], each["loc"] = "extra_forbidden", (*each["loc"], each["input"])
    keys = {each["loc"][:-1] for each in errors if _is_key(each)}
    return [each for each in errors if each["loc"] not in keys]


def _is_key(error: ErrorDetails) -> bool:
    """Whether a mapping's key is wrong, not its value."""
    return error["loc"][-1:] == (_KEY,) and len(error["loc"]) > 2 and error["type"] == "value_error"


def masked(data: dict[str, Any], errors: list[ErrorDetails]) -> Any:
    """A copy of the data with REFUSED in place of each value that was refused, and without refused keys."""
    tree: dict[Any, Any] = {}
    for error in errors:
        *outer, last = error["loc"][:-1] if _is_key(error) else error["loc"]
        branch = tree
        for step in outer:
            branch = branch.setdefault(step, {})
        if _is_key(error) or error["type"] in ("extra_forbidden", "invalid_key"):
            branch[last] = None
        elif error["type"] != REPEATED:
            branch.setdefault(last, REFUSED)
    return _masked(data, tree)


def _masked(data: Any, tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    if isinstance(data, (list, tuple)):
        return [_masked(value, tree[index]) if index in tree else value for index, value in enumerate(data)]
    return {key: value for key, value in data.items() if key not in tree} | {
        key: _masked(data.get(key), branch) for key, branch in tree.items() if branch is not None
    }


def _positions(data: object) -> Mapping[Any, int]:
    return {key: index for index, key in enumerate(data)} if isinstance(data, dict) else {}


def _inside(holder: object, step: str | int) -> Any:
    """The value at a key or an index; None where there is none."""
    if isinstance(holder, dict):
        return holder.get(step)
    return holder[step] if isinstance(holder, (list, tuple)) and isinstance(step, int) else None


@functools.cache
def _fields(model: type[Model] | None) -> Mapping[str, str]:
    """Every accepted spelling of the model's fields, camelCase first, with the field's own name."""
    both = {to_camel(name): name for name in model.model_fields} if model is not None else {}
    return both | {name: name for name in both.values()}


def _example(model: type[Model] | None, key: str) -> str:
    """What to write where a field is missing."""
    assert model is not None
    examples = model.model_fields[_fields(model)[key]].examples
    return f"such as {to_camel(key)}: {json.dumps(examples[0])}" if examples else f"add {to_camel(key)}"


def guess(key: str, model: type[Model]) -> str:
    """What to do about a field that ``model`` does not have: did you mean this, or put it there."""
    camel = to_camel(key) if "_" in key else key
    own = [to_camel(name) for name in model.model_fields]
    elsewhere = _homes()
    if camel in elsewhere:
        return f"it belongs {elsewhere[camel]}"
    folded = {name.lower(): name for name in (*elsewhere, *own)}
    if near := difflib.get_close_matches(camel[:60].lower(), [n.lower() for n in own], n=1, cutoff=0.7):
        return f"did you mean {folded[near[0]]}?"
    if camel in FOREIGN:
        return "a field of managed services that has no counterpart here; remove it"
    if near := difflib.get_close_matches(camel[:60].lower(), [n.lower() for n in elsewhere], n=1, cutoff=0.8):
        return f"did you mean {folded[near[0]]}? It belongs {elsewhere[folded[near[0]]]}"
    return f"fields here: {', '.join(to_camel(name) for name in model.model_fields if name not in KEPT)}"


@functools.cache
def _homes() -> Mapping[str, str]:
    """Where each field of the job file belongs, in words; the first home of those that have several."""
    homes: dict[str, str] = {}

    def walk(model: type[Model], where: str) -> None:
        for name, field in model.model_fields.items():
            camel = to_camel(name)
            homes.setdefault(camel, f"in {where}" if where else "at the top, beside jobSpec")
            if (inner := model_in(field.annotation)) is not None:
                many = "[]" if getattr(field.annotation, "__origin__", None) is tuple else ""
                walk(inner, f"{where}.{camel}{many}" if where else f"{camel}{many}")

    walk(JobFile, "")
    return homes
