"""Violations from pydantic's errors: the path as the user spelled it, a sentence, and a guess at what was meant."""

from __future__ import annotations

import difflib
import functools
import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

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
                step = step if isinstance(here, Mapping) and step in here else to_camel(step)
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


class _Sites:
    """Where errors are in the data and in the models."""

    def __init__(self, data: object, model: type[Model]) -> None:
        self._data = data
        self._model = model
        self._positions: dict[int, dict[Any, int]] = {}

    def order(self, error: ErrorDetails) -> list[tuple[int, int]]:
        """Sorts errors as their places are in the data."""
        here, order = self._data, []
        for step in error["loc"]:
            order.append((_VALUE, self._position(here, step)))
            here = _inside(here, step)
        match error["type"]:
            case "extra_forbidden" | "invalid_key":
                order[-1] = (_UNKNOWN, order[-1][1])
            case "repeated_key":
                order[-1] = (_REPEATED if self._holder(error)[0] else _REPEATED_NAME, order[-1][1])
            case "missing":
                model, _ = self._holder(error)
                order[-1] = (_MISSING, list(_fields(model)).index(str(error["loc"][-1])))
        return order

    def _position(self, here: object, step: str | int) -> int:
        if not isinstance(here, Mapping):
            return step if isinstance(step, int) else 0
        if id(here) not in self._positions:
            self._positions[id(here)] = {key: index for index, key in enumerate(here)}
        return self._positions[id(here)].get(step, len(here))

    def _holder(self, error: ErrorDetails) -> tuple[type[Model] | None, Any]:
        """What has the value: its model (None for a mapping of names to text), and the mapping in the data."""
        model: type[Model] | None = self._model
        here = self._data
        for step in error["loc"][:-1]:
            here = _inside(here, step)
            if isinstance(step, str) and model is not None:
                model = model_in(model.model_fields[_fields(model)[step]].annotation)
        return model, here

    def in_words(self, error: ErrorDetails) -> tuple[Place, str, str]:
        """Place, problem and fix."""
        loc, value = error["loc"], error["input"]
        match error["type"]:
            case "value_error":
                refused = error["ctx"]["error"]
                return loc[:-2] if is_key(error) else loc, refused.problem, refused.fix
            case "missing":
                model, _ = self._holder(error)
                assert model is not None
                return loc, "is missing", _example(model, str(loc[-1]))
            case "repeated_key":
                return loc, "is given twice", "keep one of them"
            case "invalid_key":
                return loc[:-1], f"has {shown(value)} for a field's name; names are text", ""
            case "extra_forbidden":
                return self._unknown(error)
            case _:
                return loc, f"must be a mapping of fields to values, not {shown(value)}", ""

    def _unknown(self, error: ErrorDetails) -> tuple[Place, str, str]:
        model, holder = self._holder(error)
        *outer, key = error["loc"]
        assert model is not None
        if (name := _fields(model).get(str(key))) is None:
            return error["loc"], "is no known field", guess(str(key), model)
        first, second = (each for each in holder if _fields(model).get(each) == name)
        return (*outer, first), f"is given twice, as {first} and as {second}", "keep one of them"


def is_key(error: ErrorDetails) -> bool:
    """Whether a mapping's key is wrong, not its value."""
    return error["type"] == "value_error" and error["loc"][-1:] == (_KEY,) and len(error["loc"]) > 2


def masked(data: dict[str, Any], errors: list[ErrorDetails]) -> Any:
    """A copy of the data with REFUSED in place of each value that was refused, and without refused keys."""
    tree: dict[Any, Any] = {}
    for error in errors:
        *outer, last = error["loc"][:-1] if is_key(error) else error["loc"]
        branch = tree
        for step in outer:
            branch = branch.setdefault(step, {})
        if is_key(error) or error["type"] in ("extra_forbidden", "invalid_key"):
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


def _inside(holder: object, step: str | int) -> Any:
    """The value at a key or an index; None where there is none."""
    if isinstance(holder, Mapping):
        return holder.get(step)
    return holder[step] if isinstance(holder, (list, tuple)) and isinstance(step, int) else None


@functools.cache
def _fields(model: type[Model] | None) -> Mapping[str, str]:
    """Every accepted spelling of the model's fields, camelCase first, with the field's own name."""
    both = {to_camel(name): name for name in model.model_fields} if model is not None else {}
    return both | {name: name for name in both.values()}


def _example(model: type[Model], key: str) -> str:
    """What to write where a field is missing."""
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
