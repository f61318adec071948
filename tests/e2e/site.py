"""A cluster made as its admin would make it: ``init``, a controller, a machine that joins, a user who logs in."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.cli_cluster import until

from holdfast._security import pki
from holdfast._security.tls import TlsFiles
from holdfast.client import Client
from holdfast.dev import ports, processes
from holdfast.settings import load

WITHIN_S = 120.0


@dataclass
class Site:
    """Everything below ``root``; daemons are ended when the site is left."""

    root: Path
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def command(
        self, module: str, *words: str, config: str = "", check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of ours to its end."""
        done = subprocess.run(
            [sys.executable, "-m", module, *words],
            env=self.env(config),
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            cwd=self.root,
        )
        assert not check or done.returncode == 0, (
            f"{module} {words} → {done.returncode}\n{done.stdout}{done.stderr}"
        )
        return done

    def holdfast(self, who: str, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """The command line as a user whose settings are in the folder ``who``."""
        return self.command("holdfast", *words, config=str(self.root / who / "client.toml"), check=check)

    def env(self, config: str = "") -> dict[str, str]:
        """Of every process here."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
        return (
            kept
            | {"NO_COLOR": "1", "HOLDFAST_SITE": str(self.root)}
            | ({"HOLDFAST_CONFIG": config} if config else {})
        )

    def client(self, who: str) -> Client:
        """To be entered."""
        return Client(load(self.root / who / "client.toml"))

    def log(self, name: str) -> str:
        """What a daemon has written so far."""
        return (self.root / f"{name}.log").read_text(errors="replace")

    def start(self, name: str, module: str, settings: Path) -> None:
        """Start a daemon in a session of its own."""
        with (self.root / f"{name}.log").open("ab") as log:
            self.daemons[name] = subprocess.Popen(
                [sys.executable, "-m", module, "--config", str(settings)],
                env=self.env(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def make(self, life_s: int, own_life_s: int) -> None:
        """A controller whose certificates last ``life_s`` seconds, its own longer; its admin is in etc/admin."""
        folders = ("--dir", str(self.root / "etc"), "--state-dir", str(self.root / "state"))
        self.command("holdfast_controller", "init", "--advertise", "127.0.0.1", "--admin", "ann", *folders)
        settings = self.root / "etc/controller.toml"
        text = settings.read_text().replace("0.0.0.0:7443", "127.0.0.1:0").replace("0.0.0.0:7444", "127.0.0.1:0")
        lives = f'host = "{life_s}s"\nuser = "{life_s}s"\ncontroller = "{own_life_s}s"\n'
        settings.write_text(f"{text}[certificates]\n{lives}")
        state = self.root / "state"
        own = TlsFiles(state / "ca/ca.pem", state / "controller.pem", state / "controller.key")
        pki.renew_server(state / "ca", own, datetime.timedelta(seconds=own_life_s))
        self.start("controller", "holdfast_controller", settings)
        until(lambda: "controller.ready" in self.log("controller"), WITHIN_S, "for the controller")
        ready = next(line for line in self.log("controller").splitlines() if "controller.ready" in line)
        client = self.root / "etc/admin/client.toml"
        client.write_text(client.read_text().replace(":7443", f":{json.loads(ready)['port']}"))

    def join(self, name: str) -> None:
        """Have this machine join as host ``name``, and start its agent."""
        line = self.holdfast("etc/admin", "host", "token", "create", name).stdout
        program, verb, *words = shlex.split(line)
        assert (program, verb) == ("holdfast-agent", "join")
        home = self.root / name
        folders = ("--dir", str(home), "--state-dir", str(home / "state"), "--log-dir", str(home / "logs"))
        self.command("holdfast_agent", "join", *words, "--name", name, *folders)
        with ports.Reserved() as reserved:
            free = ports.choose(None, reserved, hosts=1, gpus=1, port=None).hosts[0].ports
        settings = home / "agent.toml"
        here = f'address = "127.0.0.1"\ndata_interface = "lo"\nport_range = "{free[0]}-{free[-1]}"\n'
        settings.write_text(f"{settings.read_text()}{here}simulated_gpus = 1\nallow_root_workers = true\n")
        self.start(name, "holdfast_agent", settings)

    def admit(self, user: str) -> None:
        """Add a user, who logs in; the settings are in the folder of that name."""
        self.holdfast("etc/admin", "user", "add", user)
        line = self.holdfast("etc/admin", "user", "token", user).stdout
        program, verb, *words = shlex.split(line)
        assert (program, verb) == ("holdfast", "login")
        self.command("holdfast", "login", *words, "--dir", str(self.root / user))

    def left(self) -> list[str]:
        """Live processes that were started for this site."""
        mark = f"HOLDFAST_SITE={self.root}"
        marked = []
        for pid in processes.snapshot().keys() - {os.getpid()}:
            if processes.environment(pid).get("HOLDFAST_SITE") == str(self.root) or mark in processes.arguments(
                pid
            ):
                marked.append(f"{pid}: {' '.join(processes.arguments(pid))}")
        return marked


@contextlib.contextmanager
def made(root: Path) -> Iterator[Site]:
    """A site; at the end its daemons are stopped and nothing of it is left."""
    site = Site(root)
    try:
        yield site
    finally:
        for name, daemon in reversed(site.daemons.items()):
            if daemon.poll() is None:
                daemon.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(60)
            if daemon.poll() is None:
                os.killpg(daemon.pid, signal.SIGKILL)
                daemon.wait(60)
            print(f"--- {name}", *site.log(name).splitlines()[-40:], sep="\n")
    try:
        until(lambda: not site.left(), 60, f"for the end of {site.left()}")
    except AssertionError:
        for line in site.left():  # ranks of a test that failed, which outlive their agent
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(line.partition(":")[0]), signal.SIGKILL)
        raise
