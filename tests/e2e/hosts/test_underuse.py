"""A job that leaves GPUs of a whole cluster unused, whose agent reads them from a script."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cli_cluster import DevCluster, started

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
GPUS = 4


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("signals") / "gpus.json"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, script: Path) -> Iterator[DevCluster]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("HOLDFAST_SIMULATED_SIGNALS", str(script))
        with started(tmp_path_factory.mktemp("lab"), hosts=1, gpus=GPUS) as cluster:
            yield cluster


def test_unused_gpus_are_told_survive_no_agent_and_pause_the_job_once_all_are(
    lab: DevCluster, script: Path, tmp_path: Path
) -> None:
    def use(*used: int) -> None:
        inventory = json.loads(lab.holdfast("host", "show", "host-0", "-o", "json").stdout)["gpus"]
        busy = {gpu["uuid"]: {"util_pct": 90 if number in used else 2} for number, gpu in enumerate(inventory)}
        script.write_text(json.dumps(busy))

    def words(*command: str) -> str:
        return " ".join(lab.holdfast(*command).stdout.split())

    def says(*command: str, of: str) -> None:
        lab.until(lambda: of in words(*command), 180)

    use(0)
    pool = {
        "replicaCount": 1,
        "machineSpec": {"acceleratorCount": GPUS},
        "processSpec": {"command": [sys.executable, "-c", "import time; time.sleep(3600)"]},
    }
    underuse = {"below": 5, "duration": "1m", "action": "PAUSE"}
    path = tmp_path / "job.json"
    path.write_text(
        json.dumps(
            {"displayName": "j", "jobSpec": {"workerPoolSpecs": [pool], "scheduling": {"underuse": underuse}}}
        )
    )
    job = lab.holdfast("submit", str(path)).stdout.strip()
    lab.reach(job, "RUNNING")
    says("job", "show", job, of="uses 1 of 4 GPUs: 3 below 5 % since")
    assert "uses 1 of 4 GPUs" in words("ps")
    follows = "it is paused once none of its GPUs was used for 60 s"
    assert follows in words("status", "-o", "json") and follows in words("job", "show", job)

    lab.kill_agent("host-0")
    lab.restart()
    says("job", "events", job, of="used again, or can't be read")

    use()
    lab.reach(job, "PAUSED", timeout=240)
    says("job", "show", job, of="paused by its underuse policy")
    assert "uses none of its 4 GPUs" in words("job", "events", job)
    found = json.loads(lab.holdfast("goodput", job, "-o", "json").stdout)
    assert 4 * 60_000 < found["unusedMs"] < found["totalMs"]
    assert "on GPUs that its ranks left idle" in words("goodput", job)
    lab.end(job)
