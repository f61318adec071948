"""From the outside: a job sent by curl as to a managed service, and word of it that outlives the controller."""

from __future__ import annotations

import http.server
import json
import subprocess
import threading
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cli_cluster import DevCluster, until

SECRET = "s3cret-of-the-hook"
WITHIN_S = 90.0
CUSTOM_JOBS = "/v1/projects/vision/locations/us-central1/customJobs"


class Hook(http.server.ThreadingHTTPServer):
    """A receiver of notifications that answers 500 until it is well."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Taking)
        self.well = False
        self.tried: list[dict[str, Any]] = []
        self.taken: list[dict[str, Any]] = []


class Taking(http.server.BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        (self.server.taken if self.server.well else self.server.tried).append(body)
        self.send_response(200 if self.server.well else 500)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def hook() -> Iterator[Hook]:
    with Hook() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def curl(cluster: DevCluster, path: str, *more: str) -> str:
    """What curl prints for a path, as the dev cluster's user."""
    pki = cluster.dir / "pki"
    port = tomllib.loads((cluster.dir / "dev.toml").read_text())["http_port"]
    who = ("--cacert", f"{pki}/ca.pem", "--cert", f"{pki}/user.pem", "--key", f"{pki}/user.key")
    command = ("curl", "-sS", "--noproxy", "*", "--max-time", "60", *who, *more, f"https://localhost:{port}{path}")
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.require("curl")
def test_job_sent_by_curl_runs_and_word_of_it_outlives_the_controller(
    make_cluster: Callable[..., DevCluster], hook: Hook, tmp_path: Path
) -> None:
    cluster = make_cluster(hosts=1, gpus=1)
    url = f"http://127.0.0.1:{hook.server_port}/{SECRET}"
    channel = f'\n[[notifications]]\nname = "ops"\nurl = "{url}"\nevents = ["STARTED", "COMPLETED"]\n'
    with (cluster.dir / "controller.toml").open("a") as file:
        file.write(channel)
    # With its agent, which would take its time before it dials again.
    cluster.kill("controller", "host-0")
    cluster.restart()

    pool = {
        "machineSpec": {"machineType": "n1-standard-4", "acceleratorType": "", "acceleratorCount": 1},
        "replicaCount": "1",
        "diskSpec": {"bootDiskType": "pd-ssd", "bootDiskSizeGb": 100},
        "processSpec": {"command": ["sh"], "args": ["-c", "echo $CLUSTER_SPEC; echo trained"]},
    }
    body = tmp_path / "request.json"
    job_spec = {
        "workerPoolSpecs": [pool],
        "scheduling": {"timeout": "3600s"},
        "notifications": [{"channel": "ops"}],
    }
    body.write_text(json.dumps({"displayName": "by-curl", "jobSpec": job_spec, "labels": {"a": "b"}}))
    kind = ("-H", "Content-Type: application/json; charset=utf-8", "-d", f"@{body}")
    made = json.loads(curl(cluster, f"{CUSTOM_JOBS}?requestId=1", "-X", "POST", *kind))
    assert made["name"] == f"{CUSTOM_JOBS.removeprefix('/v1/')}/{made['id']}"
    assert json.loads(curl(cluster, f"{CUSTOM_JOBS}?requestId=1", *kind))["id"] == made["id"]
    assert len(made["warnings"]) == 2 and "diskSpec" in made["warnings"][0]

    # The stream ends with the job, and the logs are there, byte for byte.
    history = [json.loads(line) for line in curl(cluster, f"/v1/jobs/{made['id']}:watch").splitlines() if line]
    assert history[-1]["type"] == "JobEnded" and history[-1]["state"] == "JOB_STATE_SUCCEEDED"
    text = curl(cluster, f"/v1/jobs/{made['id']}:logs?rank=0", "-H", "Accept: text/plain")
    assert text.endswith("trained\n")
    assert SECRET not in text
    assert [host["name"] for host in json.loads(curl(cluster, "/v1/hosts"))["hosts"]] == ["host-0"]

    until(lambda: hook.tried, WITHIN_S, "for a try")
    cluster.kill("controller", "host-0")
    hook.well = True
    cluster.restart()
    until(lambda: len(hook.taken) >= 2, WITHIN_S, "for both notifications")
    assert {news["event"]: news["job"]["id"] for news in hook.taken} == dict.fromkeys(
        ("STARTED", "COMPLETED"), made["id"]
    )
    assert hook.tried[0] in hook.taken, "the same words under the same id"
    assert SECRET not in (cluster.dir / "controller.log").read_text()
    assert SECRET not in cluster.holdfast("job", "show", made["id"], "-o", "json").stdout
