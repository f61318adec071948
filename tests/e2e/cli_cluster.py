"""A dev cluster of real daemons as its users and its enemies see it: the command line, the SDK, pids, SIGKILL."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import anyio
from tests.support.fake_nvml.library import SCRIPT

from holdfast import dev, settings
from holdfast._sdk import json_view
from holdfast.client import TERMINAL, Client
from holdfast.dev import processes
from holdfast.v1 import job_pb2

T = TypeVar("T")
Json = dict[str, Any]

PATIENCE_S = 180.0
"""For what takes seconds on cores that nobody else has."""


def until(condition: Callable[[], object], timeout: float = PATIENCE_S, what: str = "") -> None:
    """Wait until ``condition`` holds; fails the test after ``timeout`` seconds. The longer, the fewer looks."""
    began = time.monotonic()
    while not condition():
        waited = time.monotonic() - began
        assert waited < timeout, f"waited in vain {what}"
        time.sleep(min(max(0.05, waited / 20), 0.2))


@dataclass(frozen=True)
class DevCluster:
    """A running dev cluster in ``dir``; ``env`` is the environment of its users."""

    dir: Path
    env: dict[str, str]

    # The command line

    def holdfast(
        self,
        *args: str,
        timeout: float = PATIENCE_S,
        check: bool = True,
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
        input: str | None = None,
        text: bool = True,
    ) -> subprocess.CompletedProcess[Any]:
        """Run the command line; with ``check``, any status but 0 fails the test and shows what it said."""
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", *args],
            env=self.env | (env or {}),
            cwd=cwd or self.dir.parent,
            capture_output=True,
            text=text,
            timeout=timeout,
            **({"stdin": subprocess.DEVNULL} if input is None else {"input": input}),
        )
        assert not check or done.returncode == 0, f"holdfast {args} → {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    @contextlib.contextmanager
    def typing(self, *args: str) -> Iterator[Typed]:
        """The command line in the background; killed when the test leaves."""
        out, err = (self.dir.parent / f"typed-{time.monotonic_ns()}.{stream}" for stream in ("out", "err"))
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "holdfast", *args],
                env=self.env,
                cwd=self.dir.parent,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
            )
        with process:
            try:
                yield Typed(process, out, err)
            finally:
                process.kill()

    def detach(self, *args: str, cwd: Path | None = None) -> str:
        """``holdfast run --detach``; returns the job's id."""
        out: str = self.holdfast("run", "--detach", *args, cwd=cwd).stdout
        return out.strip()

    # The SDK

    def client(self) -> Client:
        """A client of this cluster, to be entered."""
        return Client(settings.load(self.dir / "client.toml"))

    def ask(self, call: Callable[[Client], Awaitable[T]]) -> T:
        """The answer to one call of the SDK."""

        async def work() -> T:
            async with self.client() as client:
                return await call(client)

        return anyio.run(work)

    def job(self, job_id: str) -> Json:
        """As ``holdfast job show -o json`` prints it."""
        return json_view.job(self.ask(lambda client: client.get_job(job_id)))

    def host(self, name: str) -> Json:
        """As ``holdfast host show -o json`` prints it."""
        return json_view.host(self.ask(lambda client: client.get_host(name)))

    def reach(self, job_id: str, *states: str, timeout: float = PATIENCE_S) -> Json:
        """Wait until the job is in one of ``states`` (such as RUNNING) and return it; at its end there is no hope."""

        async def there(client: Client) -> Json:
            deadline = time.monotonic() + timeout
            while True:
                job = json_view.job(await client.get_job(job_id))
                state = job["state"].removeprefix("JOB_STATE_")
                if state in states:
                    return job
                ended = state in ("CANCELLED", "FAILED", "SUCCEEDED")
                assert not ended, f"{job_id} ended as {state}, waited for {states}: {job.get('error')}"
                assert time.monotonic() < deadline, f"waited in vain for {job_id} to be {states}: it is {state}"
                await anyio.sleep(0.05)

        return self.ask(there)

    def make_idle(self, since: float = 0) -> None:
        """All daemons alive, no host cordoned, and no job left that was made after ``since`` (Unix time)."""
        self.restart()
        for host in self.ask(Client.list_hosts):
            if host.cordoned or host.draining:
                self.holdfast("host", "uncordon", host.name)
        left = [
            job.id
            for job in self.ask(lambda client: client.newest_jobs(20))
            if job.state not in TERMINAL and job.create_time.ToMicroseconds() > since * 1e6
        ]
        self.end(*left)

    def end(self, *jobs: str) -> None:
        """Cancel jobs and wait until they are gone."""
        for job_id in jobs:
            self.ask(lambda client, job_id=job_id: client.cancel_job(job_id))  # type: ignore[misc]
        for job_id in jobs:
            self.reach(job_id, "CANCELLED", "FAILED", "SUCCEEDED")

    def events(self, job_id: str) -> list[Json]:
        """The whole history of a job that has ended."""

        async def read(client: Client) -> list[Json]:
            return [json_view.event(event) async for event in client.watch_job(job_id)]

        return self.ask(read)

    def events_so_far(self, job_id: str) -> list[Json]:
        """The history of a job, as ``holdfast job events`` prints it."""
        found: list[Json] = json.loads(self.holdfast("job", "events", job_id, "-o", "json").stdout)
        return found

    # Daemons and processes

    def pid(self, name: str) -> int:
        """Of ``"controller"``, or of a host's agent."""
        where = "controller.pid" if name == "controller" else f"hosts/{name}/agent.pid"
        return int((self.dir / where).read_text())

    def agent_pid(self, host: str) -> int:
        return self.pid(host)

    def pids(self) -> dict[str, int]:
        """Of every daemon, by name."""
        hosts = (path.parent.name for path in self.dir.glob("hosts/*/agent.pid"))
        return {name: self.pid(name) for name in ("controller", *sorted(hosts))}

    def kill(self, *names: str) -> None:
        """SIGKILL daemons; returns once they are dead."""
        victims = []
        for name in names:
            victim = processes.stat(self.pid(name))
            assert victim is not None, f"{name} is dead already"
            victims.append(victim.process)
            processes.send(victim.process, signal.SIGKILL)
        assert not processes.wait_all(set(victims), 20)
        for process in victims:
            processes.exit_status(process)

    def kill_controller(self) -> None:
        """SIGKILL; returns once it is dead."""
        self.kill("controller")

    def kill_agent(self, host: str) -> None:
        """SIGKILL; returns once it is dead."""
        self.kill(host)

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

    def until(self, condition: Callable[[], object], timeout: float = PATIENCE_S) -> None:
        """Wait until ``condition`` holds; fails the test after ``timeout`` seconds."""
        until(condition, timeout)

    def left(self) -> list[str]:
        """Live processes whose arguments or environment name the cluster's folder."""
        marked = []
        for pid in processes.snapshot().keys() - {os.getpid()}:
            words = (*processes.arguments(pid), *processes.environment(pid).values())
            if any(str(self.dir) in word for word in words):
                marked.append(f"{pid}: {' '.join(processes.arguments(pid))}")
        return marked

    def show_logs(self) -> None:
        """Print who is dead, the jobs and the end of every daemon's log; pytest shows it where a test fails."""
        for name, pid in self.pids().items() if (self.dir / "controller.pid").exists() else ():
            now = processes.stat(pid)
            if now is None or now.dead:
                print(f"{name} is dead, exit status", processes.exit_status(now.process) if now else "unknown")
        print(self.holdfast("ps", check=False, timeout=30).stdout)
        for log in (self.dir / "controller.log", *sorted(self.dir.glob("hosts/*/agent.log"))):
            if log.exists():
                print(f"--- {log}", *log.read_text(errors="replace").splitlines()[-40:], sep="\n")


@contextlib.contextmanager
def started(
    directory: Path, *, hosts: int, gpus: int, labels: Mapping[str, Mapping[str, str]] | None = None
) -> Iterator[DevCluster]:
    """A cluster with ``gpus`` simulated GPUs on each host; stopped at the end, and proven gone."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
    if env.pop(SCRIPT, None):
        del env["LD_LIBRARY_PATH"]  # to a scripted driver, which is the hosts' and no user's
    cluster = DevCluster(directory, env | {"HOLDFAST_CONFIG": str(directory / "client.toml"), "NO_COLOR": "1"})
    try:
        dev.start(directory, hosts=hosts, gpus=gpus, labels=labels)
        yield cluster
    finally:
        cluster.show_logs()
        if (directory / "dev.toml").exists():
            dev.stop(directory)
    assert cluster.left() == []


@dataclass(frozen=True)
class Typed:
    """A command of ours that runs in the background."""

    process: subprocess.Popen[bytes]
    out: Path
    err: Path

    def says(self, text: str, timeout: float = PATIENCE_S) -> None:
        """Wait until ``text`` stands on stderr."""
        until(lambda: text in self.err.read_text(), timeout, f"for {text!r}")

    def ends(self, timeout: float = PATIENCE_S) -> int:
        """Its exit status."""
        return self.process.wait(timeout)


@dataclass
class Watcher:
    """One ``watch_job`` of the SDK, held open in a thread of its own; keeps what came, and when."""

    cluster: DevCluster
    job_id: str
    cursor: int = 0
    events: list[tuple[float, Json]] = field(default_factory=list)
    outages: list[str] = field(default_factory=list)

    def __enter__(self) -> Watcher:
        self._ready = threading.Event()
        self._thread = threading.Thread(target=anyio.run, args=(self._run,), daemon=True)
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._thread.join(30)

    @property
    def cursors(self) -> list[int]:
        return [event["cursor"] for _, event in list(self.events)]

    @property
    def ended(self) -> bool:
        """Whether the stream has ended by itself."""
        return not self._thread.is_alive()

    def of(self, *types: str) -> list[Json]:
        """The events of these types so far."""
        return [event for _, event in list(self.events) if event["type"] in types]

    async def _run(self) -> None:
        loop, scope = asyncio.get_running_loop(), anyio.CancelScope()

        def stop() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(scope.cancel)

        self._stop = stop
        self._ready.set()
        with scope:
            async with self.cluster.client() as client:
                history: AsyncGenerator[job_pb2.WatchJobResponse] = client.watch_job(
                    self.job_id, self.cursor, on_link=lambda error: self.outages.append(str(error or "back"))
                )
                async with contextlib.aclosing(history):
                    async for event in history:
                        self.events.append((time.time(), json_view.event(event)))


def exits(job: Json, *, generation: int | None = None) -> dict[int, Json]:
    """The exits of one generation (the newest unless given) by rank; fails on a rank with two."""
    wanted = generation or job["generation"]
    found = [e for worker in job["workers"] for e in worker["exits"] if e["generation"] == wanted]
    assert len({e["rank"] for e in found}) == len(found), found
    return {e["rank"]: e for e in found}


def rank_pids(job: Json) -> dict[int, int]:
    """The pid of each rank of the newest generation."""
    return {rank["rank"]: rank["pid"] for worker in job["workers"] for rank in worker["ranks"]}


def gone(pids: Collection[int]) -> bool:
    """Whether none of ``pids`` lives."""
    return not processes.snapshot().keys() & set(pids)
