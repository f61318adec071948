"""The controller as a process of its own."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.integration.controller.cluster import Certificates, Controller
from tests.support.stubs import job_stub


@dataclass
class Process:
    """One controller's files and, while it runs, its process."""

    root: Path
    certificates: Certificates
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def log(self) -> str:
        return (self.root / "controller.log").read_text()

    def start(self, *before: str) -> subprocess.Popen[str]:
        """Start the controller; ``before`` is a command that runs the one that follows it."""
        with (self.root / "controller.log").open("a") as output:
            own = [sys.executable, "-m", "holdfast_controller", "--config", str(self.root / "controller.toml")]
            command = [*before, *own]
            process = subprocess.Popen(command, stdout=output, stderr=output, text=True)
        self.processes.append(process)
        return process

    async def ready(self, process: subprocess.Popen[str]) -> Controller:
        """Wait until it serves."""
        starts = len(self.processes)
        async with asyncio.timeout(30):
            while self.log.count("controller.ready") < starts:
                assert process.poll() is None, self.log
                await asyncio.sleep(0.05)
        line = next(line for line in reversed(self.log.splitlines()) if "controller.ready" in line)
        return Controller(int(json.loads(line)["port"]), self.certificates)


def stub(controller: Controller) -> Any:
    return job_stub(controller.channel("user/ann"))


async def ended(process: subprocess.Popen[str]) -> int:
    return await asyncio.to_thread(process.wait, 30)
