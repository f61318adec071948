"""The JSON that scripts read, key by key."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from google.protobuf import json_format
from tests.unit.cli.pages.answers import full_host, full_job, full_status

from holdfast._sdk import json_view
from holdfast.v1 import host_pb2, job_pb2, spec_pb2

BINDING = {"cpus": "0-3,8-11", "exclusive": True, "memoryNodes": "0", "nics": ["mlx5_0"], "note": ""}


def test_a_job_in_full() -> None:
    assert json_view.job(full_job()) == {
        "id": "j1",
        "name": "jobs/j1",
        "displayName": "train",
        "jobSpec": {
            "workerPoolSpecs": [
                {
                    "machineSpec": {"acceleratorCount": 2, "memoryMb": 4096},
                    "replicaCount": 1,
                    "processSpec": {"command": ["python", "t.py"], "env": [{"name": "A"}]},
                    "processesPerWorker": 2,
                }
            ],
            "scheduling": {"timeout": "3600s"},
            "faultTolerance": {"maxWorkerRestarts": 0},
            "successPolicy": "SUCCESS_POLICY_ALL",
        },
        "labels": {"team": "x"},
        "annotations": {"note": "n"},
        "project": "default",
        "owner": "ada",
        "account": "",
        "state": "JOB_STATE_RUNNING",
        "createTime": "2026-11-21T04:00:00Z",
        "startTime": None,
        "endTime": None,
        "updateTime": None,
        "error": None,
        "attempt": 1,
        "generation": 2,
        "waitReason": "starting",
        "waitsFor": [],
        "array": None,
        "step": None,
        "stepTotal": None,
        "phase": "",
        "savedStep": None,
        "expectedEnd": None,
        "spareHosts": [],
        "workers": [
            {
                "name": "workerpool0-0",
                "host": "host-0",
                "state": "RUNNING",
                "shimPid": 12,
                "gpus": ["GPU-1"],
                "ranks": [
                    {"rank": 0, "localRank": 0, "pid": 34, "binding": BINDING},
                    {"rank": 1, "localRank": 1, "pid": None, "binding": None},
                ],
                "exits": [
                    {
                        "attempt": 1,
                        "generation": 1,
                        "rank": 0,
                        "exitCode": None,
                        "signal": None,
                        "coreDumped": False,
                        "reason": "LOST_SHIM_DIED",
                        "message": "",
                        "endTime": None,
                        "lateExit": {
                            "attempt": 1,
                            "generation": 1,
                            "rank": 0,
                            "exitCode": 0,
                            "signal": None,
                            "coreDumped": False,
                            "reason": "COMPLETED",
                            "message": "",
                            "endTime": None,
                            "lateExit": None,
                            "raised": None,
                            "hostFault": False,
                        },
                        "raised": None,
                        "hostFault": False,
                    },
                    {
                        "attempt": 1,
                        "generation": 2,
                        "rank": 0,
                        "exitCode": None,
                        "signal": 11,
                        "coreDumped": True,
                        "reason": "SIGNALED",
                        "message": "",
                        "endTime": "2026-11-21T04:00:01.500Z",
                        "lateExit": None,
                        "raised": None,
                        "hostFault": False,
                    },
                ],
                "warm": "2 ranks wait",
            }
        ],
        "recoveries": [
            {
                "attempt": 1,
                "generation": 2,
                "startedAt": "2026-11-21T04:00:02Z",
                "endedAt": None,
                "startType": "RESTARTED",
                "endReason": "SIGNALED",
                "endRelatedTask": "workerpool0-0 rank 0",
                "endRecover": "PROC_RESTART",
                "lostSeconds": 1.25,
                "phases": {"detect": 0.002, "diagnose": None, "stop": None, "start": None, "catchUp": None},
                "related": {"ranks": [{"worker": "workerpool0-0", "rank": 0}], "host": "", "job": "", "user": ""},
                "warm": True,
                "inProcessRanks": 0,
                "injected": False,
            }
        ],
        "hangs": [
            {
                "number": 1,
                "generation": 1,
                "since": "2026-11-21T04:00:00Z",
                "noticedAt": "2026-11-21T04:00:30Z",
                "diagnosedAt": None,
                "judgedAt": None,
                "rule": "GPUS_IDLE",
                "sentence": "no rank of 2 has moved for 30 s",
                "suspects": ["workerpool0-0 rank 1"],
                "suspectRanks": [{"worker": "workerpool0-0", "rank": 1}],
                "stacks": "",
                "outcome": "",
                "note": "",
                "step": 120,
            }
        ],
        "heldUntil": None,
        "health": "no rank of 2 has moved for 31 s",
        "archiveProblems": {},
        "summary": {
            "condition": "WAITS",
            "headline": "Starting on h",
            "health": "Starting on h",
            "happened": "ann submitted it at 04:00:00 UTC",
            "done": "Nothing had to be done",
            "advice": "Nothing: it goes on by itself",
            "command": "",
        },
    }


def test_lists_leave_the_workers_out() -> None:
    job = full_job()
    whole = json_view.job(job)
    del whole["workers"]
    assert json_view.job(job, workers=False) == whole


def test_an_error_keeps_an_absent_code_apart_from_zero() -> None:
    job = job_pb2.CustomJob(error=job_pb2.JobError(code=3, message="m", details=["d"]))
    assert json_view.job(job)["error"] == {
        "code": 3,
        "message": "m",
        "details": ["d"],
        "exitCode": None,
        "rank": None,
        "raised": "",
        "whyFinal": "",
    }
    job.error.exit_code = 7
    assert json_view.job(job)["error"]["exitCode"] == 7


def test_the_printed_spec_can_be_read_back() -> None:
    spec = full_job().job_spec
    assert json_format.ParseDict(json_view.spec(spec), spec_pb2.CustomJobSpec()) == spec


def test_an_empty_job_has_every_key_and_is_json() -> None:
    empty = json_view.job(job_pb2.CustomJob())
    assert empty.keys() == json_view.job(full_job()).keys()
    json.dumps(empty)


def test_an_event_keeps_whole_numbers_whole() -> None:
    event = job_pb2.WatchJobResponse(cursor=7, type="RankExited", message="m", state=job_pb2.JOB_STATE_RUNNING)
    event.data.update({"exit": {"rank": 3, "ok": False, "load": 0.5}, "list": [1, None]})
    assert json_view.event(event) == {
        "cursor": 7,
        "type": "RankExited",
        "time": None,
        "message": "m",
        "state": "JOB_STATE_RUNNING",
        "data": {"exit": {"rank": 3, "ok": False, "load": 0.5}, "list": [1, None]},
        "event": None,
    }
    assert isinstance(json_view.event(event)["data"]["exit"]["rank"], int)


def test_an_event_is_printed_with_its_kind_and_fields() -> None:
    related = job_pb2.Related(ranks=[job_pb2.RankName(worker="workerpool0-0", rank=0)])
    restarting = job_pb2.JobEvent.Restarting(generation=2, reason=job_pb2.END_REASON_SIGNALED, related=related)
    event = job_pb2.WatchJobResponse(event=job_pb2.JobEvent(restarting=restarting))
    assert json_view.event(event)["event"] == {
        "kind": "restarting",
        "generation": 2,
        "worker": "",
        "reason": "SIGNALED",
        "related": {"ranks": [{"worker": "workerpool0-0", "rank": 0}], "host": "", "job": "", "user": ""},
        "budget": "UNSPECIFIED",
        "hangRestarts": 0,
        "notBefore": None,
    }


@pytest.mark.parametrize(
    ("name", "view"),
    [
        ("job", lambda: json_view.job(full_job())),
        ("job-empty", lambda: json_view.job(job_pb2.CustomJob())),
        ("host", lambda: json_view.host(full_host())),
        ("host-empty", lambda: json_view.host(host_pb2.Host())),
        ("status", lambda: json_view.status(full_status())),
    ],
)
def test_printed_json_stays_as_it_is_byte_for_byte(name: str, view: Callable[[], object]) -> None:
    kept = Path(__file__).parent / "printed" / f"{name}.json"
    assert json.dumps(view(), indent=2) + "\n" == kept.read_text()


def test_a_host_in_full() -> None:
    host = host_pb2.Host(name="h", state=host_pb2.HOST_STATE_READY, cordoned=True, cordon_reason="fan", workers=1)
    host.labels["rack"] = "7"
    host.inventory.cpu_count = 8
    host.inventory.gpus.add(uuid="GPU-1", index=0, model="H100", memory_bytes=80, job_id="j1")
    host.inventory.gpus[0].state = host_pb2.GPU_STATE_FREE
    assert json_view.host(host) == {
        "name": "h",
        "state": "READY",
        "cordoned": True,
        "cordonedBy": "",
        "cordonedSince": None,
        "inDoubt": False,
        "maintenance": None,
        "failedChecks": [],
        "strangeWork": [],
        "cordonReason": "fan",
        "draining": False,
        "drained": False,
        "goingDown": False,
        "goingDownSince": None,
        "agentStoppedAt": None,
        "silentSince": None,
        "lostAt": None,
        "drainDeadline": None,
        "labels": {"rack": "7"},
        "address": "",
        "agentVersion": "",
        "refused": "",
        "bootId": "",
        "lastSeen": None,
        "cpuCount": 8,
        "cpuReserved": 0,
        "memoryBytes": 0,
        "memoryReservedBytes": 0,
        "workers": 1,
        "maxWorkers": 0,
        "gpuProblem": "",
        "spare": "",
        "machineTypes": [],
        "accounts": False,
        "accountsProblem": "",
        "containers": False,
        "containersProblem": "",
        "gpus": [
            {
                "uuid": "GPU-1",
                "index": 0,
                "model": "H100",
                "memoryBytes": 80,
                "problem": "",
                "jobId": "j1",
                "state": "FREE",
                "faults": [],
            }
        ],
        "jobIds": [],
    }
