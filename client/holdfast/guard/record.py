"""Keeps the record of a guarded command: a folder beside its output, with the job, its events, evidence of hangs."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast._sdk import json_view
from holdfast.errors import HoldfastError
from holdfast.guard.run import Words

if TYPE_CHECKING:
    from holdfast._session.hang_wire import WorkerEvidence
    from holdfast.client import Client
    from holdfast.settings import ClientSettings
    from holdfast.v1 import job_pb2


MOST = 1000
"""Records of one name, such as those of a script that is run again and again."""
NO_EVIDENCE = "None was kept: no host had sent any when the restart was due.\n"


class Record:
    """The folder, with a number after its name where there is one of that name already.

    A disk that refuses it costs the record, never the job; ``problem`` says so once.
    """

    def __init__(self, directory: Path, words: Words) -> None:
        self.directory = directory
        self._words = words
        self.problem = ""
        self._folder = -1
        """The folder itself: another may get its name, where others can write to the one in which it lies."""
        self.controller = ""
        """The address that commands are given."""
        self._try(self._make)

    def _make(self) -> None:
        """Make the folder, with the first number that is free. Raises ``OSError``."""
        wanted = self.directory
        for number in range(2, MOST + 1):
            try:
                self.directory.mkdir(mode=0o700, parents=True)
            except FileExistsError:
                self.directory = wanted.with_name(f"{wanted.name}-{number}")
            else:
                folder = os.open(self.directory, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
                if os.geteuid() and os.fstat(folder).st_uid != os.geteuid():  # on NFS root's may have no owner
                    os.close(folder)
                    raise PermissionError(errno.EPERM, "another user has put a folder in its place")
                self._folder = folder
                if self.directory != wanted:
                    self._words.note(f"{wanted} is there already: the record is in {self.directory}")
                return
        raise FileExistsError(errno.EEXIST, f"there are {MOST} of that name")

    def open_to_commands(self, settings: ClientSettings) -> None:
        """Write settings by which `holdfast` commands reach this job while it runs."""
        self.controller = settings.controller

        def write() -> None:
            for name, source in (("ca.pem", settings.ca), ("user.pem", settings.cert), ("user.key", settings.key)):
                self._write(name, source.read_text(), os.O_EXCL)
            lines = {"controller": settings.controller, "ca": "ca.pem", "cert": "user.pem", "key": "user.key"}
            text = "".join(f"{key} = {json.dumps(text)}\n" for key, text in lines.items())
            self._write("client.toml", text, os.O_EXCL)

        self._try(write)

    def close_to_commands(self) -> None:
        """Remove them: the controller that they lead to is gone, and its key with it."""
        if self._folder < 0:
            return
        for name in ("client.toml", "ca.pem", "user.pem", "user.key"):
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=self._folder)

    def event(self, event: job_pb2.WatchJobResponse) -> None:
        """Append an event."""
        line = json.dumps(json_view.event(event)) + "\n"
        self._try(lambda: self._write("events.jsonl", line, os.O_APPEND))

    async def finish(self, client: Client, job: job_pb2.CustomJob) -> None:
        """Write the job as it has ended, and the evidence of each hang."""
        self._try(lambda: self._write("job.json", _json(json_view.job(job))))
        self._try(lambda: self._write("job.txt", "".join(f"{line}\n" for line in self._words.page(job))))
        for number in range(1, len(job.hangs) + 1):
            try:
                found = [each async for each in client.hang_evidence(job.id, number)]
            except HoldfastError as error:
                self._words.note(f"the evidence of hang {number} can't be read: {error.message}")
                continue
            self._keep(f"hang-{number}", found)

    def _keep(self, name: str, found: Sequence[WorkerEvidence]) -> None:
        self._try(lambda: self._write(f"{name}.txt", self._words.evidence(found) or NO_EVIDENCE))
        self._try(lambda: self._write(f"{name}.json", _json([json_view.evidence(each) for each in found])))

    def _write(self, name: str, text: str, how: int = os.O_TRUNC) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | how
        with os.fdopen(os.open(name, flags, 0o600, dir_fd=self._folder), "w", errors="replace") as file:
            file.write(text)

    def _try(self, write: Callable[[], None]) -> None:
        if self.problem:
            return
        try:
            write()
        except OSError as error:
            self.problem = f"no record can be written to {self.directory}: {error.strerror}"
            self._words.note(f"{self.problem}; name another folder with --record")


def _json(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"
