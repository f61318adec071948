"""Steps, totals, phases and saves of a real program, from its process to what users are shown."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.e2e.cli_cluster import DevCluster, until
from tests.e2e.lifecycle_jobs import job_file

import holdfast

SAYS = """
import math, os, pathlib, sys, time
import holdfast

def wait_for(name):
    while not pathlib.Path(name).exists():
        time.sleep(0.05)

holdfast.resumed(100)
holdfast.progress(150, total=200)
wait_for("evaluate")
with holdfast.phase("evaluate"):
    wait_for("save")
with holdfast.saving(160):
    wait_for("saved")
holdfast.progress(math.nan, total=-1)
with holdfast.phase("nap"), holdfast.saving("x"):
    holdfast.saved(object())
wait_for("back")
holdfast.progress(170, total=200)
wait_for("done")
"""
PRINTS = """
import pathlib, sys, time
print(sys.argv[1], end=sys.argv[2].encode().decode("unicode_escape"), flush=True)
while not pathlib.Path("done").exists():
    time.sleep(0.05)
"""


def shown(cluster: DevCluster, job_id: str) -> dict[str, Any]:
    job = cluster.job(job_id)
    return {key: job[key] for key in ("step", "stepTotal", "phase", "savedStep")}


def shows(cluster: DevCluster, job_id: str, **wanted: object) -> None:
    until(lambda: shown(cluster, job_id).items() >= wanted.items(), what=f"for {wanted} of {job_id}")


def test_a_program_says_how_far_it_is_and_wrong_numbers_end_nothing(cluster: DevCluster, tmp_path: Path) -> None:
    job_id = cluster.detach("--replicas", "2", "--", sys.executable, "-W", "ignore", "-c", SAYS, cwd=tmp_path)
    shows(cluster, job_id, step=150, stepTotal=200, phase="train", savedStep=None)
    assert "150/200" in cluster.holdfast("ps").stdout
    assert "150/200 (75 %)" in cluster.holdfast("job", "show", job_id).stdout
    (tmp_path / "evaluate").touch()
    shows(cluster, job_id, phase="evaluate")
    assert "150/200 (75 %), evaluates" in cluster.holdfast("job", "show", job_id).stdout
    (tmp_path / "save").touch()
    shows(cluster, job_id, phase="save")
    (tmp_path / "saved").touch()
    shows(cluster, job_id, phase="train", step=150, stepTotal=None)
    (tmp_path / "back").touch()
    shows(cluster, job_id, step=170, stepTotal=200)
    with holdfast.Client(cluster.dir / "client.toml") as client:
        job = client.job(job_id)
        assert (job.step, job.step_total, job.phase) == (170, 200, "train") and "step 170/200" in repr(job)
        (tmp_path / "done").touch()
        assert job.wait(60).check().exit_codes == {0: 0, 1: 0}
        assert job.step is None, "of an ended job nothing runs"


def test_steps_come_from_lines_of_the_output(cluster: DevCluster, tmp_path: Path) -> None:
    def submit(line: str, end: str, **fields: Any) -> str:
        task = {"command": [sys.executable, "-c", PRINTS, line, end], "workingDirectory": str(tmp_path)}
        job = {"workerPoolSpecs": [{"replicaCount": 1, "processSpec": task}], **fields}
        (tmp_path / "job.json").write_text(json.dumps({"displayName": "lines", "jobSpec": job}))
        return str(cluster.holdfast("submit", str(tmp_path / "job.json")).stdout).strip()

    def pattern(text: str) -> dict[str, Any]:
        return {"faultTolerance": {"hangDetection": {"stepPattern": text}}}

    both = submit("iteration 7/ 500", "\\n", **pattern(r"iteration +(\d+)/ *(\d+)"))
    one = submit("step=8 loss=0.1", "\\n", progressTotal="600", **pattern(r"step=(\d+)"))
    bar = submit(" 5%|5    | 50/1000 [00:05<01:40,  9.4it/s]", "\\r")
    counted = submit("step 9 of 10", "\\n")
    none = submit("loss 9 after 10 s", "\\n")
    shows(cluster, both, step=7, stepTotal=500)
    shows(cluster, one, step=8, stepTotal=600)
    shows(cluster, bar, step=50, stepTotal=1000)
    shows(cluster, counted, step=9, stepTotal=10)
    assert cluster.job(one)["jobSpec"]["progressTotal"] == 600
    assert shown(cluster, none) == {"step": None, "stepTotal": None, "phase": "", "savedStep": None}
    (tmp_path / "done").touch()
    for job_id in (both, one, bar, counted, none):
        cluster.reach(job_id, "SUCCEEDED")


def test_a_step_right_before_the_end_is_progress(cluster: DevCluster, tmp_path: Path) -> None:
    program = (
        "import os, pathlib; done = pathlib.Path('done')\n"
        "step = len(done.read_text()) if done.exists() else 0\n"
        "with done.open('a') as file: file.write('x')\n"
        "print('step', step + 1, flush=True)\n"
        "if step < 2: raise ValueError('no such key')\n"
    )
    words = [sys.executable, "-I", "-S", "-c", program]
    file = job_file(tmp_path, "", command=words, workers=1, hangDetection={"stepPattern": r"step (\d+)"})
    job = cluster.reach(cluster.holdfast("submit", str(file)).stdout.strip(), "SUCCEEDED")
    assert job["generation"] == 3, "each launch came further, so the same error is not final"


def test_an_exception_that_goes_through_a_pipe_is_the_reason(cluster: DevCluster, tmp_path: Path) -> None:
    raises = f"{sys.executable} -I -S -c 'raise ValueError(7)'"
    file = job_file(tmp_path, "", command=["bash", "-c", f"exec > >(tee log) 2>&1; {raises}"], workers=1)
    job = cluster.reach(cluster.holdfast("submit", str(file)).stdout.strip(), "FAILED")
    assert job["error"]["raised"] == "ValueError: 7"
    assert "rank 0: ValueError: 7" in cluster.holdfast("ps").stdout
