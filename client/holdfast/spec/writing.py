"""Job files and specs as plain JSON data, and what of a spec no cluster runs yet."""

from __future__ import annotations

from typing import Any

from pydantic.alias_generators import to_camel

from holdfast.errors import Violation
from holdfast.spec.models import JobFile, JobSpec


def to_dict(job: JobFile | JobSpec) -> dict[str, Any]:
    """What the user set, in camelCase: whole numbers as numbers, durations as ``"3600s"``; defaults are left out.

    ``parse`` makes an equal job of it again.
    """
    return job.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)


def unavailable_tasks(job: JobSpec) -> list[Violation]:
    """One violation for each pool whose kind of task no cluster runs yet; for ``TaskKindUnavailable`` at submit."""
    found = []
    for index, pool in enumerate(job.worker_pool_specs):
        if pool.container_spec is not None:
            path = f"jobSpec.workerPoolSpecs[{index}].{to_camel('container_spec')}"
            found.append(Violation(path, "this kind of task does not run yet", "use processSpec"))
    return found
