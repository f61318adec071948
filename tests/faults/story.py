"""The canonical story under fire: a gang on two hosts fails once, is restarted in place and succeeds.

While it runs, armed failpoints kill daemons and shims; what died is started again. Everything is judged from
outside: by the lines that the ranks leave, the record that the controller shows, and the processes of the machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from unittest import mock

import anyio
from tests.e2e.cli_cluster import DevCluster, Json, started
from tests.faults.points import BY_NAME

from holdfast._base.failpoints import VARIABLE
from holdfast._sdk import json_view
from holdfast.cli.submission.run_spec import RunRequest, job_of
from holdfast.client import TERMINAL, Client
from holdfast.dev import daemons, layout, processes, readiness
from holdfast.dev.processes import Process
from holdfast.errors import HoldfastError
from holdfast.v1 import spec_pb2

SETTLES_S = 120.0
"""Generous: what a loaded machine takes is no fault. What never settles fails all the same."""
LOOK_S = 0.1
HELD_S = 1.0
"""How long a process that a point has stopped stays so."""

# Rank 0 waits to be stopped until there was a failure; rank 1 fails once, when rank 0 is there to be stopped.
RANK = """
say() { echo "$@" >> truth; }
say start $HOLDFAST_GENERATION $RANK $$
code=0
if [ $RANK = 1 ]; then
  until grep -q "^start $HOLDFAST_GENERATION 0 " truth; do sleep 0.05; done
  if mkdir failed 2> /dev/null; then code=7; fi
elif ! [ -d failed ]; then
  exec sleep 600
fi
say end $HOLDFAST_GENERATION $RANK $code
exit $code
"""

# The same by ranks that go on in their processes.
IN_PROCESS_RANK = """
import os, re, sys, time
import holdfast

def say(*words):
    with open("truth", "a") as file:
        file.write(" ".join(map(str, words)) + "\\n")

@holdfast.restartable
def train():
    generation, rank = os.environ["HOLDFAST_GENERATION"], os.environ["RANK"]
    code, waits = 0, not os.path.isdir("failed")
    say("start", generation, rank, os.getpid())
    if rank == "1":
        while len(set(re.findall(f"^start {generation} (.) ", open("truth").read(), re.MULTILINE))) < 4:
            time.sleep(0.05)
        try:
            os.mkdir("failed")
            code = 7
        except FileExistsError:
            pass
    elif waits:
        time.sleep(600)
    say("end", generation, rank, code)
    sys.exit(code)

train()
"""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a story under fire has come to. ``problems`` is empty when every promise was kept."""

    job: Json
    fired: tuple[str, ...]
    unreached: tuple[str, ...]
    problems: tuple[str, ...]


class Fire:
    """A cluster whose failpoints can be armed while it runs. ``points`` is the directory that arms them."""

    def __init__(self, cluster: DevCluster, points: Path) -> None:
        self.cluster = cluster
        self.points = points
        self._layout = layout.Layout(cluster.dir.resolve())
        known = layout.load(self._layout)
        assert known is not None
        self._names = known.daemons
        self._daemons = daemons.running(self._layout, known)
        self._held: dict[Process, float] = {}
        self._stories = 0

    def tell(self, folder: Path, armed: Mapping[str, str], *, in_process: bool = False) -> Outcome:
        """Run the story in ``folder`` with points armed, such as ``{"agent.exit.after": "exit@2"}``.

        ``in_process``: two ranks a host, which go on in their own processes.
        """
        assert armed.keys() <= BY_NAME.keys(), "only points that are in the list"
        self._stories += 1
        folder.mkdir(exist_ok=True)
        for name, action in armed.items():
            (self.points / name).write_text(action)
        job: Json = {}
        try:
            job = anyio.run(self._live, folder, armed, in_process)
            # What only the end of the job leads to (a place is forgotten) may come a moment after it.
            self._until_clean(job["id"], armed)
        finally:
            unreached = tuple(name for name in armed if (self.points / name).exists())
            fired = tuple(name for name in armed if name not in unreached)
            for name in armed:
                (self.points / name).unlink(missing_ok=True)
                (self.points / f"{name}.fired").unlink(missing_ok=True)
            self.revive()
            self._rest(job.get("id", ""))
        problems = [*judge(job, (folder / "truth").read_text(), fired), *self.left(job["id"])]
        problems += self.cluster.ask(lambda client: wrong_in_ledgers(client, job["id"]))
        same = [j for j in self.cluster.ask(lambda client: client.newest_jobs(50)) if j.display_name == self._name]
        if len(same) != 1:
            problems.append(f"one submission made {len(same)} jobs")
        return Outcome(job, fired, unreached, tuple(problems))

    def revive(self) -> None:
        """Start daemons that are dead, go on with processes that a point has stopped."""
        for name in self._names:
            process = self._daemons.get(name)
            if process is None or not processes.lives(process):
                if process is not None:
                    processes.exit_status(process)
                self._daemons[name] = daemons.launch(self._layout, name)
        for process in self._stopped():
            if time.monotonic() >= self._held.setdefault(process, time.monotonic()) + HELD_S:
                processes.send(process, signal.SIGCONT)

    def _stopped(self) -> list[Process]:
        """What a point has stopped, and nobody has told to go on so far."""
        found = []
        for path in self.points.glob("*.fired"):
            action, _, pid = path.read_text().partition(" ")
            seen = processes.stat(int(pid)) if action.startswith("stop") and pid.endswith("\n") else None
            if seen is not None and seen.state == "T":
                found.append(seen.process)
        return found

    def _rest(self, settled: str) -> None:
        """What a story has left cordoned or running is not the next one's trouble."""
        self.cluster.until(lambda: self._answers(), SETTLES_S)
        for host in self.cluster.ask(Client.list_hosts):
            if host.cordoned:
                self.cluster.ask(lambda client, name=host.name: client.uncordon(name))  # type: ignore[misc]
        if not settled:
            jobs = self.cluster.ask(lambda client: client.newest_jobs(5))
            self.cluster.end(*(job.id for job in jobs if job.state not in TERMINAL))

    def _answers(self) -> bool:
        self.revive()
        try:
            return bool(self.cluster.ask(Client.list_hosts))
        except HoldfastError:
            return False

    @property
    def _name(self) -> str:
        return f"story {self._stories}"

    async def _live(self, folder: Path, armed: Mapping[str, str], in_process: bool) -> Json:
        """Submit the job and see it through, reviving what dies. Fails when it doesn't settle."""
        command = (sys.executable, "-c", IN_PROCESS_RANK) if in_process else ("sh", "-c", RANK)
        request = RunRequest(command, gpus=1, replicas=2, name=self._name, max_restarts=20, grace_s=5)
        wish = job_of(request, os.environ, str(folder))
        if in_process:
            wish.job_spec.fault_tolerance.warm.mode = spec_pb2.WARM_MODE_IN_PROCESS
            for pool in wish.job_spec.worker_pool_specs:
                pool.processes_per_worker = 2
        request_id = f"{self._name} in {folder}"
        job_id = ""
        deadline = time.monotonic() + SETTLES_S
        async with self.cluster.client() as client:
            while time.monotonic() < deadline:
                self.revive()
                try:
                    if not job_id:
                        job_id = (await client.create_job(wish, request_id=request_id)).id
                    job = await client.get_job(job_id)
                    if job.state in TERMINAL:
                        return json_view.job(job)
                except HoldfastError:
                    pass  # the controller is dead, for now
                await anyio.sleep(LOOK_S)
        raise AssertionError(f"{job_id or 'the submission'} did not settle with {dict(armed)}")

    def _until_clean(self, job_id: str, armed: Mapping[str, str]) -> None:
        """Wait until nothing of the job is left and every point has fired, or there is no more hope of that."""
        deadline = time.monotonic() + SETTLES_S / 2
        reached = time.monotonic() + 2.0
        while time.monotonic() < deadline:
            self.revive()
            waits = any((self.points / name).exists() for name in armed) and time.monotonic() < reached
            if not waits and not self._stopped() and not self.left(job_id):
                return
            time.sleep(LOOK_S)

    def left(self, job_id: str) -> list[str]:
        """What is still there of a job that has ended: ranks, shims, files of its places."""
        found = [f"process {pid} is left on {host}" for pid, host in self.cluster.ranks(job_id).items()]
        found += [f"shim {pid} is left" for pid in self._shims_of(job_id)]
        found += [f"{path} is left" for path in self.cluster.dir.glob(f"hosts/*/state/workers/{job_id}/*")]
        return found

    def _shims_of(self, job_id: str) -> list[int]:
        found = []
        for pid, seen in processes.snapshot().items():
            if seen.name != "holdfast-shim" or processes.environment(pid).get(VARIABLE) != str(self.points):
                continue
            with contextlib.suppress(OSError):
                held = [os.readlink(entry.path) for entry in os.scandir(f"/proc/{pid}/fd")]
                if any(f"/workers/{job_id}/" in path for path in held):
                    found.append(pid)
        return found


def patience() -> contextlib.AbstractContextManager[object]:
    """What a dev cluster takes to start on a loaded machine is no fault of what is tested here."""
    return mock.patch.object(readiness, "READY_S", SETTLES_S)


async def wrong_in_ledgers(client: Client, job_id: str) -> list[str]:
    """What the goodput ledger has lost or counted twice, by the log of this job and by the sums of all jobs."""
    wrong = (await client.goodput(job_id, verify=True)).verified
    problems = [wrong] if wrong else []
    jobs = [job async for job in client.list_jobs()]
    if all(job.state in TERMINAL for job in jobs):  # what a story has left running has more at each look
        ledgers = [await client.goodput(job.id) for job in jobs]
        told = sum(line.ms for ledger in ledgers for line in ledger.lines)
        booked = sum(row.ms for row in (await client.sum_goodput("owner")).rows)
        problems += [f"the jobs have {told} GPU-ms, their owners {booked}"] * (told != booked)
    return problems


@contextlib.contextmanager
def under_fire(directory: Path) -> Iterator[Fire]:
    """A cluster of two hosts that failpoints can hit; stopped at the end, and proven gone."""
    points = directory / "points"
    points.mkdir()
    os.environ[VARIABLE] = str(points)  # daemons inherit it; this process has read it already
    try:
        with patience(), started(directory / "c", hosts=2, gpus=1) as cluster:
            yield Fire(cluster, points)
        found = [pid for pid in processes.snapshot() if processes.environment(pid).get(VARIABLE) == str(points)]
        assert found == [], "no process of the cluster outlives it"
    finally:
        del os.environ[VARIABLE]


def judge(job: Json, truth: str, fired: tuple[str, ...]) -> list[str]:
    """What the record says against what the ranks did: exits lost or invented, generations launched twice."""
    problems = [] if job["state"] == "JOB_STATE_SUCCEEDED" else [f"the job ended {job['state']}"]
    shim_died = any(name.startswith("shim.") for name in fired)
    began: dict[tuple[int, int], str] = {}
    ended: dict[tuple[int, int], int] = {}
    for line in truth.splitlines():
        what, generation, rank, value = line.split()
        key = int(generation), int(rank)
        if what == "end":
            ended[key] = int(value)
        elif key in began:
            problems.append(f"generation {key[0]} of rank {key[1]} was launched twice: {began[key]} and {value}")
        else:
            began[key] = value
    records: dict[tuple[int, int], Json] = {}
    for end in (end for worker in job["workers"] for end in worker["exits"]):
        key = end["generation"], end["rank"]
        if key in records:
            problems.append(f"two records of {key}")
        records[key] = end
    problems += [f"the end of {key} was lost" for key in began.keys() - records.keys()]
    for key, end in records.items():
        problems += [f"{key}: {text}" for text in _lies(end, key in began, ended.get(key), shim_died)]
    return problems


def _lies(end: Json, began: bool, code: int | None, shim_died: bool) -> list[str]:
    """What of one record can't be: ``code`` is what the rank was about to exit with, if it came that far."""
    reason, said = end["reason"], end["exitCode"]
    found = []
    if said is not None and said != code:
        found.append(f"its code {said} is made up; it was {code}")
    if reason in ("NOT_STARTED", "CANNOT_START") and began:
        found.append(f"{reason}, though it ran")
    if reason == "LOST_SHIM_DIED" and not shim_died:
        found.append("its shim is said to have died, and none did")
    if reason == "STOPPED" and end["signal"] not in (None, 9, 15):
        found.append(f"stopped by signal {end['signal']}")
    if reason not in ("COMPLETED", "NONZERO_EXIT", "STOPPED", "LOST_SHIM_DIED", "NOT_STARTED"):
        found.append(f"nothing in the story ends {reason}: {end['message']}")
    if code is not None and said is None and reason != "STOPPED" and not shim_died:
        found.append(f"its code {code} was lost: {reason}")
    return found
