"""A real agent process against a controller of the tests, over mutual TLS on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from holdfast import pki
from holdfast.identity import Identity, Kind

from .controller import Controller, assignment


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Agent:
    """One agent's files and, while it runs, its process."""

    root: Path
    port: int
    settings: dict[str, Any] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def workers(self) -> Path:
        return self.root / "state/workers"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    def start(self) -> None:
        values = {
            "controller": f"127.0.0.1:{self.port}",
            "name": "host-0",
            "state_dir": "state",
            "log_dir": "logs",
            "ca": "ca.pem",
            "cert": "host.pem",
            "key": "host.key",
            "port_range": "21000-21199",
            "simulated_gpus": 4,
            "allow_root_workers": True,
            "log_level": "debug",
            **self.settings,
        }
        lines = [f"{k} = {str(v).lower() if isinstance(v, bool) else repr(v)}" for k, v in values.items()]
        config = self.root / "agent.toml"
        config.write_text("\n".join(lines) + "\n")
        with (self.root / "agent.log").open("ab") as output:
            command = [sys.executable, "-m", "holdfast_agent", "--config", str(config)]
            self.process = subprocess.Popen(command, stdout=output, stderr=output)

    def kill(self, number: signal.Signals = signal.SIGKILL) -> int:
        """End the agent alone, and wait for it."""
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(timeout=10)
        self.process = None
        return code

    def shim_pids(self) -> list[int]:
        """Of all places, dead ones included."""
        return [json.loads(path.read_bytes())["pid"] for path in self.workers.glob("*/*/shim.json")]

    def processes(self) -> Iterator[int]:
        """Shims and whatever carries this agent's directories in its environment; zombies are gone."""
        needle, shims = os.fsencode(self.root), self.shim_pids()
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if not entry.name.isdigit() or int(entry.name) in (os.getpid(), getattr(self.process, "pid", 0)):
                    continue
                ours = int(entry.name) in shims or needle in (entry / "environ").read_bytes()
                if ours and (entry / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                    yield int(entry.name)


@pytest.fixture
async def controller(tmp_path: Path) -> AsyncIterator[Controller]:
    pki.create_ca("test", tmp_path)
    pki.issue(tmp_path, Identity("test", Kind.HOST, "host-0"), tmp_path, "host")
    tls = pki.issue(tmp_path, Identity("test", Kind.CONTROLLER, "c"), tmp_path, "controller", server=True)
    served = Controller(tls)
    await served.start()
    yield served
    await served.stop()


@pytest.fixture
async def agent(tmp_path: Path, controller: Controller) -> AsyncIterator[Agent]:
    started = Agent(tmp_path, controller.port)
    started.start()
    yield started
    if started.process is not None:
        assert started.kill(signal.SIGTERM) == 0, (tmp_path / "agent.log").read_text()
    await _end_workers(started)
    if os.environ.get("HOLDFAST_SHOW_LOG"):
        print((tmp_path / "agent.log").read_text())


async def _end_workers(agent: Agent) -> None:
    """Whatever the test left: shims, and every process that names this agent's directories in its environment."""
    for _ in range(100):
        left = list(agent.processes())
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0.05)
    raise AssertionError(f"processes outlived the test: {left}")


__all__ = ["Agent", "Controller", "assignment"]
