"""Hangs from the command line and from the SDK, against a controller of the test's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from tests.integration.client.fake_controller import FakeController
from tests.unit.cli.pages.hangs import evidence, hung_job

from holdfast._session import hang_wire
from holdfast._session.hang_wire import WorkerEvidence
from holdfast.client import Client
from holdfast.errors import NotFound, WrongState
from holdfast.v1 import hang_pb2, job_pb2, spec_pb2

pytestmark = pytest.mark.anyio

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))
SENTENCE = b"no rank of 4 has moved for 31 s"


async def holdfast(controller: FakeController, tmp_path: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    config = controller.write_settings(tmp_path / "client.toml")
    env = {"PATH": os.environ["PATH"], "HOLDFAST_CONFIG": str(config), "HOME": str(tmp_path)}
    with anyio.fail_after(60):
        return await anyio.run_process([HOLDFAST, *words], env=env, check=False)


@pytest.fixture
def hung(controller: FakeController) -> FakeController:
    """Job j1 has hung twice; evidence of the first hang was kept, and both workers can be dumped."""
    job = controller.add_job(hung_job())
    job.owner = "user"
    for each in evidence():
        packed = hang_wire.pack(each)
        controller.evidence["j1", 1].append(hang_pb2.GetHangEvidenceResponse(worker=each.worker, content=packed))
        answer = hang_pb2.TakeStacksResponse(worker=each.worker, host=each.host, content=packed)
        controller.stacks["j1"].append(answer)
    return controller


async def test_a_hold_reaches_the_controller_and_ends(hung: FakeController) -> None:
    async with Client(hung.settings()) as client:
        assert (await client.suspend_hang_action("j1", 7200.5)).HasField("held_until")
        with pytest.warns(DeprecationWarning, match="suspend_hang_action"):
            assert not (await client.hold_job("j1", 0)).HasField("held_until")
    held = [request.duration.ToMilliseconds() for method, request in hung.calls if method == "HoldJob"]
    assert held == [7_200_500, 0]


async def test_dumps_come_worker_by_worker_with_their_problems(hung: FakeController) -> None:
    hung.stacks["j1"] += [
        hang_pb2.TakeStacksResponse(worker="workerpool1-1", host="host-2", problem="host-2 is not connected"),
        hang_pb2.TakeStacksResponse(worker="workerpool1-2", host="host-3", content=b"nonsense"),
        hang_pb2.TakeStacksResponse(worker="workerpool1-3", host="host-4"),
    ]
    async with Client(hung.settings()) as client:
        found = [each async for each in client.take_stacks("j1", [3])]
    assert found[:2] == [WorkerEvidence(each.worker, each.host, each) for each in evidence()]
    assert [each.evidence for each in found[2:]] == [None, None, None]
    problems = [each.problem for each in found[2:]]
    assert problems[0] == "host-2 is not connected"
    assert problems[1].startswith("what came is no evidence: ")
    assert problems[2] == "nothing came"
    assert [list(request.native_ranks) for method, request in hung.calls if method == "TakeStacks"] == [[3]]


async def test_kept_evidence_names_its_host(hung: FakeController) -> None:
    async with Client(hung.settings()) as client:
        found = [each async for each in client.hang_evidence("j1", 1)]
        assert [(each.worker, each.host) for each in found] == [
            ("workerpool0-0", "host-0"),
            ("workerpool1-0", "host-1"),
        ]
        assert [each async for each in client.hang_evidence("j1")] == []
        with pytest.raises(NotFound, match="no hang 3"):
            _ = [each async for each in client.hang_evidence("j1", 3)]


async def test_job_hangs_shows_each_verdict_and_the_evidence_of_the_newest(
    hung: FakeController, tmp_path: Path
) -> None:
    result = await holdfast(hung, tmp_path, "job", "hangs", "j1")
    assert result.returncode == 0
    assert result.stdout.count(SENTENCE) == 2
    assert result.stdout.endswith(b"Evidence of hang 2: none was kept.\n")
    assert b"The detector says: no rank of 4 has moved for 45 s" in result.stdout
    assert b"\x1b" not in result.stdout


async def test_one_hang_is_shown_with_its_evidence(hung: FakeController, tmp_path: Path) -> None:
    short = await holdfast(hung, tmp_path, "job", "hangs", "j1", "--number", "1")
    assert short.stdout.count(SENTENCE) == 1
    text = short.stdout.decode()
    assert "  outcome     killed and relaunched in place\n" in text
    odd = text.index("data_loader.py:212", text.index("Evidence of hang 1"))
    assert odd < text.index("all_reduce ", odd)
    full = await holdfast(hung, tmp_path, "job", "hangs", "j1", "--number", "1", "--full")
    assert len(full.stdout) > len(short.stdout)


async def test_hangs_as_json_hold_the_evidence(hung: FakeController, tmp_path: Path) -> None:
    result = await holdfast(hung, tmp_path, "job", "hangs", "j1", "--number", "1", "-o", "json")
    found = json.loads(result.stdout)
    assert list(found) == ["id", "state", "health", "heldUntil", "hangs", "evidence"]
    assert [hang["outcome"] for hang in found["hangs"]] == ["RESTARTED"]
    assert found["evidence"]["number"] == 1
    kept = found["evidence"]["workers"][1]
    assert (kept["worker"], kept["host"], kept["evidence"]["ranks"][1]["suspect"]) == (
        "workerpool1-0",
        "host-1",
        True,
    )


async def test_evidence_calls_those_suspects_that_the_hang_does(hung: FakeController, tmp_path: Path) -> None:
    """The ranks that were looked at closely were suspects of the notice; others are by now."""
    hang = hung.jobs["j1"].hangs[0]
    del hang.suspects[:], hang.suspect_ranks[:]
    hang.suspects.append("workerpool0-0 rank 0")
    hang.suspect_ranks.add(worker="workerpool0-0", rank=0)
    result = await holdfast(hung, tmp_path, "job", "hangs", "j1", "--number", "1", "-o", "json")
    workers = json.loads(result.stdout)["evidence"]["workers"]
    suspects = [
        (worker["worker"], rank["rank"])
        for worker in workers
        for rank in worker["evidence"]["ranks"]
        if rank.get("suspect")
    ]
    assert suspects == [("workerpool0-0", 0)]
    text = (await holdfast(hung, tmp_path, "job", "hangs", "j1", "--number", "1")).stdout.decode()
    assert text.count(", suspect: ") == 1
    assert "rank 0, suspect: " in text


async def test_a_job_without_hangs_says_what_detection_does(controller: FakeController, tmp_path: Path) -> None:
    controller.add_job(job_pb2.CustomJob(state=job_pb2.JOB_STATE_RUNNING, health="every rank works"))
    result = await holdfast(controller, tmp_path, "job", "hangs", "j1")
    assert result.stdout == b"No hang was noticed so far. The detector says: every rank works.\n"
    result = await holdfast(controller, tmp_path, "job", "hangs", "j1", "-o", "json")
    assert json.loads(result.stdout)["evidence"] == {"number": None, "workers": []}
    assert not [method for method, _ in controller.calls if method == "GetHangEvidence"]


async def test_a_hang_that_never_was_is_a_sentence(hung: FakeController, tmp_path: Path) -> None:
    result = await holdfast(hung, tmp_path, "job", "hangs", "j1", "--number", "3")
    assert result.returncode == 125
    assert result.stderr.decode().splitlines() == ["error: The job j1 has no hang 3.", "  It has 2."]


async def test_live_stacks_are_grouped_with_the_odd_ones_first(hung: FakeController, tmp_path: Path) -> None:
    result = await holdfast(hung, tmp_path, "job", "stacks", "j1", "--native", "3", "--native", "1")
    text = result.stdout.decode()
    assert result.returncode == 0
    assert text.index("workerpool1-0 rank 3 (") < text.index("workerpool0-0 ranks 0, 1 and workerpool1-0 rank 2 (")
    assert b"looking twice" in result.stderr
    assert [list(request.native_ranks) for method, request in hung.calls if method == "TakeStacks"] == [[3, 1]]


async def test_stacks_as_json(hung: FakeController, tmp_path: Path) -> None:
    result = await holdfast(hung, tmp_path, "job", "stacks", "j1", "-o", "json")
    assert [(each["worker"], each["problem"]) for each in json.loads(result.stdout)] == [
        ("workerpool0-0", ""),
        ("workerpool1-0", ""),
    ]
    assert result.stderr == b""


async def test_stacks_that_nobody_can_take_are_a_failure(hung: FakeController, tmp_path: Path) -> None:
    lost = hang_pb2.TakeStacksResponse(worker="workerpool0-0", host="host-0", problem="host-0 is not connected")
    hung.stacks["j1"] = [lost]
    result = await holdfast(hung, tmp_path, "job", "stacks", "j1")
    assert result.returncode == 125
    assert result.stdout == b"workerpool0-0 on host-0: host-0 is not connected\n"


async def test_stacks_of_what_does_not_run_or_exist_are_refused(hung: FakeController, tmp_path: Path) -> None:
    result = await holdfast(hung, tmp_path, "job", "stacks", "j1", "--native", "4")
    assert result.returncode == 2
    assert b"--native: 4 is no rank of this job (there is 0 to 3)" in result.stderr
    refusal = WrongState("The job j1 has no running ranks.", fix="Wait until it runs.")

    async with Client(hung.settings()) as client:
        hung.failures = [refusal]
        with pytest.raises(WrongState, match="no running ranks"):
            _ = [each async for each in client.take_stacks("j1")]


async def test_hold_says_until_when(hung: FakeController, tmp_path: Path) -> None:
    result = await holdfast(hung, tmp_path, "job", "hang-action", "j1", "off", "--for", "2h")
    assert result.returncode == 0
    assert result.stderr.startswith(b"holdfast: no hang of job j1 is acted on until 20")
    result = await holdfast(hung, tmp_path, "job", "show", "j1")
    assert b"left): no hang is acted on" in result.stdout
    result = await holdfast(hung, tmp_path, "job", "hang-action", "j1", "on")
    assert b"hangs of job j1 are acted on as it asks" in result.stderr


async def test_the_old_name_of_hang_action_works_with_a_hint(hung: FakeController, tmp_path: Path) -> None:
    result = await holdfast(hung, tmp_path, "job", "hold", "j1", "--for", "2h")
    assert result.returncode == 0
    first, second = result.stderr.splitlines()
    assert first == b"holdfast: job hold is now: holdfast job hang-action j1 off --for TIME"
    assert second.startswith(b"holdfast: no hang of job j1 is acted on until 20")
    assert (await holdfast(hung, tmp_path, "job", "hold", "j1", "--end")).returncode == 0
    assert (await holdfast(hung, tmp_path, "job", "hold", "j1")).returncode == 2
    assert b"\n  hold" not in (await holdfast(hung, tmp_path, "job", "--help")).stdout


async def test_a_job_that_has_ended_cannot_be_held(controller: FakeController, tmp_path: Path) -> None:
    controller.add_job(job_pb2.CustomJob(state=job_pb2.JOB_STATE_SUCCEEDED))
    result = await holdfast(controller, tmp_path, "job", "hang-action", "j1", "off", "--for", "5m")
    assert b"has ended already" in result.stderr


@pytest.mark.parametrize(
    "words",
    [(), ("off",), ("on", "--for", "2h"), ("off", "--for", "0"), ("off", "--for", "soon")],
    ids=["none", "for ever", "on for a time", "zero", "words"],
)
async def test_a_hold_is_for_a_time_or_ends(
    controller: FakeController, tmp_path: Path, words: tuple[str, ...]
) -> None:
    result = await holdfast(controller, tmp_path, "job", "hang-action", "j1", *words)
    assert result.returncode == 2
    assert controller.calls == []


async def test_run_asks_for_restarts_and_tells_of_hangs(controller: FakeController, tmp_path: Path) -> None:
    async def on_create(job: job_pb2.CustomJob) -> None:
        controller.event(job.id, "GangStarted", "generation 1 is running", "RUNNING")
        kinds = job_pb2.JobEvent
        noticed = kinds(hang_noticed=kinds.HangNoticed(sentence="no rank moves for 31 s"))
        words = "possible hang (GPUS_IDLE): no rank moves for 31 s"
        controller.event(job.id, "HangNoticed", words, what=noticed)
        judged = kinds(hang_judged=kinds.HangJudged(outcome=job_pb2.HANG_OUTCOME_RESTARTED))
        controller.event(job.id, "HangJudged", "hang confirmed", what=judged)
        controller.event(job.id, "RestartDecided", "restarting in place", what=kinds(restarting=kinds.Restarting()))
        controller.event(job.id, "GangStarted", "generation 2 is running")
        controller.event(job.id, "JobEnded", "SUCCEEDED", "SUCCEEDED")

    controller.on_create = on_create
    words = ("run", "--restart-on-hang", "--hang-timeout", "20m", "--", "python", "train.py")
    result = await holdfast(controller, tmp_path, *words)
    assert result.stderr.decode().splitlines()[1:-1] == [
        "holdfast: generation 1 is running",
        "holdfast: possible hang (GPUS_IDLE): no rank moves for 31 s",
        "holdfast: restarting in place",
        "holdfast: generation 2 is running",
    ]
    [created] = [request.job for method, request in controller.calls if method == "CreateJob"]
    hang = created.job_spec.fault_tolerance.hang_detection
    assert (hang.action, hang.timeout.ToSeconds()) == (spec_pb2.HANG_ACTION_RESTART, 1200)
