"""Two controllers on one database of PostgreSQL, and agents and clients that know both addresses."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from holdfast.dev import layout as files
from holdfast.dev import plan, ports
from holdfast.dev.layout import Layout

NAMES = ("one", "two")
WITHIN_S = 90.0


@dataclass
class TwoControllers:
    """The files of all daemons in ``directory``, and those that were started."""

    directory: Path
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str) -> None:
        """Start a controller or, as ``host-0``, an agent."""
        module = "holdfast_controller" if name in NAMES else "holdfast_agent"
        file = self.directory / (f"{name}.toml" if name in NAMES else f"hosts/{name}/agent.toml")
        command = [sys.executable, "-m", module, "--config", str(file)]
        with (self.directory / f"{name}.out").open("ab") as out:
            self.daemons[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def log(self, name: str) -> str:
        """What a daemon has said since its first start."""
        return (self.directory / f"{name}.out").read_text()

    def said(self, name: str, event: str) -> int:
        """How often a daemon has noted ``event``."""
        return self.log(name).count(f'"event": "{event}"')

    def says(self, name: str, event: str, times: int = 1) -> float:
        """Wait until a daemon has noted ``event`` so often; when it last did, in epoch seconds."""
        deadline = time.monotonic() + WITHIN_S
        while self.said(name, event) < times:
            assert self.daemons[name].poll() is None, self.log(name)
            assert time.monotonic() < deadline, self.log(name)
            time.sleep(0.02)
        line = next(line for line in reversed(self.log(name).splitlines()) if f'"event": "{event}"' in line)
        return datetime.fromisoformat(json.loads(line)["time"]).timestamp()

    def end(self) -> None:
        """End every daemon."""
        for daemon in self.daemons.values():
            daemon.terminate()
        for daemon in self.daemons.values():
            try:
                daemon.wait(WITHIN_S)
            except subprocess.TimeoutExpired:
                daemon.kill()


@contextlib.contextmanager
def two_controllers(directory: Path, database_url: str, hosts: int = 1) -> Iterator[TwoControllers]:
    """The first leads, and the second stands by, when this is entered; no agent is started."""
    layout = Layout(directory)
    directory.mkdir(mode=0o700)
    made = TwoControllers(directory)
    with ports.Reserved() as reserved:
        cluster = ports.choose(None, reserved, hosts=hosts, gpus=0, port=None)
        free = (port for port in plan.controller_ports(ports.ephemeral_range()) if reserved.take([port]))
        files.complete(layout, cluster, as_root=os.geteuid() == 0, labels={})
        first = (cluster.port, cluster.http_port, cluster.metrics_port, cluster.web_port)
        _settle(layout, {port: next(free) for port in first}, database_url)
        try:
            made.start("one")
            made.says("one", "controller.ready")
            made.start("two")
            made.says("two", "controller.stands_by")
            yield made
        finally:
            made.end()


def _settle(layout: Layout, second: dict[int, int], database_url: str) -> None:
    """Settings of both controllers, the ``second`` with ports of its own, and both addresses in those of the others."""
    text = layout.config(plan.CONTROLLER).read_text().replace("log_file", "# log_file")
    for name in NAMES:
        own = text.replace('state_dir = "controller"', f'state_dir = "{name}"')
        if name == NAMES[1]:
            own = re.sub(r"\b\d+\b", lambda found: str(second.get(int(found[0]), found[0])), own)
        (layout.directory / f"{name}.toml").write_text(f'database_url = "{database_url}"\n{own}')
    one, two = (f"127.0.0.1:{port}" for port in next(iter(second.items())))
    for file in (layout.client_config, *layout.directory.glob("hosts/*/agent.toml")):
        text = file.read_text().replace(f'"{one}"', f'"{one},{two}"')
        file.write_text(text.replace("log_file", "# log_file"))
