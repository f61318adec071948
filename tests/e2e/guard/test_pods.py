"""``holdfast guard`` as the command of pods: containers with addresses and names of their own, as in an Indexed Job.

Their files are read-only, their home takes nothing, scratch is a small memory, and the guard is process 1.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.guard.guarding import GOES_ON, GUARD, PATIENCE_S, RANKS, wait_for
from tests.faults import network
from tests.faults.network import Network
from tests.support.podman_view import IMAGE, PodmanView, podman_view

pytestmark = [pytest.mark.require("podman"), pytest.mark.require("netns")]
PODS = ("p0", "p1", "p2")
ALLOWED = ("--cgroups=disabled", "--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096", "--log-driver=k8s-file")
REPOSITORY = Path(__file__).parents[3]
LIBRARIES = [path for path in ("/lib", "/lib64", "/usr") if os.path.isdir(path)]
SYSTEM = {str(REPOSITORY), sys.prefix, sys.base_prefix, *LIBRARIES}


class Pods:
    """Pods that can reach each other; ``folder`` is what they share."""

    def __init__(self, podman: PodmanView, joined: Network, folder: Path) -> None:
        self.podman, self.network, self.folder = podman, joined, folder
        self.seed = os.urandom(32).hex()

    def start(self, index: int, *arguments: str, tasks: int = 2, **env: str) -> None:
        """Start pod number ``index``, whose command is a guard."""
        name = PODS[index]
        env |= {"JOB_COMPLETION_INDEX": str(index), "HOLDFAST_GUARD_TASKS": str(tasks), "HOME": "/nowhere"}
        env |= {"HOLDFAST_GUARD_HOST": "train-0.train", "HOLDFAST_GUARD_SEED": self.seed, "TMPDIR": "/tmp"}
        env["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        options = [
            f"--name={name}",
            f"--hostname=train-{index}",
            "--read-only",
            "--tmpfs=/tmp:size=64m",
            "--entrypoint=",
            *ALLOWED,
        ]
        options += [f"--network=ns:{self.network.namespace(name)}", f"--workdir={self.folder}"]
        options += [
            f"--add-host=train-0.train:{self.network.address(PODS[0])}",
            f"--volume={self.folder}:{self.folder}",
        ]
        options += [f"--volume={path}:{path}:ro" for path in sorted(SYSTEM)]
        options += [f"--env={key}={value}" for key, value in env.items()]
        self.podman.call("run", "--detach", *options, IMAGE, *GUARD, *arguments)

    def ended(self, index: int) -> tuple[int, str]:
        """The exit status of a pod once it has ended, and what it has printed."""
        name = PODS[index]
        wait_for(lambda: self.state(name) == "exited", f"the end of {name}")
        status = int(self.podman.call("inspect", "--format={{.State.ExitCode}}", name))
        return status, self.printed(name)

    def state(self, name: str) -> str:
        return self.podman.call("inspect", "--format={{.State.Status}}", name).strip()

    def printed(self, name: str) -> str:
        done = subprocess.run(
            [str(self.podman.bin / "podman"), "logs", name], capture_output=True, text=True, timeout=PATIENCE_S
        )
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PodmanView, Network]]:
    with network.joined(list(PODS)) as joined, podman_view(tmp_path_factory.mktemp("pods")) as podman:
        yield podman, joined


@pytest.fixture
def pods(view: tuple[PodmanView, Network], tmp_path: Path) -> Iterator[Pods]:
    made = Pods(*view, tmp_path)
    try:
        yield made
    finally:
        made.podman.call("rm", "--all", "--force", "--time=0", check=False)


def test_a_rank_that_fails_is_restarted_in_its_pod(pods: Pods) -> None:
    for index in (0, 1):
        pods.start(index, "--record", "rec", "--", sys.executable, "-c", RANKS, FAILS="3,0", GUILTY="1")

    for index in (0, 1):
        status, said = pods.ended(index)
        assert status == 0, said
        assert f"rank {index} of 2 local 0 generation 2" in said
    assert (pods.folder / "rec/job.json").exists()


def test_the_pod_of_the_guilty_rank_fails_with_its_code(pods: Pods) -> None:
    for index in (0, 1):
        options = ("--max-restarts", "0", "--record", "rec")
        pods.start(index, *options, "--", sys.executable, "-c", RANKS, FAILS="7", GUILTY="1")

    assert [pods.ended(index)[0] for index in (0, 1)] == [0, 7]


def test_a_pod_that_is_deleted_ends_the_job_or_is_replaced_by_a_spare(pods: Pods) -> None:
    for index in range(3):
        options = ("--spares", "1", "--record", "rec")
        pods.start(index, *options, "--", sys.executable, "-c", GOES_ON, tasks=3, NUMBERS="JOB_COMPLETION_INDEX")
    wait_for(lambda: all((pods.folder / f"up-{rank}-1").exists() for rank in (0, 1)), "both ranks run")

    pods.podman.call("kill", "--signal=KILL", PODS[1])

    wait_for((pods.folder / "up-1-2").exists, "rank 1 runs in the spare")
    (pods.folder / "over").touch()
    assert [pods.ended(index)[0] for index in (0, 2)] == [0, 0]
    assert "rank 1 of 2 as 1 generation 2" in pods.printed(PODS[2])


def test_kubelets_sigterm_ends_the_pod_in_order(pods: Pods) -> None:
    for index in (0, 1):
        pods.start(index, "--record", "rec", "--", sys.executable, "-c", GOES_ON, NUMBERS="JOB_COMPLETION_INDEX")
    wait_for(lambda: all((pods.folder / f"up-{rank}-1").exists() for rank in (0, 1)), "both ranks run")

    pods.podman.call("kill", "--signal=TERM", PODS[1])

    ends = [pods.ended(index) for index in (0, 1)]
    assert [status for status, _ in ends] == [143, 143], ends
    assert "got signal 15" in ends[0][1]
