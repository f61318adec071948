"""Jobs in containers on real hosts, by a real podman."""

from __future__ import annotations

import dataclasses
import http.server
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cli_cluster import DevCluster, exits, gone, rank_pids, started
from tests.support.podman_view import IMAGE, PodmanView, podman_view
from tests.support.typist import typing

from holdfast import spec
from holdfast.client import Client

pytestmark = [pytest.mark.require("podman")]
PATIENCE_S = 90


@dataclasses.dataclass(frozen=True)
class Site:
    """A cluster of one host, and its podman."""

    cluster: DevCluster
    podman: PodmanView
    folder: Path

    def submit(self, task: dict[str, Any], *, ranks: int = 1, replicas: int = 0, **job: Any) -> str:
        """A job of one worker, or of ``replicas`` more; its id."""
        pool = {"replicaCount": 1, "processesPerWorker": ranks, "containerSpec": {"imageUri": IMAGE} | task}
        pools = [pool, pool | {"replicaCount": replicas}] if replicas else [pool]
        made = spec.job_to_proto(spec.parse({"displayName": "box", "jobSpec": {"workerPoolSpecs": pools} | job}))
        return self.cluster.ask(lambda client: client.create_job(made)).id

    def ends(self, job_id: str) -> dict[str, Any]:
        return self.cluster.reach(job_id, "SUCCEEDED", "FAILED", "CANCELLED", timeout=PATIENCE_S)

    def runs(self, job_id: str) -> dict[str, Any]:
        return self.cluster.reach(job_id, "RUNNING", timeout=PATIENCE_S)

    def output(self, job_id: str, generation: int = 0) -> list[str]:
        """What all ranks of a generation, or of the newest, have written so far."""

        async def read(client: Client) -> bytes:
            return b"".join([piece.data async for piece in client.stream_logs(job_id, generation=generation)])

        return self.cluster.ask(read).decode().splitlines()

    def no_container_of(self, job_id: str) -> None:
        self.cluster.until(lambda: not self.podman.containers(job_id), PATIENCE_S)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("boxes")
    with podman_view(folder) as podman, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{podman.bin}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        with started(folder / "c", hosts=1, gpus=1) as cluster:
            yield Site(cluster, podman, folder)
            # Each goes once its job has ended, which takes the agent a moment.
            cluster.until(lambda: podman.containers() == {}, PATIENCE_S)
        assert podman.containers() == {}


def sh(script: str) -> dict[str, Any]:
    return {"command": ["sh", "-c", script]}


def test_image_says_what_runs_unless_the_job_does(site: Site) -> None:
    plain = site.submit({})
    told = site.submit({"args": ["echo args see $(GREETING) and $AGAIN"], "env": [{"name": "AGAIN", "value": "1"}]})
    own = site.submit(
        sh("echo from $PWD rank $RANK of $WORLD_SIZE; ls /; cat /proc/self/comm"), ranks=2, replicas=1
    )
    for job_id in (plain, told, own):
        assert site.ends(job_id)["state"] == "JOB_STATE_SUCCEEDED", site.cluster.job(job_id)
    assert "the image says hello" in site.output(plain)[-1]
    assert "args see hello and 1" in site.output(told)[-1]
    lines = site.output(own)
    assert sum("of 4" in line for line in lines) == 4
    assert not any("home" in line for line in lines), "the host's files are seen"
    for job_id in (plain, told, own):
        site.no_container_of(job_id)


def test_results_and_output_lie_in_the_base_output_directory(site: Site) -> None:
    base = site.folder / "results, all"
    script = 'mkdir -p "$AIP_MODEL_DIR" && echo weights > "$AIP_MODEL_DIR/final" && echo saved'
    job_id = site.submit(sh(script), baseOutputDirectory={"outputUriPrefix": str(base)})
    assert site.ends(job_id)["state"] == "JOB_STATE_SUCCEEDED"
    assert (base / "model/final").read_text() == "weights\n"
    copied = base / f"rank-logs/{job_id}/g1/workerpool0-0.r0.out"
    site.cluster.until(lambda: copied.exists() and copied.read_text() == "saved\n", PATIENCE_S)


HANGS_ONCE = """
echo container $HOLDFAST_CONTAINER
cat /kept-$RANK 2>/dev/null
echo left by generation $HOLDFAST_GENERATION >> /kept-$RANK
ls /dev/shm; touch /dev/shm/left-behind-$HOLDFAST_GENERATION
for step in 1 2 3 4 5; do echo step=$HOLDFAST_GENERATION$step; sleep 0.1; done
if [ $HOLDFAST_GENERATION = 1 ]; then sleep 3600; fi
"""


def test_job_that_hangs_starts_again_in_the_same_container(site: Site) -> None:
    detection = {"floor": "5s", "startupTimeout": "8s", "stepPattern": r"step=(\d+)", "action": "RESTART"}
    job_id = site.submit(sh(HANGS_ONCE), ranks=2, faultTolerance={"hangDetection": detection})
    before = site.runs(job_id)
    (container,) = site.podman.containers(job_id)
    job = site.ends(job_id)
    assert (job["state"], job["attempt"], job["generation"]) == ("JOB_STATE_SUCCEEDED", 1, 2), job
    assert [hang["outcome"] for hang in job["hangs"]] == ["RESTARTED"]
    assert {e["reason"] for e in exits(job, generation=1).values()} == {"HANG_KILLED"}
    assert gone(rank_pids(before).values())
    first, second = site.output(job_id, 1), site.output(job_id, 2)
    assert any(f"container {container}" in line for line in first)
    assert any(f"container {container}" in line for line in second)
    assert not any("left by generation" in line for line in first)
    assert any("left by generation 1" in line for line in second)
    assert not any("left-behind-1" in line for line in second), "/dev/shm is not fresh"
    site.no_container_of(job_id)


def test_a_shell_beside_a_rank_is_in_its_container(site: Site) -> None:
    """With the rank's environment, a terminal of its own and what the image has; its end leaves the rank alone."""
    job_id = site.submit(sh("touch /tmp/of-the-rank; sleep 600"), ranks=2, enableWebAccess=True)
    site.runs(job_id)
    script = "echo rank $RANK; ls / /tmp; cat /proc/1/comm; exit 7"
    shell = ("job", "shell", job_id, "--rank", "1")
    done = site.cluster.holdfast(*shell, "--", "sh", "-c", script, check=False)
    assert done.returncode == 7 and done.stdout.startswith("rank 1\n"), done
    assert "of-the-rank" in done.stdout, "the rank's own files are seen"
    assert "home" not in done.stdout, "the host's files are seen"
    with typing(["-m", "holdfast", *shell], {"TERM": "xterm", **site.cluster.env}, rows=30, columns=91) as typist:
        typist.types("echo begun; sleep 500\r")
        typist.sees("\nbegun")
        typist.types("\x03")
        typist.sees("# ")  # what is typed before the prompt goes with what was interrupted
        typist.types("echo still $((6 * 7)); exit 3\r")
        typist.sees("still 42")
        assert typist.ends() == 3
    assert site.cluster.job(job_id)["state"] == "JOB_STATE_RUNNING"
    site.cluster.holdfast("cancel", job_id)
    site.ends(job_id)
    site.no_container_of(job_id)


def test_ends_of_ranks_are_true(site: Site) -> None:
    tolerance = {"maxWorkerRestarts": 0, "maxJobRetries": 0}
    code = site.submit(sh("exit 37"), faultTolerance=tolerance)
    killed = site.submit(sh("kill -SEGV $$$$"), faultTolerance=tolerance)
    lacks = site.submit({"command": ["no-such-program"]}, faultTolerance=tolerance)
    (end,) = exits(site.ends(code)).values()
    assert (end["exitCode"], end["signal"], end["reason"]) == (37, None, "NONZERO_EXIT")
    (end,) = exits(site.ends(killed)).values()
    assert (end["exitCode"], end["signal"], end["reason"]) == (None, 11, "SIGNALED")
    (end,) = exits(site.ends(lacks)).values()
    assert end["reason"] == "CANNOT_START"
    assert "no-such-program: no such file on PATH" in end["message"]


def test_cancelled_rank_gets_its_grace(site: Site) -> None:
    script = "trap 'echo saves; exit 3' TERM; echo begins; while :; do sleep 0.1; done"
    job_id = site.submit(sh(script), scheduling={"gracePeriod": "60s"})
    before = site.runs(job_id)
    site.cluster.until(lambda: any("begins" in line for line in site.output(job_id)), PATIENCE_S)
    site.cluster.end(job_id)
    job = site.cluster.job(job_id)
    (end,) = exits(job).values()
    assert (job["state"], end["exitCode"], end["reason"]) == ("JOB_STATE_CANCELLED", 3, "STOPPED")
    assert any("saves" in line for line in site.output(job_id))
    assert gone(rank_pids(before).values())
    site.no_container_of(job_id)


class Registry(http.server.BaseHTTPRequestHandler):
    """Has nothing, and takes for ever to say so of what is called slow."""

    protocol_version = "HTTP/1.1"
    asked, over = threading.Event(), threading.Event()

    def do_GET(self) -> None:
        if "slow" in self.path:
            self.asked.set()
            self.over.wait(PATIENCE_S)
        here = self.path == "/v2/"
        errors = [] if here else [{"code": "MANIFEST_UNKNOWN", "message": "nobody has pushed this", "detail": {}}]
        body = json.dumps({"errors": errors}).encode()
        self.send_response(200 if here else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[str]:
    """Where a registry of the test's listens."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            Registry.over.set()
            server.shutdown()
            thread.join()


def test_image_that_is_not_there_is_told_in_the_registrys_words_and_a_pull_ends_with_its_job(
    site: Site, registry: str
) -> None:
    slow = site.submit({"imageUri": f"{registry}/slow:1"})
    lacks = site.submit({"imageUri": f"{registry}/none:7"})
    job = site.ends(lacks)
    assert job["state"] == "JOB_STATE_FAILED"
    assert f"host-0: the image {registry}/none:7: " in job["error"]["message"]
    assert "manifest unknown" in job["error"]["message"]
    assert Registry.asked.wait(PATIENCE_S)
    assert "being prepared on host-0" in site.cluster.job(slow)["waitReason"]
    site.cluster.end(slow)
    assert site.cluster.job(slow)["state"] == "JOB_STATE_CANCELLED"
    assert not Registry.over.is_set()
    assert "cordoned" not in site.cluster.holdfast("host", "list").stdout


def test_agent_that_dies_leaves_its_container_and_takes_it_up_again(site: Site) -> None:
    script = (
        "while [ ! -e $HOME/go ]; do sleep 0.1; done; echo ran in $HOLDFAST_CONTAINER; exit $HOLDFAST_GENERATION"
    )
    job_id = site.submit(sh(script), faultTolerance={"maxWorkerRestarts": 1, "maxJobRetries": 0})
    stray = site.submit(sh("sleep 3600"))
    before, other = site.runs(job_id), site.runs(stray)
    (container,) = site.podman.containers(job_id)
    ((_, labels),) = site.podman.labels(stray).items()
    site.cluster.kill_agent("host-0")
    forgotten = labels | {"holdfast.job": "box-long-gone"}
    options = [f"--label={name}={value}" for name, value in forgotten.items()]
    site.podman.call("create", *options, IMAGE)
    site.podman.call("container", "exists", container)
    assert not gone(rank_pids(before).values())
    site.cluster.restart()
    assert rank_pids(site.runs(job_id)) == rank_pids(before)
    assert not gone({*rank_pids(before).values(), *rank_pids(other).values()})
    assert site.podman.containers(job_id) == {container: "running"}
    (site.cluster.dir / "hosts/host-0/state/scratch" / job_id / "go").touch()
    job = site.ends(job_id)
    assert [end["exitCode"] for end in (*exits(job, generation=1).values(), *exits(job).values())] == [1, 2]
    assert any(container in line for line in site.output(job_id, 2))
    site.cluster.end(stray)
    for ended in (job_id, stray, "box-long-gone"):
        site.no_container_of(ended)


def test_worker_whose_shim_dies_goes_on_in_its_container(site: Site) -> None:
    script = "echo ran in $HOLDFAST_CONTAINER; [ $HOLDFAST_GENERATION = 2 ] || exec sleep 3600"
    job_id = site.submit(sh(script))
    before = site.runs(job_id)
    (container,) = site.podman.containers(job_id)
    os.kill(before["workers"][0]["shimPid"], signal.SIGKILL)
    job = site.ends(job_id)
    assert (job["state"], job["attempt"], job["generation"]) == ("JOB_STATE_SUCCEEDED", 1, 2)
    assert [end["reason"] for end in exits(job, generation=1).values()] == ["LOST_SHIM_DIED"]
    assert gone(rank_pids(before).values())
    assert f"ran in {container}" in site.output(job_id, 2)
