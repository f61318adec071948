"""A machine's disk: what was synced survives a power loss; of the rest, at each file, any prefix may."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from holdfast._session.reports import WorkerId


@dataclass
class File:
    """Records in order; the first ``durable`` of them are synced."""

    records: list[Any] = field(default_factory=list)
    durable: int = 0


@dataclass
class Disk:
    """Directories of places, and the agent's epoch file."""

    workers: dict[WorkerId, dict[str, File]] = field(default_factory=dict)
    removed: dict[WorkerId, dict[str, File]] = field(default_factory=dict)
    """Directories whose removal isn't durable yet."""
    epoch: int = 0
    unused: dict[str, int] = field(default_factory=dict)

    def append(self, key: WorkerId, name: str, *records: Any, sync: bool = False) -> None:
        """Add to a file, made where it isn't there."""
        file = self.workers.setdefault(key, {}).setdefault(name, File())
        file.records.extend(records)
        if sync:
            file.durable = len(file.records)
            self.removed.pop(key, None)  # the same journal of the file system holds both

    def read(self, key: WorkerId, name: str) -> list[Any]:
        """A file's records as every process sees them; none where there is no file."""
        file = self.workers.get(key, {}).get(name)
        return file.records if file is not None else []

    def synced(self, key: WorkerId, name: str) -> list[Any]:
        """Those that would survive a power loss now."""
        file = self.workers.get(key, {}).get(name)
        return file.records[: file.durable] if file is not None else []

    def remove(self, key: WorkerId) -> None:
        """Remove a place's directory; it may be back after a power loss."""
        gone = self.workers.pop(key, None)
        if gone is not None:
            self.removed[key] = gone

    def lose_power(self, dice: random.Random) -> None:
        """What was not synced is lost, or part of it isn't."""
        for key in list(self.removed):
            if dice.random() < 0.5:
                self.workers.setdefault(key, self.removed[key])
        self.removed.clear()
        for files in self.workers.values():
            for name in list(files):
                file = files[name]
                del file.records[dice.randint(file.durable, len(file.records)) :]
                file.durable = len(file.records)
                if not file.records:
                    del files[name]
