"""Starts one program as all ranks of a gang, by environment variables alone, as any launcher does."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_OURS = ("HOLDFAST_", "TORCHELASTIC_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_")


@dataclass(frozen=True)
class Ended:
    """How one rank ended: `code` as subprocess tells it, negative for a signal."""

    code: int
    out: str
    err: str


def free_port() -> int:
    """A loopback port that nobody listens on at this moment."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def run_gang(
    program: Path, *arguments: str, world_size: int, env: dict[str, str] | None = None, timeout_s: float = 600.0
) -> list[Ended]:
    """Runs `world_size` ranks of `program` on this machine until all have ended; none outlives this call."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    gang = {"WORLD_SIZE": str(world_size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    common = clean | gang | {"OMP_NUM_THREADS": "1"} | (env or {})
    ranks: list[subprocess.Popen[str]] = []
    try:
        for rank in range(world_size):
            ranks.append(
                subprocess.Popen(
                    [sys.executable, str(program), *arguments],
                    env=common | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        outputs = [process.communicate(timeout=timeout_s) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.communicate()
    return [Ended(process.returncode, out, err) for process, (out, err) in zip(ranks, outputs, strict=True)]
