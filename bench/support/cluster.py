"""A dev cluster for one benchmark, and jobs in it by way of the SDK."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast import settings
from holdfast.client import Client
from holdfast.v1 import job_pb2, spec_pb2

MANY_RESTARTS = 1000


@dataclass(frozen=True)
class DevCluster:
    """One that runs, and all of whose files lie in ``directory``."""

    directory: Path

    @property
    def env(self) -> dict[str, str]:
        """For the command line."""
        return {**os.environ, "HOLDFAST_CONFIG": str(self.directory / "client.toml")}

    def client(self) -> Client:
        """For the SDK, as an async context manager."""
        return Client(settings.load(self.directory / "client.toml"))

    @property
    def controller_pid(self) -> int:
        return int((self.directory / "controller.pid").read_text())

    def agent_pid(self, host: int = 0) -> int:
        return int((self.directory / "hosts" / f"host-{host}" / "agent.pid").read_text())

    def logs(self, job_id: str) -> Path:
        """Output of a job's ranks on the first host."""
        return self.directory / "hosts" / "host-0" / "logs" / job_id


@contextlib.contextmanager
def work_directory() -> Iterator[Path]:
    """A folder that is removed afterwards; on the file system of ``TMPDIR``, where daemons sync to disk."""
    directory = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def dev_cluster(directory: Path, hosts: int = 1, gpus: int = 0) -> Iterator[DevCluster]:
    """Started by the command line, and stopped with all workers."""
    holdfast("dev", "start", "--hosts", str(hosts), "--gpus", str(gpus), "--dir", str(directory))
    try:
        yield DevCluster(directory)
    finally:
        holdfast("dev", "stop", "--dir", str(directory))


def holdfast(*words: str, env: dict[str, str] | None = None) -> None:
    """``holdfast WORDS``. Raises ``CalledProcessError``."""
    subprocess.run([sys.executable, "-m", "holdfast", *words], env=env, check=True, capture_output=True)


def job(
    command: Sequence[str],
    *,
    processes: int = 1,
    replicas: int = 1,
    grace_s: float = 10.0,
    env: dict[str, str] | None = None,
) -> job_pb2.CustomJob:
    """A gang of ``replicas`` workers with ``processes`` ranks each, whose ranks may fail as often as they like."""
    process = spec_pb2.ProcessSpec(
        command=command,
        env=[spec_pb2.EnvVar(name=name, value=value) for name, value in (env or {}).items()],
    )
    pools = [
        spec_pb2.WorkerPoolSpec(replica_count=count, process_spec=process, processes_per_worker=processes)
        for count in (1, replicas - 1)
        if count
    ]
    spec = spec_pb2.CustomJobSpec(worker_pool_specs=pools, success_policy=spec_pb2.SUCCESS_POLICY_ALL)
    spec.scheduling.grace_period.FromNanoseconds(int(grace_s * 1e9))
    spec.fault_tolerance.max_worker_restarts = MANY_RESTARTS
    spec.fault_tolerance.backoff.limit.SetInParent()  # else each relaunch in a row would wait longer than the last
    return job_pb2.CustomJob(display_name="bench", job_spec=spec)


async def await_end(client: Client, job_id: str) -> job_pb2.CustomJob:
    """The job once it has ended."""
    async for _ in client.watch_job(job_id):
        pass
    return await client.get_job(job_id)


@contextlib.asynccontextmanager
async def running(client: Client, wanted: job_pb2.CustomJob) -> AsyncIterator[str]:
    """A job that is cancelled afterwards; gives its id."""
    job_id = (await client.create_job(wanted)).id
    try:
        yield job_id
    finally:
        await client.cancel_job(job_id)
        await await_end(client, job_id)
