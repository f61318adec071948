"""Copies of the store that are made for a backup: none outlives the backup that it was made for."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path

import pytest

from holdfast_controller.shell.backup import admin_socket
from holdfast_controller.shell.backup.admin_socket import COPY, SOCKET, LocalCalls


class SlowStore:
    """Copies in a thread, once it is let."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.copies: list[Path] = []

    async def copied(self, path: Path) -> tuple[int, int]:
        return await asyncio.to_thread(self._copy, path)

    def _copy(self, path: Path) -> tuple[int, int]:
        self.may_end.wait(60)
        path.write_bytes(b"a copy")
        self.copies.append(path)
        return 1, 2


async def ask(folder: Path) -> bytes:
    reader, writer = await asyncio.open_unix_connection(folder / SOCKET)
    writer.write(json.dumps({"do": COPY}).encode() + b"\n")
    try:
        return await reader.readline()
    finally:
        writer.close()


async def test_a_copy_that_no_one_waits_for_any_more_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_socket, "ANSWER_WITHIN_S", 0.2)
    store = SlowStore()
    local = LocalCalls(store, tmp_path)  # type: ignore[arg-type]
    await local.start()
    assert await ask(tmp_path) == b""
    store.may_end.set()
    async with asyncio.timeout(60):
        while not store.copies or store.copies[0].exists():  # noqa: ASYNC110 a thread does it
            await asyncio.sleep(0.01)
    await local.stop()


async def test_a_copy_is_the_askers_to_remove_and_left_ones_go(tmp_path: Path) -> None:
    left, fresh = tmp_path / ".copy-1.db", tmp_path / ".copy-2.db"
    left.touch()
    fresh.touch()
    os.utime(left, (0, 0))
    store = SlowStore()
    store.may_end.set()
    local = LocalCalls(store, tmp_path)  # type: ignore[arg-type]
    await local.start()
    assert not left.exists() and fresh.exists(), "that of a backup that may be reading it"

    said = json.loads(await ask(tmp_path))

    assert (said["epoch"], said["sequence"]) == (1, 2)
    assert os.path.basename(said["path"]) in os.listdir(tmp_path)
    await local.stop()
