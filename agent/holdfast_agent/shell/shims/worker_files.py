"""The files of each worker: the shim's journals, and the agent's few notes beside them.

``attempts`` holds lines "GENERATION ATTEMPT" (from that generation on), and "acked GENERATION RANK" for exits that need
not be sent again: one file for both, since most jobs are over before either has a second line. ``freed`` has the newest
generation whose GPUs were proven free, ``closed`` the newest whose epilog has ended; ``hooks`` as JSON whose worker it
is. Losing the end of any is harmless: an exit is sent once more, or carries the attempt before;
a reboot frees GPUs; an epilog runs twice.
"""

from __future__ import annotations

import binascii
import errno
import json
import os
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from holdfast._base.dataclass import dataclass
from holdfast._base.durable import sync
from holdfast._base.failpoints import hit
from holdfast._daemon import log
from holdfast._session.reports import Exit, ExitReason, WorkerId
from holdfast.errors import StoreError
from holdfast_agent.core.launch.environment import HostFacts, log_paths
from holdfast_agent.core.worker.events import Journal
from holdfast_agent.shell.shims import shim_files
from holdfast_agent.shim.journal import RESERVE
from holdfast_agent.shim.walls import namespaces

_ACKED = "acked "
_JOURNAL = re.compile(r"g(\d+)\.journal")
_LINE_BYTES = 64
"""More than a line of two numbers takes."""
_BLOCK_BYTES = 4096
"""More than an epoch takes, and what any file system gives at once."""


@dataclass(frozen=True, slots=True)
class WorkerFiles:
    """The directories of all workers of one host."""

    workers: Path
    facts: HostFacts

    def directory(self, key: WorkerId) -> Path:
        """The directory of one worker."""
        return self.workers / key.job / key.worker

    def found(self) -> list[WorkerId]:
        """Every worker that has files."""
        return [WorkerId(path.parent.name, path.name) for path in sorted(self.workers.glob("*/*")) if path.is_dir()]

    def journals(self, key: WorkerId) -> tuple[Journal, ...]:
        """The journal of every generation, oldest first. A damaged one ends at the damage."""
        names = (_JOURNAL.fullmatch(path.name) for path in self.directory(key).iterdir())
        read = (self.journal(key, generation) for generation in sorted(int(found[1]) for found in names if found))
        return tuple(journal for journal in read if journal is not None)

    def journal(self, key: WorkerId, generation: int) -> Journal | None:
        """The records of a generation's journal; None where nothing became durable. Raises ``OSError``."""
        records = shim_files.read_journal(self._journal_path(key, generation))
        intent = next((r for r in records if isinstance(r, shim_files.Intent)), None)
        if intent is None:
            return None
        paths = (path for rank in intent.ranks for path in log_paths(self.facts, key, generation, rank))
        return Journal(
            generation=generation,
            launched=intent.ranks,
            forked=any(isinstance(r, shim_files.Forking) for r in records),
            started=tuple((r.rank, r.pid) for r in records if isinstance(r, shim_files.Started)),
            exits=tuple(self.exit(r) for r in records if isinstance(r, Exit)),
            stopping=any(isinstance(r, shim_files.Stopping) for r in records),
            empty=any(isinstance(r, shim_files.Empty) for r in records),
            other_boot=intent.boot_id != shim_files.boot_id(),
            wrote_output=any(_size(path) for path in paths),
            gpus=intent.gpus,
            bindings=intent.bindings,
        )

    def exit(self, recorded: Exit) -> Exit:
        """A recorded exit; the message of a failed start gets this host's name."""
        if recorded.reason is not ExitReason.CANNOT_START:
            return recorded
        return replace(recorded, message=f"{self.facts.name}: {recorded.message}")

    def record_exits(
        self, key: WorkerId, generation: int, exits: Iterable[Exit], launched: tuple[int, ...]
    ) -> tuple[Exit, ...]:
        """Write exits that no shim has recorded, and the proof of emptiness; durable when this returns.

        Returns them with the time of now where they have none. Raises ``StoreError``.
        """
        stamped = []
        records: list[dict[str, object]] = []
        if launched:
            boot = shim_files.boot_id()
            records.append({"ev": "intent", "generation": generation, "ranks": list(launched), "boot_id": boot})
        for exit_ in exits:
            stamp = replace(exit_, end_time=exit_.end_time or time.time())
            stamped.append(stamp)
            fields = {"rank": stamp.rank, "status": None, "end_time": stamp.end_time, "reason": stamp.reason.value}
            records.append({"ev": "exited", **fields, "message": stamp.message, "raised": "", "stderr_tail": []})
        records.append({"ev": "empty"})
        path = self._journal_path(key, generation)
        try:
            try:
                _append(path, records)
            except OSError as error:
                reserve = path.with_name(RESERVE)
                if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not reserve.exists():
                    raise
                reserve.unlink()  # the dead shim's, held for this
                _append(path, records)
        except OSError as error:
            raise StoreError(
                f"How ranks have ended can't be kept in {path}: {error.strerror}.",
                fix="Make room, or see to the disk, and start the agent again. Workers run on.",
            ) from error
        return tuple(stamped)

    def attempts(self, key: WorkerId) -> tuple[tuple[int, int], ...]:
        """The worker's attempts, each with its first generation."""
        path = self.directory(key) / "attempts"
        return tuple(_pairs(path, (line for line in _lines(path) if not line.startswith(_ACKED))))

    def acked(self, key: WorkerId) -> frozenset[tuple[int, int]]:
        """Generation and rank of the exits that the controller has acknowledged."""
        path, before = self.directory(key) / "attempts", self.directory(key) / "acked"
        lines = [line.removeprefix(_ACKED) for line in _lines(path) if line.startswith(_ACKED)]
        return frozenset([*_pairs(path, lines), *_pairs(before, _lines(before))])  # where earlier releases had them

    def note_attempt(self, key: WorkerId, generation: int, attempt: int) -> None:
        """Note that this generation and later ones belong to an attempt. Raises ``OSError``."""
        self.directory(key).mkdir(mode=0o700, parents=True, exist_ok=True)
        hit("agent.attempt.before")
        _append_line(self.directory(key) / "attempts", f"{generation} {attempt}\n")
        hit("agent.attempt.after")

    def note_ack(self, key: WorkerId, generation: int, rank: int) -> None:
        """Note that an exit need not be sent again. Raises ``OSError``."""
        hit("agent.acked.before")
        _append_line(self.directory(key) / "attempts", f"{_ACKED}{generation} {rank}\n")
        hit("agent.acked.after")

    def freed(self, key: WorkerId) -> int:
        """The newest generation whose GPUs were proven free; 0 without one."""
        return self._noted(key, "freed")

    def closed(self, key: WorkerId) -> int:
        """The newest generation whose epilog has ended; 0 without one."""
        return self._noted(key, "closed")

    def note_freed(self, key: WorkerId, generation: int) -> None:
        """Note that a generation's GPUs were proven free. Raises ``OSError``."""
        self._note(key, "freed", generation)

    def note_closed(self, key: WorkerId, generation: int) -> None:
        """Note that a generation's epilog has ended. Raises ``OSError``."""
        self._note(key, "closed", generation)

    def hook_variables(self, key: WorkerId) -> dict[str, str]:
        """Variables that say to hooks whose worker it is; empty for a worker of an older agent."""
        try:
            return {
                str(name): str(value)
                for name, value in json.loads((self.directory(key) / "hooks").read_text()).items()
            }
        except (FileNotFoundError, ValueError):
            return {}

    def note_hook_variables(self, key: WorkerId, variables: Mapping[str, str]) -> None:
        """Keep whose worker it is for the epilog, which may run in a later life of the agent. Raises ``OSError``."""
        if self.hook_variables(key) != variables:
            self._replace(key, "hooks", json.dumps(variables))

    def prune(self, key: WorkerId, below: int) -> None:
        """Remove journals of generations under ``below`` whose exits are all acknowledged. Raises ``OSError``."""
        acked = self.acked(key)
        for path in self.directory(key).iterdir():
            if (found := _JOURNAL.fullmatch(path.name)) and int(found[1]) < below:
                journal = self.journal(key, int(found[1]))
                if journal is None or all((journal.generation, rank) in acked for rank in journal.launched):
                    path.unlink()

    def remove(self, key: WorkerId) -> None:
        """Remove the worker's directory, and its job's where that is empty. Raises ``OSError``."""
        directory = self.directory(key)
        if not directory.exists():
            return
        # An attempt without a journal says that nothing was launched: it goes before the journals do.
        for path in sorted(directory.iterdir(), key=lambda path: path.name != "attempts"):
            path.unlink(missing_ok=True)
        directory.rmdir()
        if not any(path.is_dir() for path in directory.parent.iterdir()):
            for name in (namespaces.FILE, namespaces.AHEAD):
                (directory.parent / name).unlink(missing_ok=True)
            directory.parent.rmdir()

    def _noted(self, key: WorkerId, name: str) -> int:
        try:
            text = (self.directory(key) / name).read_text().strip()
        except FileNotFoundError:
            return 0
        return int(text) if text.isdigit() else 0

    def _note(self, key: WorkerId, name: str, generation: int) -> None:
        self._replace(key, name, f"{generation}\n")

    def _replace(self, key: WorkerId, name: str, text: str) -> None:
        fresh = self.directory(key) / f"{name}.new"
        hit("agent.note.before")
        fresh.write_text(text)
        hit("agent.note.written")
        fresh.replace(fresh.with_suffix(""))
        hit("agent.note.after")

    def _journal_path(self, key: WorkerId, generation: int) -> Path:
        return self.directory(key) / f"g{generation}.journal"


class EpochFile:
    """The highest epoch seen, across lives of the agent. Room for the next one is held, whatever fills the disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next = path.with_suffix(".new")

    def read(self) -> int:
        """The highest epoch seen; 0 at first. Raises ``StoreError`` for a file that is not ours."""
        try:
            return int(self._path.read_text())
        except FileNotFoundError:
            return 0
        except (OSError, ValueError) as error:
            raise StoreError(
                f"{self._path} is damaged: {error}.",
                fix="Remove it once you know that no controller of an earlier term is left.",
            ) from error

    def reserve(self) -> None:
        """Hold a block for the next write, where there is one."""
        try:
            handle = os.open(self._next, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(handle, 0, _BLOCK_BYTES)
            finally:
                os.close(handle)
        except OSError as error:
            log.warning("epoch.reserve_failed", path=str(self._next), error=error.strerror)

    def write(self, epoch: int) -> None:
        """Write the epoch, durable on return. Raises ``StoreError``; then the agent must not obey any controller."""
        try:
            self._write(f"{epoch}\n".encode())
        except OSError as error:
            raise StoreError(
                f"The epoch {epoch} can't be kept in {self._path}: {error.strerror}.",
                fix="Make room, or see to the disk, and start the agent again. Workers run on.",
            ) from error
        self.reserve()

    def _write(self, data: bytes) -> None:
        handle = os.open(self._next, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            hit("agent.epoch.before")
            os.pwrite(handle, data, 0)
            os.ftruncate(handle, len(data))  # after the write: the block that was held stays
            hit("agent.epoch.written")
            os.fsync(handle)
        finally:
            os.close(handle)
        hit("agent.epoch.synced")
        self._next.replace(self._path)
        sync(self._path.parent)
        hit("agent.epoch.after")


def _append(path: Path, records: Iterable[dict[str, object]]) -> None:
    """Add to a journal after its last sound line; what is torn there is cut, as it never happened."""
    texts = [json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() for record in records]
    data = b"".join(b"%08x %s\n" % (binascii.crc32(text), text) for text in texts)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        end = _sound_bytes(path.read_bytes())
        hit("agent.ends.before")
        os.ftruncate(handle, end)
        os.pwrite(handle, data, end)
        hit("agent.ends.written")
        os.fsync(handle)
    finally:
        os.close(handle)
    sync(path.parent)
    hit("agent.ends.after")


def _sound_bytes(data: bytes) -> int:
    sound = 0
    for line in data.split(b"\n")[:-1]:
        checksum, _, text = line.partition(b" ")
        if checksum != b"%08x" % binascii.crc32(text):
            break
        sound += len(line) + 1
    return sound


def _append_line(path: Path, line: str) -> None:
    """Add a line whole, or nothing and raise ``OSError``: part of one would name another rank."""
    data = line.encode()
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(handle).st_size
        last = os.pread(handle, _LINE_BYTES, max(0, size - _LINE_BYTES))
        end = size - len(last) + last.rfind(b"\n") + 1
        os.ftruncate(handle, end)  # of what is torn there
        if os.pwrite(handle, data, end) < len(data):
            os.ftruncate(handle, end)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    finally:
        os.close(handle)


def _lines(path: Path) -> list[str]:
    """The whole lines of a file; none where there is no file."""
    try:
        *lines, torn = path.read_text(errors="replace").split("\n")
    except FileNotFoundError:
        return []
    if torn:
        log.warning("file.torn", path=str(path), line=torn)
    return lines


def _pairs(path: Path, lines: Iterable[str]) -> Iterable[tuple[int, int]]:
    for line in lines:
        first, _, second = line.partition(" ")
        if first.isdigit() and second.isdigit():
            yield int(first), int(second)
        else:
            log.warning("file.corrupt", path=str(path), line=line)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
