"""The shape in which another service takes its jobs: ``kind`` and ``metadata`` beside the job's own fields.

``{"kind": "job", "metadata": {"name": …, "annotations": {…}}, "jobSpec": {…}}``: the name becomes the display name,
annotations and labels the job's.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from holdfast.spec.models.base import Model
from holdfast.spec.models.job import Annotations, DisplayName
from holdfast.spec.models.lifecycle import Labels
from holdfast.spec.models.scalars import Text


class Metadata(Model):
    """Metadata of a job in another service's format."""

    name: DisplayName = ""
    """The display name."""
    annotations: Annotations = Field(default_factory=dict)
    """As the job's own."""
    labels: Labels = Field(default_factory=dict)
    """As the job's own."""


class Envelope(Model):
    """The fields of another service around a job."""

    kind: Annotated[str, Text(max_chars=64, pattern="job", must='be "job"')] = "job"
    """Always "job"."""
    metadata: Metadata = Field(default_factory=Metadata)
    """Name, annotations and labels."""
