"""Job files and specs as plain JSON data."""

from __future__ import annotations

from typing import Any

from holdfast.spec.models.job import JobFile, JobSpec


def to_dict(job: JobFile | JobSpec) -> dict[str, Any]:
    """What the user set, in camelCase: whole numbers as numbers, durations as ``"3600s"``; defaults are left out.

    ``parse`` makes an equal job of it again.
    """
    return job.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
