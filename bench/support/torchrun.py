"""torchrun, started as its users start it, on one or two pretended nodes of this machine."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.support.usage import children

RESTARTS = 1000
WHOLE_RESTARTS = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Without it a restarted gang meets the addresses of the last generation in the shared store."""
END_S = 5.0


def is_there() -> bool:
    """Whether torch is installed."""
    return importlib.util.find_spec("torch") is not None


@contextlib.contextmanager
def torchrun(
    command: Sequence[str],
    processes: int,
    output: Path,
    *,
    nodes: int = 1,
    python: bool = False,
    env: dict[str, str] | None = None,
) -> Iterator[list[int]]:
    """Launchers of one job, at their default interval; gives their pids. Killed with all they started."""
    port = _free_port()
    launchers = []
    for _ in range(nodes):
        arguments = [
            *(sys.executable, "-m", "torch.distributed.run", *(() if python else ("--no-python",))),
            *(f"--nnodes={nodes}", f"--nproc-per-node={processes}", f"--max-restarts={RESTARTS}"),
            *(
                "--rdzv-backend=c10d",
                f"--rdzv-endpoint=127.0.0.1:{port}",
                "--rdzv-id=bench",
                "--local-addr=127.0.0.1",
            ),
        ]
        with output.open("ab") as log:
            launchers.append(
                subprocess.Popen(
                    [*arguments, *command],
                    env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
                    stdout=log,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
            )
    try:
        yield [launcher.pid for launcher in launchers]
    finally:
        for launcher in launchers:
            _end(launcher)


def _end(launcher: subprocess.Popen[bytes]) -> None:
    """Its workers lead sessions of their own, so each is ended by its pid, after its parent."""
    workers = children(launcher.pid) if launcher.poll() is None else []
    launcher.kill()
    launcher.wait(END_S)
    for worker in workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
