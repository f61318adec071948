"""An oracle of topology: by brute force, on plain values, and with nothing of Holdfast's."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence


class Fleet:
    """Hosts by name: how many equal workers fit on each, and its labels by level."""

    def __init__(self, room: dict[str, int], labels: dict[str, dict[str, str]], levels: Sequence[str]) -> None:
        self.room, self.labels, self.levels = room, labels, levels

    def domain(self, host: str, level: str) -> tuple[str, ...] | None:
        """The host's domain of a level, with those around it; None where a label is missing."""
        wanted = self.levels[: self.levels.index(level) + 1]
        found = tuple(self.labels[host].get(each, "") for each in wanted)
        return found if all(found) else None

    def domains(self, level: str) -> dict[tuple[str, ...], list[str]]:
        found: dict[tuple[str, ...], list[str]] = {}
        for host in self.room:
            if (domain := self.domain(host, level)) is not None:
                found.setdefault(domain, []).append(host)
        return found

    def ways(self, workers: int, hosts: list[str]) -> Iterator[tuple[str, ...]]:
        """Every way to put so many workers on hosts, each worker by itself."""
        for way in itertools.product(hosts, repeat=workers):
            if all(way.count(host) <= self.room[host] for host in set(way)):
                yield way

    def holds(self, way: Sequence[str], within: str, size: int = 0, segment: str = "") -> bool:
        """Whether all are in one domain of ``within``, and each segment in one of its level."""
        if within and len({self.domain(host, within) for host in way} | {None}) != 2:
            return False
        for start in range(0, len(way), size) if size else ():
            found = {self.domain(host, segment) for host in way[start : start + size]}
            if len(found) != 1 or None in found:
                return False
        return not within or None not in {self.domain(host, within) for host in way}

    def fits(
        self, workers: int, within: str, size: int = 0, segment: str = "", stays: dict[int, str] | None = None
    ) -> bool:
        """Whether there is any way; ``stays`` says on which hosts some workers are already."""
        stays = stays or {}
        missing = [index for index in range(workers) if index not in stays]
        for way in self.ways(len(missing), list(self.room)):
            whole = stays | dict(zip(missing, way, strict=True))
            if self.holds([whole[index] for index in range(workers)], within, size, segment):
                return True
        return False
