"""Packaged code in a job spec."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from holdfast.spec.models.base import Model
from holdfast.spec.models.scalars import Many, Text

Digest = Annotated[
    str,
    Text(max_chars=64, pattern="[0-9a-f]{64}|", must="be a SHA-256 of 64 lower-case hexadecimal digits"),
]
Requirement = Annotated[str, Text(max_chars=4096, empty=False)]
Package = Annotated[str, Text(max_chars=4096, empty=False)]


class PackagedCode(Model):
    """A folder that the user has sent along, and what has to be installed for it."""

    bundle: Digest = ""
    """SHA-256 of an uploaded folder, written by `holdfast submit`. Workers start in a copy of it."""
    requirements: Annotated[tuple[Requirement, ...], Many(0, 1000)] = Field(default=(), examples=[["numpy==2.1.0"]])
    """Lines of a requirements file, at most 1,000."""
    packages: Annotated[tuple[Package, ...], Many(0, 100)] = ()
    """Wheels and source distributions: http(s):// or file:// URIs, or paths within the bundle. At most 100."""
