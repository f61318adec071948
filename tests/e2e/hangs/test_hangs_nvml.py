"""Hangs told by GPUs, in whole clusters: agents read a scripted driver by the official binding, ranks are real.

Every cluster is one host with six GPUs whose driver obeys ``tests/support/fake_nvml``. A gang of four ranks trains
on four of them until its ``stop`` file is there; then it blocks, and the driver says what such GPUs would. The
stories go on side by side, each on a cluster of its own, so that no job's hang looks like a common cause.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.cli_cluster import DevCluster, exits, rank_pids, started
from tests.support.fake_nvml.library import (
    ASLEEP,
    FIGURES,
    IDENTITY,
    INVENTORY,
    NOT_SUPPORTED,
    SPINNING,
    TRAINING,
    FakeNvml,
    build,
)

pytestmark = [pytest.mark.slow, pytest.mark.require("cc")]
Job = dict[str, Any]

GANG, OTHER = range(4), range(4, 6)
LAST = 3
TRAINS_S = 80
"""Gaps between lines that end the start-up, and enough readings of the GPUs to know their steady level."""
# Steps four times a second, a line every 5.5 s. Once told to stop, the last rank sleeps, for longer than
# a healthy one does, and the others wait for it.
PROGRAM = """
import os, sys, time
folder, rank = sys.argv[1], int(os.environ["RANK"])

def trains():
    step = 0
    while not os.path.exists(f"{folder}/stop"):
        if step % 22 == 0:
            print(f"step={step}", flush=True)
        step += 1
        time.sleep(0.25)

def goes_astray():
    time.sleep(3600)

def waits_for_peers():
    source, _ = os.pipe()
    os.read(source, 1)

if os.environ["HOLDFAST_GENERATION"] == "1":
    trains()
    goes_astray() if rank == int(os.environ["WORLD_SIZE"]) - 1 else waits_for_peers()
"""


def submit(cluster: DevCluster, folder: Path, ranks: int, **detection: str) -> str:
    """A worker with a GPU for each rank, which stops once ``folder/stop`` is there; the job's id."""
    folder.mkdir()
    worker = {
        "replicaCount": 1,
        "machineSpec": {"acceleratorCount": ranks},
        "processesPerWorker": ranks,
        "processSpec": {"command": [sys.executable, "-c", PROGRAM, str(folder)]},
    }
    wishes = {"floor": "5s", "startupTimeout": "60s", "action": "RESTART"} | detection
    job = {"workerPoolSpecs": [worker], "faultTolerance": {"hangDetection": wishes}}
    text = yaml.safe_dump({"displayName": "nvml", "jobSpec": job})
    job_id = str(cluster.holdfast("submit", "-", input=text).stdout.strip())
    cluster.reach(job_id, "RUNNING")
    return job_id


# --- Stories ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Story:
    """A cluster, its driver, the gang's job on the first four GPUs and another one on the last two."""

    cluster: DevCluster
    driver: FakeNvml
    folder: Path
    job_id: str = ""
    other_id: str = ""
    stopped_s: float = 0.0
    pids: dict[int, int] = dataclasses.field(default_factory=dict)

    def begin(self, **detection: str) -> None:
        self.job_id = submit(self.cluster, self.folder / "gang", len(GANG), **detection)
        self.other_id = submit(self.cluster, self.folder / "other", len(OTHER))
        self.pids = rank_pids(self.cluster.job(self.job_id))

    def stop(self, name: str = "gang") -> None:
        """The ranks of that job block from now on."""
        self.stopped_s = time.time()
        (self.folder / name / "stop").touch()

    def sees(self, condition: Callable[[Job], object], timeout: float = 150) -> Job:
        """Wait until ``condition`` holds of the gang's job; the job."""
        found: list[Job] = []

        def holds() -> object:
            found.append(self.cluster.job(self.job_id))
            return condition(found[-1])

        try:
            self.cluster.until(holds, timeout)
        finally:
            print("hangs:", found[-1]["hangs"], found[-1]["health"])
        return found[-1]

    def host(self) -> Job:
        """As ``host list`` prints it."""
        (host,) = json.loads(self.cluster.holdfast("host", "list", "-o", "json").stdout)
        return dict(host)

    def check_other_is_left_alone(self) -> None:
        """The other job was never suspect and trains on."""
        other = self.cluster.job(self.other_id)
        assert (other["state"], other["generation"], other["hangs"]) == ("JOB_STATE_RUNNING", 1, [])


def judged(job: Job) -> bool:
    return bool(job["hangs"]) and bool(job["hangs"][-1]["outcome"])


@contextlib.contextmanager
def on_scripted_driver(library: Path, folder: Path) -> Iterator[Story]:
    """One host of which the agent reads six GPUs by NVML, all asleep."""
    folder.mkdir()
    driver = FakeNvml(library, folder / "nvml.script")
    driver.gpus(6)
    driver.do((*GANG, *OTHER), ASLEEP)
    with pytest.MonkeyPatch.context() as environment:
        for name, value in driver.env.items():
            environment.setenv(name, value)
        with started(folder / "c", hosts=1, gpus=0) as cluster:
            yield Story(cluster, driver, folder)


NAMES = ("idle", "spin", "lost", "vanished", "xid", "blind", "bare")


@pytest.fixture(scope="module", autouse=True)
def stories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Story]]:
    """Every story up to the moment when something goes wrong, and that moment."""
    folder = tmp_path_factory.mktemp("nvml")
    with contextlib.ExitStack() as clusters:
        told = {name: clusters.enter_context(on_scripted_driver(build(folder), folder / name)) for name in NAMES}
        told["bare"].driver.say(*(f"fail {name} -1 {NOT_SUPPORTED}" for name in (*FIGURES, *_MORE)))
        for name, story in told.items():
            story.begin(action="NOTIFY" if name in ("lost", "vanished", "xid") else "RESTART")
        time.sleep(12)  # the floor of every GPU's power is seen before work begins
        for story in told.values():
            story.driver.do((*GANG, *OTHER), TRAINING)
        time.sleep(TRAINS_S)
        for name, story in told.items():
            _BREAK[name](story)
        yield told


_MORE = (
    "nvmlEventSetCreate",
    "nvmlDeviceRegisterEvents",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    "nvmlDeviceGetMemoryInfo",
)


def fall_idle(story: Story) -> None:
    """The gang's GPUs fall asleep with their ranks. The other job's ranks block as well, and its GPUs work on."""
    story.stop()
    story.driver.do(GANG, ASLEEP)
    story.stop("other")


def spin(story: Story) -> None:
    """The picture of a collective that lacks one rank. The other job's GPUs report what is no fault of theirs."""
    story.stop()
    story.driver.do(GANG, SPINNING)
    story.driver.do([LAST], ASLEEP)
    story.driver.say("xid 4 43", "xid 5 63")


def lose(story: Story) -> None:
    story.stop()
    story.driver.do(GANG, SPINNING)
    story.driver.lose(LAST)


def vanish(story: Story) -> None:
    story.stop()
    story.driver.do(GANG, SPINNING)
    story.driver.lose(LAST, *FIGURES, *INVENTORY, *IDENTITY)


def report_xid(story: Story) -> None:
    story.stop()
    story.driver.do(GANG, SPINNING)
    story.driver.say(f"xid {LAST} 79", "xid 4 43")


def hang_the_driver(story: Story) -> None:
    """Calls to it never return; the ranks block at the same time, as in a long kernel, and print nothing."""
    story.stop()
    story.driver.say(f"hang {FIGURES[0]} -1", "hang nvmlDeviceGetMemoryInfo -1")


_BREAK: dict[str, Callable[[Story], None]] = {
    "idle": fall_idle,
    "spin": spin,
    "lost": lose,
    "vanished": vanish,
    "xid": report_xid,
    "blind": hang_the_driver,
    "bare": Story.stop,
}


# --- What becomes of them -----------------------------------------------------------------------------------------


def test_driver_that_hangs_makes_the_host_bad_and_nothing_else_until_it_answers_again(
    stories: dict[str, Story],
) -> None:
    story = stories["blind"]
    story.sees(lambda job: "blind" in job["health"], timeout=180)
    story.cluster.until(lambda: "did not answer" in story.host()["gpuProblem"], 60)
    assert "did not answer" in story.cluster.holdfast("host", "list").stdout

    began = time.monotonic()
    done = story.cluster.holdfast("run", "--", "sh", "-c", "exit 7", check=False)
    assert (done.returncode, time.monotonic() - began < 15) == (7, True)

    # Longer than a readable idle GPU's job is left alone, see the next test.
    story.cluster.until(lambda: time.time() - story.stopped_s > 110, 120)
    job = story.cluster.job(story.job_id)
    print("blind:", job["health"], job["hangs"])
    assert (job["generation"], job["state"], rank_pids(job)) == (1, "JOB_STATE_RUNNING", story.pids)
    assert not any(hang["outcome"] for hang in job["hangs"])

    story.driver.replace()
    story.driver.gpus(6)
    story.cluster.until(lambda: story.host()["gpuProblem"] == "", 90)
    healthy = story.sees(lambda job: "GPU busy" in job["health"], timeout=90)
    assert (healthy["generation"], rank_pids(healthy)) == (1, story.pids)
    story.check_other_is_left_alone()


def test_idle_gpus_and_blocked_ranks_are_a_hang_and_busy_ones_none(stories: dict[str, Story]) -> None:
    story = stories["idle"]
    (hang,) = check_restarted(story)["hangs"]
    assert hang["rule"] == "GPUS_IDLE"
    assert "all 4 GPUs are idle" in hang["sentence"]
    # Its ranks are as blocked and as silent, and its GPUs work.
    other = story.cluster.job(story.other_id)
    assert time.time() - story.stopped_s > 45
    assert (other["hangs"], other["generation"], other["state"]) == ([], 1, "JOB_STATE_RUNNING")
    assert "GPU busy 98 %" in other["health"]


def test_gpus_that_spin_for_a_rank_that_is_not_there_are_a_hang(stories: dict[str, Story]) -> None:
    story = stories["spin"]
    (hang,) = check_restarted(story)["hangs"]
    assert hang["rule"] == "GPUS_SPIN"
    assert "3 of 4 GPUs are busy without doing anything" in hang["sentence"]
    story.check_other_is_left_alone()
    assert '"xid": 43' in (story.cluster.dir / "hosts/host-0/agent.log").read_text()


def check_restarted(story: Story) -> Job:
    """The last rank was named, the gang relaunched in place, and is done; the job."""
    job = story.cluster.reach(story.job_id, "SUCCEEDED", "FAILED", timeout=180)
    print("hangs:", job["hangs"], "recoveries:", job["recoveries"])
    assert (job["state"], job["generation"], job["attempt"]) == ("JOB_STATE_SUCCEEDED", 2, 1)
    assert [hang["outcome"] for hang in job["hangs"]] == ["RESTARTED"]
    assert job["hangs"][0]["suspects"] == [f"workerpool0-0 rank {LAST}"]
    assert {e["reason"] for e in exits(job, generation=1).values()} == {"HANG_KILLED"}
    return job


@pytest.mark.parametrize("name", ["lost", "vanished"])
def test_lost_gpu_is_named_with_its_rank_and_its_host_is_bad(stories: dict[str, Story], name: str) -> None:
    story = stories[name]
    check_hardware(story, "its GPU is lost")
    story.cluster.until(lambda: story.host()["gpus"][LAST]["problem"], 40)
    problems = [gpu["problem"] for gpu in story.host()["gpus"]]
    assert [bool(problem) for problem in problems] == [index == LAST for index in range(6)]
    assert problems[LAST] == "lost (it has fallen off the bus); needs a reboot of its host"
    assert f"GPU {LAST}: lost (it has fallen off the bus)" in story.cluster.holdfast("host", "list").stdout


def test_fatal_xid_names_its_rank_and_one_that_is_not_is_nothing(stories: dict[str, Story]) -> None:
    check_hardware(stories["xid"], "its GPU reported Xid 79")


def check_hardware(story: Story, why: str) -> None:
    """Told by R1, acted on where asked; here the job asks to be notified only, and nothing is touched."""
    job = story.sees(judged)
    (hang,) = job["hangs"]
    assert (hang["rule"], hang["outcome"]) == ("STUCK_RANK", "WOULD_RESTART")
    assert hang["suspects"] == [f"workerpool0-0 rank {LAST}"]
    assert why in hang["sentence"]
    assert (job["generation"], rank_pids(job)) == (1, story.pids)
    story.check_other_is_left_alone()


def test_driver_without_any_figure_leaves_processes_and_output_to_judge_by(stories: dict[str, Story]) -> None:
    story = stories["bare"]
    (hang,) = check_restarted(story)["hangs"]
    # By what its processes wait for: no figure of the GPUs is in it.
    assert hang["rule"] == "GPUS_IDLE"
    assert "no rank of 4 has moved" in hang["sentence"] and "GPU" not in hang["sentence"]
    assert f"workerpool0-0 rank {LAST} sleeps for 60 min more" in hang["sentence"]
    host = story.host()
    assert (host["gpuProblem"], [gpu["problem"] for gpu in host["gpus"]]) == ("", [""] * 6)
    story.check_other_is_left_alone()
