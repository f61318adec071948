"""A real agent process against a controller of the tests, over mutual TLS on loopback."""

from __future__ import annotations

import asyncio
import binascii
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.integration.agent.controller import Controller, assignment
from tests.support import other_release

from holdfast._base.identity import Identity, Kind
from holdfast._security import pki
from holdfast_agent.shell import config
from holdfast_agent.shell.cgroups.cgroups import Cgroups, find

HOST = f"host-{os.environ.get('PYTEST_XDIST_WORKER', 'gw0').removeprefix('gw')}"
"""Of its own for each process of tests: an agent clears away what carries its host's name, job and worker."""


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return (
        str(value).lower()
        if isinstance(value, bool)
        else json.dumps(str(value) if isinstance(value, Path) else value)
    )


@dataclass
class Agent:
    """One agent's files and, while it runs, its process."""

    root: Path
    port: int
    settings: dict[str, Any] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    release: tuple[str, str, str] | None = None
    """Version, protocol and shims' protocol to start as; None: as what it is."""

    @property
    def workers(self) -> Path:
        return self.root / "state/workers"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    def start(self) -> None:
        values = {
            "controller": f"127.0.0.1:{self.port}",
            "name": HOST,
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
        lines = [f"{key} = {_toml(value)}" for key, value in values.items()]
        config = self.root / "agent.toml"
        config.write_text("\n".join(lines) + "\n")
        with (self.root / "agent.log").open("ab") as output:
            command = [sys.executable, "-m", "holdfast_agent", "--config", str(config)]
            if self.release is not None:
                command = other_release.command(*self.release, "holdfast_agent", "--config", str(config))
            self.process = subprocess.Popen(command, stdout=output, stderr=output)

    def kill(self, number: signal.Signals = signal.SIGKILL) -> int:
        """End the agent alone, and wait for it."""
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(timeout=180)
        self.process = None
        return code

    def shim_pids(self) -> list[int]:
        """Of all places, dead ones included, but for those of which a power cut has left nothing."""
        known = (path.read_bytes().strip(b"\0") for path in self.workers.glob("*/*/shim.json"))
        return [json.loads(text)["pid"] for text in known if text]

    async def journalled(self, kind: str, generation: int) -> None:
        """Wait until a generation's journal holds a record of that kind."""
        for _ in range(400):
            for path in self.workers.glob(f"*/*/g{generation}.journal"):
                if f'"ev":"{kind}"' in path.read_text():
                    return
            await asyncio.sleep(0.05)
        raise AssertionError(f"generation {generation} has no {kind}")

    def rewrite_boot(self, boot_id: str) -> None:
        """Make every journal and shim one of another boot."""
        for path in self.workers.glob("*/*/*.journal"):
            lines = path.read_text().splitlines(keepends=True)
            current = json.loads(lines[0].partition(" ")[2])["boot_id"]
            for number, line in enumerate(lines):  # what doesn't say it stays as it is, a torn tail too
                if current in line:
                    lines[number] = _record(line.partition(" ")[2].strip().replace(current, boot_id))
            path.write_text("".join(lines))
        for path in self.workers.glob("*/*/shim.json"):
            path.write_text(path.read_text().replace(current, boot_id))

    def write_intent(self, job: str, worker: str, generation: int, ranks: list[int]) -> None:
        """What a shim leaves that dies right after it has made its intent durable."""
        directory = self.workers / job / worker
        directory.mkdir(parents=True)
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        intent = {"ev": "intent", "generation": generation, "ranks": ranks, "boot_id": boot}
        (directory / f"g{generation}.journal").write_text(_record(json.dumps(intent)))

    def spares(self) -> set[int]:
        """Children of the agent: warm shims that have no worker, and its helpers."""
        if self.process is None:
            return set()
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return set(map(int, children.read_text().split()))

    def processes(self, but: Collection[int] = ()) -> Iterator[int]:
        """Shims and whatever carries this agent's directories in its environment; zombies are gone."""
        needle, shims = os.fsencode(self.root), self.shim_pids()
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if not entry.name.isdigit() or int(entry.name) in (os.getpid(), getattr(self.process, "pid", 0)):
                    continue
                ours = int(entry.name) in shims or needle in (entry / "environ").read_bytes()
                if (
                    ours
                    and int(entry.name) not in but
                    and (entry / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
                ):
                    yield int(entry.name)

    async def gone(self, path: Path) -> None:
        """Wait until there is no such path."""
        for _ in range(400):
            if not await anyio.Path(path).exists():
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"{path} is still there")

    async def appeared(self, path: Path) -> None:
        """Wait until there is such a file."""
        await self.until(path.exists, str(path))

    async def size(self, path: Path, at_least: int) -> None:
        """Wait until a file has grown so far."""
        await self.until(lambda: path.exists() and path.stat().st_size >= at_least, f"{at_least} bytes in {path}")

    async def until(self, found: Callable[[], bool], what: str) -> None:
        """Wait until ``found()``."""
        for _ in range(400):
            if found():
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"never saw {what}")

    async def output(self, name: str, text: str) -> None:
        """Wait until a rank has printed ``text``."""
        for _ in range(400):
            with contextlib.suppress(FileNotFoundError):
                if text in (self.logs / name).read_text():
                    return
            await asyncio.sleep(0.05)
        raise AssertionError(f"{name} never had {text!r}")

    async def logged(self, event: str) -> None:
        """Wait until the agent has logged ``event``."""
        for _ in range(400):
            if event in (self.root / "agent.log").read_text():
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"the agent never logged {event}")

    def open_to_others(self) -> None:
        """Let other users pass through pytest's private directories to this agent's."""
        for parent in (self.root, *self.root.parents):
            if parent.name.startswith(("pytest-", "popen-")) or parent == self.root:
                parent.chmod(parent.stat().st_mode | 0o011)


@pytest.fixture
def settings() -> dict[str, Any]:
    """What a test wants to differ in agent.toml; override by parametrization."""
    return {}


@pytest.fixture
async def controller(tmp_path: Path) -> AsyncIterator[Controller]:
    pki.create_ca("test", tmp_path)
    pki.issue(tmp_path, Identity("test", Kind.HOST, HOST), tmp_path, "host")
    tls = pki.issue(tmp_path, Identity("test", Kind.CONTROLLER, "c"), tmp_path, "controller", server=True)
    served = Controller(tls)
    await served.start()
    yield served
    await served.stop()


@pytest.fixture
async def agent(tmp_path: Path, controller: Controller, settings: dict[str, Any]) -> AsyncIterator[Agent]:
    started = Agent(tmp_path, controller.port, settings)
    started.start()
    yield started
    if started.process is not None:
        # In a thread: the controller of the tests hears its last word meanwhile.
        assert await asyncio.to_thread(started.kill, signal.SIGTERM) == 0, (tmp_path / "agent.log").read_text()
    await _end_workers(started)
    if os.geteuid() == 0:
        await asyncio.to_thread(_leave, find(config.load(tmp_path / "agent.toml")))
    if os.environ.get("HOLDFAST_SHOW_LOG"):
        print((tmp_path / "agent.log").read_text())


def _leave(cgroups: Cgroups) -> None:
    """Remove an agent's cgroups; a process that has just ended is in its own until it is reaped."""
    for _ in range(200):
        cgroups.leave()
        if not cgroups.root or not Path(cgroups.root).is_dir():
            return
        time.sleep(0.05)


def _record(text: str) -> str:
    return f"{binascii.crc32(text.encode()):08x} {text}\n"


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
