"""Serves programs on the controller's own machine over a socket in its state directory.

Only root and the user that the controller runs as are served. One call makes a copy of the store as of now. The
controller makes it itself, with the connection that it writes with: SQLite before 3.51.3 can corrupt a WAL when two
connections share a file. Commits wait meanwhile, about a second for each GB; those to PostgreSQL don't. Others change
the CA, and have settings read again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError, StoreError, Unavailable, WrongState
from holdfast_controller.shell.store.store import Store

if TYPE_CHECKING:
    from holdfast_controller.shell.enrolment.rotation import Rotation

SOCKET = "control.sock"
COPY = "copy-store"
ANSWER_WITHIN_S = 3600.0
ABANDONED_S = 86_400.0
"""Age after which no backup reads a copy any more."""
_LINE_BYTES = 4096
Reload = Callable[[], Awaitable[dict[str, Any]]]
"""Reads the settings again; returns the answer."""
_PEER = struct.Struct("3i")


class LocalCalls:
    """The socket of one controller."""

    def __init__(
        self, store: Store, directory: Path, rotation: Rotation | None = None, reload: Reload | None = None
    ) -> None:
        self._store, self._directory, self._rotation, self._reload = store, directory, rotation, reload
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Serve. Raises ``StoreError`` where the socket can't be made."""
        try:
            self._remove_abandoned()
            with _short(self._directory) as path, contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            with _short(self._directory) as path:
                self._server = await asyncio.start_unix_server(self._answer, path)
            os.chmod(self._directory / SOCKET, 0o600)
        except OSError as error:
            raise StoreError(f"Cannot make {self._directory / SOCKET}: {error.strerror}.") from error

    async def stop(self) -> None:
        """End; asking twice does nothing."""
        if self._server is not None:
            self._server.close()
            self._server = None
            (self._directory / SOCKET).unlink(missing_ok=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A cancelled handler is an error to some releases of Python before 3.12.
        with contextlib.suppress(ConnectionError, TimeoutError, asyncio.CancelledError):
            async with asyncio.timeout(ANSWER_WITHIN_S):
                asked = (await reader.readline())[:_LINE_BYTES]
                answer = await self._do(writer.get_extra_info("socket"), asked)
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        writer.close()

    async def _do(self, peer: Any, asked: bytes) -> dict[str, Any]:
        _, uid, _ = _PEER.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        if uid not in (0, os.geteuid()):
            return {"problem": "only root and the controller's own user may ask for that"}
        try:
            order = json.loads(asked)
            if order["do"] == COPY:
                return await self._copy()
            if order["do"] == "ca" and self._rotation is not None:
                return await self._rotation.answer(order)
            if order["do"] == "reload" and self._reload is not None:
                return await self._reload()
            if order["do"] == "ca":
                return {"problem": "it issues no certificates: enrolment_listen and ca_directory are not set"}
        except HoldfastError as error:
            return {"problem": str(error)}
        except (ValueError, KeyError, TypeError):
            pass
        return {"problem": f"this controller knows no call {asked[:64]!r}"}

    async def _copy(self) -> dict[str, Any]:
        self._remove_abandoned()
        copy = self._directory / f".copy-{os.urandom(8).hex()}.db"
        wanted = True

        async def made() -> tuple[int, int]:
            try:
                return await self._store.copied(copy)
            finally:
                if not wanted:
                    copy.unlink(missing_ok=True)

        try:
            epoch, sequence = await asyncio.shield(made())  # the thread that copies goes on in any case
        except BaseException:
            wanted = False
            copy.unlink(missing_ok=True)
            raise
        return {"path": str(copy), "epoch": epoch, "sequence": sequence}

    def _remove_abandoned(self) -> None:
        """Remove copies that were made for a backup which did not live to do so."""
        for copy in self._directory.glob(".copy-*.db"):
            with contextlib.suppress(OSError):
                if copy.stat().st_mtime < time.time() - ABANDONED_S:
                    copy.unlink()


def ask_for_copy(directory: Path) -> tuple[Path, int, int] | None:
    """(a fresh copy of the store, which is the caller's to remove, epoch, sequence); None where no controller runs.

    Blocks. Raises ``HoldfastError`` when it runs and can't make one.
    """
    said = ask(directory, {"do": COPY})
    return None if said is None else (Path(said["path"]), int(said["epoch"]), int(said["sequence"]))


def ask(directory: Path, order: dict[str, Any]) -> dict[str, Any] | None:
    """Ask the controller of a state directory; None if none runs.

    Blocks. Raises ``Unavailable`` where it can't be reached, ``WrongState`` where it refuses.
    """
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(ANSWER_WITHIN_S)
        try:
            with _short(directory) as path:
                link.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        except OSError as error:
            raise Unavailable(f"Cannot reach {directory / SOCKET}: {error.strerror}.", fix=_AS_ROOT) from error
        try:
            link.sendall(json.dumps(order).encode() + b"\n")
            with link.makefile("rb") as answer:
                said: dict[str, Any] = json.loads(answer.readline() or b'{"problem": "it hung up"}')
        except (OSError, ValueError) as error:
            raise Unavailable(f"The controller of {directory} did not answer: {error}.") from error
    if "problem" in said:
        raise WrongState(str(said["problem"]))
    return said


@contextlib.contextmanager
def _short(directory: Path) -> Iterator[str]:
    """A name of the socket that is short enough for the kernel, however deep the directory is."""
    handle = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}/{SOCKET}"
    finally:
        os.close(handle)


_AS_ROOT = "Run it as root, or as the user that the controller runs as."
