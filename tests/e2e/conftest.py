"""A dev cluster of real daemons for each test that asks for one, and proof that it leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast import dev
from holdfast.dev import processes


@dataclass(frozen=True)
class DevCluster:
    """A running dev cluster in ``dir``; ``env`` is the environment of its users."""

    dir: Path
    env: dict[str, str]

    def holdfast(
        self, *args: str, timeout: float = 60, check: bool = True, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the command line; with ``check``, any status but 0 fails the test and shows what it said."""
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", *args],
            env=self.env,
            cwd=cwd or self.dir.parent,
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
        )
        assert not check or done.returncode == 0, f"holdfast {args} → {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def pid(self, name: str) -> int:
        """Of ``"controller"``, or of a host's agent."""
        where = "controller.pid" if name == "controller" else f"hosts/{name}/agent.pid"
        return int((self.dir / where).read_text())

    def agent_pid(self, host: str) -> int:
        return self.pid(host)

    def kill_controller(self) -> None:
        """SIGKILL; returns once it is dead."""
        self._kill("controller")

    def kill_agent(self, host: str) -> None:
        """SIGKILL; returns once it is dead."""
        self._kill(host)

    def restart(self) -> None:
        """Start whatever is dead; returns when all is ready."""
        dev.start(self.dir)

    def ranks(self, job_id: str) -> dict[int, str]:
        """Live processes of the job on this machine, descendants of ranks included, and the host of each."""
        environments = {pid: processes.environment(pid) for pid in processes.snapshot()}
        return {
            pid: env.get("HOLDFAST_HOST", "")
            for pid, env in environments.items()
            if env.get("HOLDFAST_JOB") == job_id
        }

    def until(self, condition: Callable[[], object], timeout: float = 30) -> None:
        """Wait until ``condition`` holds; fails the test after ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.05)

    def left(self) -> list[str]:
        """Live processes whose arguments or environment name the cluster's folder."""
        marked = []
        for pid in processes.snapshot().keys() - {os.getpid()}:
            words = (*processes.arguments(pid), *processes.environment(pid).values())
            if any(str(self.dir) in word for word in words):
                marked.append(f"{pid}: {' '.join(processes.arguments(pid))}")
        return marked

    def show_logs(self) -> None:
        """Print the end of every daemon's log; pytest shows it where a test fails."""
        for log in (self.dir / "controller.log", *sorted(self.dir.glob("hosts/*/agent.log"))):
            if log.exists():
                print(f"--- {log}", *log.read_text(errors="replace").splitlines()[-40:], sep="\n")

    def _kill(self, name: str) -> None:
        victim = processes.stat(self.pid(name))
        assert victim is not None, f"{name} is dead already"
        processes.send(victim.process, signal.SIGKILL)
        assert not processes.wait_all({victim.process}, 20)
        processes.exit_status(victim.process)


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[Callable[..., DevCluster]]:
    """Call it with ``hosts=2, gpus=2`` for a running cluster; it is stopped when the test ends."""
    made: list[DevCluster] = []

    def make(hosts: int = 2, gpus: int = 2) -> DevCluster:
        directory = tmp_path / f"c{len(made)}"
        env = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
        cluster = DevCluster(directory, env | {"HOLDFAST_CONFIG": str(directory / "client.toml"), "NO_COLOR": "1"})
        made.append(cluster)
        dev.start(directory, hosts=hosts, gpus=gpus)
        return cluster

    yield make
    for cluster in made:
        cluster.show_logs()
        if (cluster.dir / "dev.toml").exists():
            dev.stop(cluster.dir)
        assert cluster.left() == []
