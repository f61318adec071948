"""A list of values that the agent keeps for its next run in this boot: of another boot it says nothing.

So it need not survive power loss, only the agent. A disk that refuses costs the agent's memory of them, not the agent.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Generic, TypeVar

from holdfast._base.codec import Format, from_plain, to_plain
from holdfast._daemon import log
from holdfast_agent.shim import processes

_KEPT = Format(skip_unknown=True)
T = TypeVar("T")


class BootFile(Generic[T]):
    """The file ``path``, ``{"boot_id", NAME: [values of kind]}``."""

    def __init__(self, path: Path, name: str, kind: type[T]) -> None:
        self._path, self._name, self._kind = path, name, kind

    def load(self) -> tuple[T, ...]:
        """Values that earlier runs of the agent have kept since the last boot."""
        try:
            said = json.loads(self._path.read_text())
            if said["boot_id"] == processes.boot_id():
                kept: tuple[T, ...] = from_plain(tuple[self._kind, ...], said[self._name], _KEPT)  # type: ignore[name-defined]
                return kept
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("file.corrupt", path=str(self._path), error=repr(error))
        return ()

    def save(self, values: Iterable[T]) -> None:
        """Replace what is kept."""
        fresh = self._path.with_suffix(".new")
        kept = {"boot_id": processes.boot_id(), self._name: [to_plain(each, _KEPT) for each in values]}
        try:
            fresh.write_text(json.dumps(kept) + "\n")
            fresh.replace(self._path)
        except OSError as error:
            log.warning("file.unwritten", path=str(self._path), error=str(error))
