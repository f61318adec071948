"""Brings the tasks of a launch to task 0, by a file in the folder in which all of them run.

For launchers that have no credentials, such as those of Flux, PBS, LSF and MPI. The file is the user's alone, holds the
seed and the addresses of task 0's host, and is removed once all tasks have come.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import stat
import time
from collections.abc import Sequence
from pathlib import Path

import anyio

from holdfast.errors import ConfigError, Unavailable
from holdfast.guard import addresses, meeting
from holdfast.guard.allocation import SEED_VARIABLE, Allocation
from holdfast.guard.meeting import Guest
from holdfast.guard.trust import given_seed

LOOK_S = 0.2
MOST_BYTES = 1 << 16


class SharedFile:
    """The file of one job in ``folder``."""

    def __init__(self, folder: Path, job: str) -> None:
        self.path = folder / f".holdfast-{job}"

    async def exchange(self, place: Allocation, seed: bytes, timeout_s: float) -> tuple[bytes, list[str]]:
        """The seed and addresses of task 0, which writes its own. Raises ``Unavailable`` where none come in time."""
        if place.task == 0:
            where = await asyncio.to_thread(addresses.of_this_host)
            await asyncio.to_thread(self.write, seed, where)
            return seed, where
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            if (found := await asyncio.to_thread(self.read)) is not None:
                return found
            await asyncio.sleep(LOOK_S)
        raise Unavailable(
            f"Task {place.task} on {place.name} has not seen {self.path}, which task 0 writes.",
            fix=f"Start it from a folder that all hosts share, or set HOLDFAST_GUARD_HOST and {SEED_VARIABLE}.",
        )

    async def join(self, place: Allocation, timeout_s: float, command: Sequence[str]) -> Guest:
        """Join task 0 where its file says. Raises ``Unavailable`` after ``timeout_s``.

        A launch that was killed may have left its file, and a job that is requeued has the same name again: so a file
        that takes the place of the one that was followed is followed instead.
        """
        until = time.monotonic() + timeout_s
        seed, where = await self.exchange(place, b"", timeout_s)
        while True:
            newer: list[tuple[bytes, list[str]]] = []
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._replaced, seed, newer, tasks.cancel_scope)
                guest = await meeting.join(place, where, seed, None, until - time.monotonic(), command)
                tasks.cancel_scope.cancel()
                return guest
            seed, where = newer[0]

    async def _replaced(self, seed: bytes, newer: list[tuple[bytes, list[str]]], scope: anyio.CancelScope) -> None:
        """Once there is a file with another seed, add what it says to ``newer``, and cancel the scope."""
        while (found := await asyncio.to_thread(self.read)) is None or found[0] == seed:  # noqa: ASYNC110 a file of another host
            await asyncio.sleep(LOOK_S)
        newer.append(found)
        scope.cancel()

    def write(self, seed: bytes, addresses: Sequence[str]) -> None:
        """Put it there, in place of one that an earlier job of that name has left.

        Raises ``OSError``, or ``ConfigError`` where something of another user's has its name.
        """
        text = json.dumps({"seed": seed.hex(), "addresses": list(addresses)})
        # A name that no one can have taken before: the folder may be open to others, such as /tmp.
        new = self.path.with_name(f"{self.path.name}.{secrets.token_hex(8)}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(new, flags, 0o600)
        try:
            with os.fdopen(handle, "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            new.unlink(missing_ok=True)
            raise
        try:
            new.replace(self.path)
        except OSError as error:
            new.unlink(missing_ok=True)
            raise ConfigError(
                f"{self.path} can't be written, by which the tasks meet: {error.strerror}.",
                fix="Something of another user's lies there: start it from a folder that only you can write to.",
            ) from error

    def read(self) -> tuple[bytes, list[str]] | None:
        """The seed and addresses of task 0; None where it is not there, or is not this user's own."""
        try:
            # NFS shows a new file in a listing of its folder long before it lets a name that was missing be opened.
            if self.path.name not in os.listdir(self.path.parent):
                return None
            # What another user has put there may be a pipe, which no one ever writes to.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
            with os.fdopen(os.open(self.path, flags)) as file:
                found = os.fstat(file.fileno())
                if not stat.S_ISREG(found.st_mode):
                    return None
                if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
                    return None
                said = json.loads(file.read(MOST_BYTES))
            return given_seed(said["seed"]), [str(each) for each in said["addresses"]]
        except (OSError, ValueError, KeyError, TypeError, ConfigError):
            return None

    def remove(self) -> None:
        """Remove it, if it is there."""
        with contextlib.suppress(OSError):
            self.path.unlink()
