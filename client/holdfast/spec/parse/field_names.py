"""Field names as users write them: both spellings, paths for messages, and guesses at what was meant."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Mapping

from pydantic.alias_generators import to_camel

from holdfast.spec.compat.ignored_fields import KEPT
from holdfast.spec.models.base import Model, model_in
from holdfast.spec.models.job import JobFile
from holdfast.spec.parse.scalars import shown
from holdfast.spec.rules.violation import Place

_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")

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


@functools.cache
def names(model: type[Model]) -> Mapping[str, str]:
    """Every accepted spelling of the model's fields, with the field's own name."""
    both = {}
    for name in model.model_fields:
        both[to_camel(name)] = both[name] = name
    return both


def path(place: Place, spelled: Mapping[Place, str]) -> str:
    """``jobSpec.workerPoolSpecs[0].env``: names as the user spelled them, camelCase where they did not."""
    text = ""
    for depth, step in enumerate(place, start=1):
        if isinstance(step, int):
            text += f"[{step}]"
            continue
        key = spelled.get(place[:depth]) or to_camel(step)
        if _BARE.fullmatch(key) and len(key) <= 60:
            text += f".{key}" if text else key
        else:
            text += f"[{shown(key)}]"
    return text


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
