"""A value that the agent keeps for its next run in this boot: of another boot it says nothing.

So it need not survive power loss, only the agent.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Generic, TypeVar

from holdfast._base.codec import Format, from_plain, to_plain
from holdfast._daemon import log
from holdfast_agent.shim import processes

_KEPT = Format(skip_unknown=True)
T = TypeVar("T")


class BootFile(Generic[T]):
    """The file ``path``, ``{"boot_id", NAME: value}``; ``none`` stands for a file that isn't there."""

    def __init__(self, path: Path, name: str, kind: type[T], none: T) -> None:
        self._path, self._name, self._kind, self._none = path, name, kind, none

    def load(self) -> T:
        """The value that earlier runs of the agent have kept since the last boot."""
        try:
            said = json.loads(self._path.read_text())
            if said["boot_id"] == processes.boot_id():
                return from_plain(self._kind, said[self._name], _KEPT)
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("file.corrupt", path=str(self._path), error=repr(error))
        return self._none

    def save(self, value: T) -> None:
        """Replace what is kept. Raises ``OSError``."""
        fresh = self._path.with_suffix(".new")
        kept = {"boot_id": processes.boot_id(), self._name: to_plain(value, _KEPT)}
        fresh.write_text(json.dumps(kept) + "\n")
        fresh.replace(self._path)

    def try_to_save(self, value: T) -> None:
        """The same; a disk that refuses costs the agent's memory of it, not the agent."""
        try:
            self.save(value)
        except OSError as error:
            log.warning("file.unwritten", path=str(self._path), error=str(error))
