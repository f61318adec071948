"""Violations from pydantic's errors: the path as the user spelled it, a sentence, and a guess at what was meant."""

from __future__ import annotations

import difflib
import functools
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

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

FOREIGN = frozenset({"tpuTopology"})
"""Fields of managed training services that have no counterpart here, and ask for what no host can give."""

_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_KEY = "[key]"
"""How pydantic ends the place of a mapping's key that is refused."""
_GROUPS = {"extra_forbidden": "unknown", "invalid_key": "unknown", REPEATED: "repeated", "missing": "missing"}
"""Types of errors that are about a mapping's keys."""


class Reading:
    """The faults of one job file. Places are counted from the job file; a list is cut after ``at_most``."""

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
        # Guessing is slow, so no more is put into words than is listed.
        listed = max(0, min(len(errors), self._at_most - self.count))
        for error in itertools.islice(_in_order(errors, model, data), listed):
            self.refuse(*_in_words(*error))
        self.count += len(errors) - listed

    def path(self, place: Place) -> str:
        """``jobSpec.workerPoolSpecs[0].env``: names as the user spelled them, camelCase where they did not."""
        text = ""
        here: Any = self._data
        for step in place[1:] if self.bare and place[:1] == ("job_spec",) else place:
            if isinstance(step, str):
                step = step if isinstance(here, dict) and step in here else to_camel(step)
                if _BARE.fullmatch(step) and len(step) <= 60:
                    text += f".{step}" if text else step
                else:
                    text += f"[{shown(step)}]"
            else:
                text += f"[{step}]"
            if isinstance(here, dict):
                here = here.get(step)
            else:
                here = here[step] if isinstance(here, (list, tuple)) and isinstance(step, int) else None
        return text

    def violations(self) -> list[Violation]:
        """All faults found, at most ``at_most`` of them; the last one then counts the rest."""
        if self.count <= self._at_most:
            return self._listed
        return [*self._listed[: self._at_most - 1], Violation("", f"and {self.count - self._at_most + 1:,} more")]


def _in_order(
    errors: list[ErrorDetails], model: type[Model], data: object
) -> Iterator[tuple[ErrorDetails, type[Model] | None, Any]]:
    """The errors as they are found in the data, each with the model and the mapping that the value belongs to.

    In each mapping unknown and repeated fields come first, and missing ones last.
    """
    at: dict[tuple[str, Place], list[ErrorDetails]] = {}
    for error in errors:
        loc, kind = error["loc"], _GROUPS.get(error["type"], "")
        at.setdefault((kind, loc[:-1] if kind or _is_key(error) else loc), []).append(error)
    inner = {place[:depth] for _, place in at for depth in range(len(place) + 1)}

    def walk(model: type[Model] | None, data: Any, place: Place) -> Iterator[tuple[Any, type[Model] | None, Any]]:
        for kind in ("", "unknown", *(["repeated"] if model else [])):
            yield from ((error, model, data) for error in at.pop((kind, place), ()))
        for key, value in data.items() if isinstance(data, dict) else enumerate(data):
            if (here := (*place, key)) in inner:
                yield from walk(_inside(model, key), value if isinstance(value, (dict, list, tuple)) else (), here)
        for kind in ("repeated", "missing"):
            yield from ((error, model, data) for error in at.pop((kind, place), ()))

    yield from walk(model, data if isinstance(data, dict) else (), ())
    # Half of a surrogate pair in a name of a mapping is not found in the data again.
    yield from ((error, None, None) for rest in at.values() for error in rest)


def _inside(model: type[Model] | None, step: str | int) -> type[Model] | None:
    """The model of a field, or of an entry of a list of models."""
    if model is None or isinstance(step, int):
        return model
    name = _fields(model).get(step)
    return None if name is None else model_in(model.model_fields[name].annotation)


def _in_words(error: ErrorDetails, model: type[Model] | None, data: Any) -> tuple[Place, str, str]:
    """Place, problem and fix."""
    loc, value = error["loc"], error["input"]
    match error["type"]:
        case "value_error":
            refused = error["ctx"]["error"]
            if _is_key(error):
                return loc[:-2], f"the key {shown(loc[-2])} {refused.problem}", refused.fix
            return loc, refused.problem, refused.fix
        case "missing":
            return loc, "is missing", _example(model, str(loc[-1]))
        case "repeated_key":
            return loc, "is given twice", "keep one of them"
        case "invalid_key":
            return loc[:-1], f"has {shown(value)} for a field's name; names are text", ""
        case "extra_forbidden":
            return _unknown(loc, model, data)
        case _:
            return loc, f"must be a mapping of fields to values, not {shown(value)}", ""


def _unknown(loc: Place, model: type[Model] | None, data: Any) -> tuple[Place, str, str]:
    assert model is not None
    *outer, key = loc
    if (name := _fields(model).get(str(key))) is None:
        return loc, "is no known field", guess(str(key), model)
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


@functools.cache
def _fields(model: type[Model] | None) -> Mapping[str, str]:
    """Every accepted spelling of the model's fields, camelCase first, with the field's own name."""
    both = {to_camel(name): name for name in model.model_fields} if model is not None else {}
    return both | {name: name for name in both.values()}


def _example(model: type[Model] | None, key: str) -> str:
    """Advice on a missing field: an example where the model has one."""
    assert model is not None
    examples = model.model_fields[_fields(model)[key]].examples
    return f"such as {to_camel(key)}: {json.dumps(examples[0])}" if examples else f"add {to_camel(key)}"


def guess(key: str, model: type[Model]) -> str:
    """Advice on a field that ``model`` does not have: did you mean this, or put it there."""
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
    """Each field of the job file and where it belongs, in words; the first place of those that have several."""
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
