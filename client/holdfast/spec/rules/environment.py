"""Variables that a job file can't set, because Holdfast sets them for each rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast._base.job_file.rank_variables import OUTPUT, purpose_of
from holdfast._base.job_file.secret_names import looks_secret
from holdfast._base.secret import HIDDEN
from holdfast.spec.wording import Broken, Fields

_GPU_ORDER = ("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
"""What it is set to anyway."""


def broken(task: Fields, writes_output: bool) -> Iterator[Broken]:
    """Variables of a task that are not the user's, at places counted from the task."""
    for field in ("env", "secret_env"):
        for index, variable in enumerate(task.get(field) or ()):
            yield from _one(variable or {}, (field, index, "name"), writes_output)


def _one(variable: Fields, place: tuple[str | int, ...], writes_output: bool) -> Iterator[Broken]:
    name: Any = variable.get("name") or ""
    if variable.get("value") == HIDDEN and looks_secret(str(name)):
        fix = "write the value, or name a secret in secretEnv"
        yield Broken((*place[:-1], "value"), f"{name} has no value but {HIDDEN}, as jobs are shown", fix)
    purpose = purpose_of(name) or (OUTPUT.get(name, "") if writes_output else "")
    if not purpose or (name, variable.get("value")) == _GPU_ORDER:
        return
    yield Broken(place, f"{name} {purpose}; Holdfast sets it", _fix(name))


def _fix(name: str) -> str:
    if name == "CUDA_VISIBLE_DEVICES":
        return "remove it, and ask for GPUs with acceleratorCount: the program sees those alone"
    return "remove it, or give a value of your own another name"
