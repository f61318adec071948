"""What a rule that joins several fields says when a job breaks it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Fields = Mapping[str, Any]
Place = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Broken:
    """A rule that the spec breaks, at a place counted from the spec."""

    place: Place
    problem: str
    fix: str = ""
