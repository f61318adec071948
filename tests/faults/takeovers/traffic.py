"""Users of a site, in one process on a machine of its own: they write down what they asked, when, and what they heard.

``python -m tests.faults.takeovers.traffic DIRECTORY`` runs until the file ``over`` is there, then waits for every job
to end and leaves ``history.jsonl``, a line for each call. Times are of the clock that all processes share.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast import settings
from holdfast._sdk.reconnect import is_away
from holdfast.bundles.packing import pack
from holdfast.client import Client
from holdfast.errors import HoldfastError
from holdfast.v1 import job_pb2, spec_pb2

EACH_S = 0.5
"""Between two calls of one user."""
KEEP = spec_pb2.DISCONNECT_POLICY_KEEP
NEVER_BEGUN = job_pb2.EXIT_REASON_NOT_STARTED
"""Of a launch that was ordered of an agent that died, and was made again. What ran has another end."""
# Writes down that it lives, and as which generation, until it is told to end.
GANG = """
import os, sys, time
e = os.environ
name = "@".join(e[k] for k in ("HOLDFAST_JOB", "RANK", "HOLDFAST_GENERATION", "HOLDFAST_HOST"))
with open(os.path.join(sys.argv[1], "alive", name), "w", buffering=1) as file:
    while not os.path.exists(os.path.join(sys.argv[1], "over")):
        file.write(f"{time.monotonic()} {os.getpid()}\\n")
        time.sleep(0.05)
"""
COUNTS = """
import os, sys, time
n = 0
while not os.path.exists(os.path.join(sys.argv[1], "over")):
    print(n, flush=True)
    n += 1
    time.sleep(0.05)
print("end", n, flush=True)
"""


class Users:
    """All of them, with one connection as a program would have it."""

    def __init__(self, directory: Path, client: Client) -> None:
        self._directory = directory
        self._client = client
        self._addresses = client.settings.controller.split(",")
        self._history = (directory / "history.jsonl").open("a", buffering=1)
        self._jobs: dict[str, str] = {}
        """Id by name, of those whose submission was acknowledged."""
        self._numbers = itertools.count()
        self._random = random.Random(7)

    @property
    def over(self) -> bool:
        """Whether the story has been told."""
        return (self._directory / "over").exists()

    def note(self, what: str, **said: Any) -> None:
        """A line of history."""
        self._history.write(json.dumps({"what": what, **said}) + "\n")

    @contextlib.asynccontextmanager
    async def call(self, what: str, **said: Any) -> AsyncIterator[dict[str, Any]]:
        """One call: when it began and ended, and how. The block adds what it has heard."""
        heard: dict[str, Any] = {"begun": time.monotonic(), **said}
        try:
            yield heard
            heard["ok"] = True
        except HoldfastError as error:
            heard |= {"ok": False, "error": str(error), "away": is_away(error)}
        self.note(what, ended=time.monotonic(), **heard)

    @contextlib.asynccontextmanager
    async def someone(self) -> AsyncIterator[Client]:
        """A connection as a command makes one, to whichever controller it finds first."""
        self._random.shuffle(self._addresses)
        async with Client(replace(self._client.settings, controller=",".join(self._addresses))) as client:
            yield client

    async def submit(self) -> None:
        """Submit a job that notes that it ran and exits with a status of its own, and know it by its name.

        Every second time on a new connection: it may find another controller than that which the others read from.
        """
        name, status = f"job{next(self._numbers)}", self._random.choice((0, 0, 0, 3, 41))
        script = f"echo $$ >> {self._directory}/ran/{name}; exit {status}"
        await self._submitted(name, ("sh", "-c", script), status=status, anew=self._random.random() < 0.5)

    async def _submitted(self, name: str, command: tuple[str, ...], **more: Any) -> None:
        async with self.call("submit", name=name, status=more.get("status", 0)) as heard:
            wanted = job_of(
                name,
                command,
                workers=more.get("workers", 1),
                policy=more.get("policy", spec_pb2.DISCONNECT_POLICY_KEEP),
            )
            bundle = more.get("bundle", "")
            wanted.job_spec.worker_pool_specs[0].process_spec.packaged_code.bundle = bundle
            async with self.someone() if more.get("anew") else contextlib.nullcontext(self._client) as client:
                created = await client.create_job(wanted)
            heard["job"] = self._jobs[name] = created.id

    async def read(self) -> None:
        """Read a job that is known to be there, and the list."""
        if not self._jobs:
            return
        name = self._random.choice(list(self._jobs)[-40:])
        async with self.call("get", name=name, job=self._jobs[name]) as heard:
            heard["state"] = (await self._client.get_job(self._jobs[name])).state
        known = list(self._jobs.values())[-20:]
        async with self.call("list", known=known) as heard:
            listed = {job.id async for job in self._client.list_jobs()}
            heard["missing"] = [job for job in known if job not in listed]

    async def upload(self) -> None:
        """Send code that no one has sent before, and run it."""
        folder = self._directory / "code" / f"{next(self._numbers)}"
        folder.mkdir(parents=True)
        name = f"code{folder.name}"
        (folder / "main.sh").write_text(f"echo $$ >> {self._directory}/ran/{name}\nexit 5\n")
        (folder / "weights").write_bytes(os.urandom(3 << 20))
        bundle = await asyncio.to_thread(pack, folder, folder.with_suffix(".bundle"))
        async with self.call("upload", name=name) as heard:
            await self._client.upload_bundle(bundle)
            heard["digest"] = bundle.digest
        if heard.get("ok"):
            await self._submitted(name, ("sh", "main.sh"), status=5, bundle=bundle.digest)

    async def watch(self, name: str) -> None:
        """Watch a job from its beginning to its end."""
        async for answer in self._client.watch_job(self._jobs[name]):
            self.note("event", name=name, cursor=answer.cursor, state=answer.state, at=time.monotonic())

    async def follow(self, name: str) -> None:
        """Follow the output of a job to its end."""
        text = b""
        async for chunk in self._client.stream_logs(self._jobs[name], follow=True):
            if chunk.problem:
                self.note("problem", name=name, said=str(chunk.problem), at=time.monotonic())
            text += chunk.data
            self.note("output", name=name, at=time.monotonic(), bytes=len(text))
        (self._directory / f"{name}.followed").write_bytes(text)

    async def again(self, what: Callable[[], Any], each_s: float) -> None:
        """Do something until the story is over."""
        while not self.over:
            await what()
            await asyncio.sleep(each_s * self._random.uniform(0.5, 1.5))

    async def live(self) -> None:
        """The whole story, and its end."""
        script = str(self._directory)
        for name, policy in (
            ("keep", spec_pb2.DISCONNECT_POLICY_KEEP),
            ("replace", spec_pb2.DISCONNECT_POLICY_STOP_AND_REPLACE),
        ):
            await self._submitted(name, (sys.executable, "-c", GANG, script), workers=2, policy=policy)
        await self._submitted("counts", (sys.executable, "-c", COUNTS, script))
        async with asyncio.TaskGroup() as users:
            for name in ("keep", "replace", "counts"):
                users.create_task(self.watch(name))
            users.create_task(self.follow("counts"))
            for _ in range(2):
                users.create_task(self.again(self.submit, EACH_S))
            users.create_task(self.again(self.read, EACH_S))
            users.create_task(self.again(self.upload, 8 * EACH_S))
        for name, job in self._jobs.items():
            async for _ in self._client.watch_job(job):
                pass
            found = await self._client.get_job(job)
            told = [each for worker in found.workers for each in worker.exits if each.reason != NEVER_BEGUN]
            exits = [(e.generation, e.rank, e.exit_code if e.HasField("exit_code") else None) for e in told]
            why = [job_pb2.ExitReason.Name(each.reason) for each in told]
            self.note("end", name=name, job=job, state=found.state, exits=exits, why=why)
        listed = [(job.display_name, job.id) async for job in self._client.list_jobs()]
        self.note("all", jobs=listed)


def job_of(
    name: str, command: tuple[str, ...], *, workers: int, policy: spec_pb2.DisconnectPolicy.ValueType
) -> job_pb2.CustomJob:
    """A job of so many workers that is launched once, and again only where its host was lost."""
    process = spec_pb2.ProcessSpec(command=command, working_directory="" if command[1] == "main.sh" else "/")
    pools = [spec_pb2.WorkerPoolSpec(replica_count=1, process_spec=process)]
    if workers > 1:
        pools.append(spec_pb2.WorkerPoolSpec(replica_count=workers - 1, process_spec=process))
        for pool in pools:
            pool.machine_spec.accelerator_count = 1
    job = job_pb2.CustomJob(display_name=name, job_spec=spec_pb2.CustomJobSpec(worker_pool_specs=pools))
    tolerance = job.job_spec.fault_tolerance
    tolerance.disconnect_policy = policy
    tolerance.max_worker_restarts = 0
    if workers == 1:
        tolerance.max_job_retries = 0
    return job


async def main(directory: Path) -> None:
    """See the module."""
    for folder in ("ran", "alive"):
        (directory / folder).mkdir(exist_ok=True)
    async with Client(settings.load(directory / "client.toml")) as client:
        await Users(directory, client).live()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
