"""Locality: how near to each other the hosts of a gang are to be, by labels that name the parts of the network."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from holdfast._base.dataclass import dataclass

Domain = tuple[str, ...]
"""The values of a host's labels from the outermost level on, such as ``("pod-1", "rack-7")``: names of racks recur."""


@dataclass(frozen=True)
class Segments:
    """Workers that follow each other, ``size`` at a time, each such segment within one domain of a level."""

    size: int
    level: str


@dataclass(frozen=True)
class Locality:
    """How near a gang's workers are placed. ``levels`` are keys of labels, from the outermost to the innermost."""

    levels: tuple[str, ...]
    within: str
    """The level of which one domain has room for all, if any has."""
    required: bool = False
    """They wait until one has. Without, they take a domain of the next level outwards, at last any hosts."""
    segments: Segments | None = None

    @cached_property
    def depth(self) -> int:
        """How many levels name a domain of ``within``."""
        return self.levels.index(self.within) + 1

    @cached_property
    def segment_depth(self) -> int:
        """The same for a segment's domain."""
        return self.levels.index(self.segments.level) + 1 if self.segments is not None else 0

    @property
    def strict_depth(self) -> int:
        """How many labels a host must have to be taken at all."""
        return max(self.depth if self.required else 0, self.segment_depth)

    @property
    def key(self) -> str:
        """Equal where what is strict is equal; empty where nothing is."""
        strict = self.levels[: self.strict_depth]
        return repr((strict, self.depth if self.required else 0, self.segments)) if strict else ""

    def domain_of(self, labels: Mapping[str, str], depth: int) -> Domain:
        """The domain of a host at a depth, cut short at the first level for which it has no label."""
        found: list[str] = []
        for level in self.levels[:depth]:
            value = labels.get(level)
            if not value:
                break
            found.append(value)
        return tuple(found)

    def admits(self, labels: Mapping[str, str]) -> bool:
        """Whether a host with these labels may be taken: it has those by which nearness is required."""
        return all(labels.get(level) for level in self.levels[: self.strict_depth])

    def in_words(self) -> str:
        """The requirement, such as ``within one rack, each 4 workers within one nvlink``; empty where nothing is."""
        asked = [f"within one {self.within}"] if self.required else []
        if self.segments is not None:
            asked.append(f"each {self.segments.size} workers within one {self.segments.level}")
        return ", ".join(asked)
