"""Bad input: a clear sentence, a stable reason, the right gRPC code; and the daemons live on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.e2e.bare_calls import INVALID, job_of, process, refusal, stubs
from tests.e2e.cli_cluster import DevCluster

from holdfast.v1 import host_pb2, job_pb2, spec_pb2

pytestmark = pytest.mark.usefixtures("alive", "serving")
UNMET = grpc.StatusCode.FAILED_PRECONDITION


def gpus(count: int, kind: str = "") -> spec_pb2.MachineSpec:
    return spec_pb2.MachineSpec(accelerator_count=count, accelerator_type=kind)


ENV_101 = [spec_pb2.EnvVar(name=f"V{number}", value="x") for number in range(101)]
PACKAGE = spec_pb2.PythonPackageSpec(executor_image_uri="x", package_uris=["y"], python_module="z")
POOL = "jobSpec.workerPoolSpecs[0]"


@pytest.mark.parametrize(
    ("job", "code", "reason", "field", "says"),
    [
        (job_of(replica_count=0), INVALID, "INVALID_SPEC", f"{POOL}.replicaCount", "replicaCount"),
        (job_of(replica_count=-1), INVALID, "INVALID_SPEC", f"{POOL}.replicaCount", "1"),
        (
            job_of(process_spec=process(command=[])),
            INVALID,
            "INVALID_SPEC",
            f"{POOL}.processSpec.command",
            "command",
        ),
        (job_of(process_spec=None), INVALID, "INVALID_SPEC", POOL, "no task"),
        (job_of(process_spec=process(env=ENV_101)), INVALID, "INVALID_SPEC", f"{POOL}.processSpec.env", "100"),
        (
            job_of(process_spec=process(args=["x" * 50_000, "y" * 50_001])),
            INVALID,
            "INVALID_SPEC",
            f"{POOL}.processSpec.args",
            "100,000",
        ),
        (job_pb2.CustomJob(display_name="none"), INVALID, "INVALID_SPEC", "jobSpec.workerPoolSpecs", "missing"),
        (job_of(processes_per_worker=-1), INVALID, "INVALID_SPEC", f"{POOL}.processesPerWorker", "1"),
        (job_of(machine_spec=gpus(3)), UNMET, "NEVER_FITS", "jobSpec.workerPoolSpecs", "3 GPUs"),
        (
            job_of(process_spec=None, python_package_spec=PACKAGE),
            INVALID,
            "INVALID_SPEC",
            f"{POOL}.pythonPackageSpec.packageUris[0]",
            "no bundle",
        ),
    ],
)
def test_bad_job_is_refused_with_its_field(
    cluster: DevCluster, job: job_pb2.CustomJob, code: grpc.StatusCode, reason: str, field: str, says: str
) -> None:
    with stubs(cluster) as (jobs, _, _):

        def known() -> set[str]:
            return {each.id for each in jobs.ListJobs(job_pb2.ListJobsRequest(page_size=1000)).jobs}

        before = known()
        found = refusal(lambda: jobs.CreateJob(job_pb2.CreateJobRequest(job=job)))
        assert found[:2] == (code, reason), found
        assert list(found[3]) == [field]
        assert says in found[2], "the sentence itself tells, too"
        assert known() == before


def test_every_limit_may_be_reached(cluster: DevCluster) -> None:
    env = [spec_pb2.EnvVar(name=f"V{number}", value="x") for number in range(100)]
    job = job_of(process_spec=process(args=["x" * 50_000, "y" * 50_000], env=env), machine_spec=gpus(2))
    made = cluster.ask(lambda client: client.create_job(job))
    assert cluster.reach(made.id, "SUCCEEDED", "FAILED")["state"] == "JOB_STATE_SUCCEEDED"


def test_all_gpus_of_all_hosts_fit_and_one_more_does_not(cluster: DevCluster) -> None:
    fits = cluster.holdfast("run", "--replicas", "4", "--gpus", "1", "--", "true", check=False)
    assert fits.returncode == 0, fits.stderr
    never = cluster.holdfast("run", "--replicas", "5", "--gpus", "1", "--", "true", check=False)
    assert never.returncode == 2
    assert "could not hold the job even when empty" in never.stderr


@pytest.mark.parametrize(
    ("change", "path", "says"),
    [
        ({"replicaCout": 1}, f"{POOL}.replicaCout", "replicaCount"),
        ({"replicaCount": "many"}, f"{POOL}.replicaCount", "many"),
        ({"replicaCount": 0}, f"{POOL}.replicaCount", "0"),
        ({"machineSpec": 3}, f"{POOL}.machineSpec", "3"),
        ({"processSpec": {"args": ["x"]}}, f"{POOL}.processSpec.command", "missing"),
        ({"processSpec": {"command": "true"}}, f"{POOL}.processSpec.command", "must be a list"),
        ({"processSpec": {"command": ["true"], "env": [{"name": f"V{n}"} for n in range(101)]}}, ".env", "101"),
        ({"processSpec": {"command": ["true"], "args": ["x" * 100_001]}}, f"{POOL}.processSpec.args", "100,001"),
        ({"machineSpec": {"acceleratorCount": 99}}, "jobSpec.workerPoolSpecs", "99 GPUs"),
    ],
)
def test_bad_job_file_is_told_by_field_and_is_2(
    cluster: DevCluster, tmp_path: Path, change: dict[str, Any], path: str, says: str
) -> None:
    pool = {"replicaCount": 1, "processSpec": {"command": ["true"]}} | change
    (tmp_path / "job.json").write_text(json.dumps({"displayName": "bad", "jobSpec": {"workerPoolSpecs": [pool]}}))
    done = cluster.holdfast("submit", str(tmp_path / "job.json"), check=False)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert path in done.stderr and says in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_all_errors_of_a_file_come_at_once(cluster: DevCluster) -> None:
    text = "jobSpec: {workerPoolSpecs: [{replicaCount: 0, proccessSpec: {}, machineSpec: {cpuCount: lots}}]}"
    done = cluster.holdfast("submit", "-", input=text, check=False)
    assert done.returncode == 2
    for part in ("replicaCount", "proccessSpec", "cpuCount", "processSpec"):
        assert part in done.stderr


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "just words", "a: b: c", "\x00", "&a [*a]", "!!python/object:os.x {}"]
)
def test_text_that_is_no_job_file_is_told_so(cluster: DevCluster, text: str) -> None:
    done = cluster.holdfast("submit", "-", input=text, check=False)
    assert done.returncode == 2, done.stderr
    assert "stdin" in done.stderr
    assert "Traceback" not in done.stderr


def test_file_that_is_not_there_is_told_so(cluster: DevCluster) -> None:
    done = cluster.holdfast("submit", "/no/such/job.yaml", check=False)
    assert done.returncode == 2
    assert "/no/such/job.yaml" in done.stderr and "No such file" in done.stderr


# Unknown names


@pytest.mark.parametrize("name", ["no-such-job", "", "x" * 10_000, "../../etc/passwd", "☃\n"])
def test_unknown_job_id_is_not_found_on_every_call(cluster: DevCluster, name: str) -> None:
    with stubs(cluster) as (jobs, hosts, _):
        for call in (
            lambda: jobs.GetJob(job_pb2.GetJobRequest(id=name)),
            lambda: jobs.CancelJob(job_pb2.CancelJobRequest(id=name)),
            lambda: jobs.RestartJob(job_pb2.RestartJobRequest(id=name)),
            lambda: jobs.WatchJob(job_pb2.WatchJobRequest(id=name)),
            lambda: jobs.StreamLogs(job_pb2.StreamLogsRequest(id=name, follow=True)),
            lambda: hosts.GetHost(host_pb2.GetHostRequest(name=name)),
            lambda: hosts.Cordon(host_pb2.CordonRequest(name=name)),
            lambda: hosts.Uncordon(host_pb2.UncordonRequest(name=name)),
        ):
            assert refusal(call)[:2] == (grpc.StatusCode.NOT_FOUND, "NOT_FOUND")


@pytest.mark.parametrize(
    "command",
    [
        ("job", "show"),
        ("job", "events"),
        ("job", "watch"),
        ("job", "restart"),
        ("cancel",),
        ("logs",),
        ("logs", "-f"),
    ],
)
def test_unknown_job_id_is_told_and_is_125(cluster: DevCluster, command: tuple[str, ...]) -> None:
    done = cluster.holdfast(*command, "no-such-job", check=False)
    assert done.returncode == 125
    assert "There is no job 'no-such-job'" in done.stderr


def test_unknown_host_is_told_and_is_125(cluster: DevCluster) -> None:
    for command in ("show", "cordon", "uncordon"):
        done = cluster.holdfast("host", command, "host-99", check=False)
        assert done.returncode == 125
        assert "host-99" in done.stderr


def test_what_else_a_caller_can_get_wrong(cluster: DevCluster) -> None:
    done = cluster.holdfast("run", "--detach", "--", "true").stdout.strip()
    cluster.reach(done, "SUCCEEDED")
    with stubs(cluster) as (jobs, _, _):
        listing = job_pb2.ListJobsRequest
        for call, code, reason in (
            (lambda: jobs.ListJobs(listing(filter="colour=red")), INVALID, "INVALID_INPUT"),
            (lambda: jobs.ListJobs(listing(page_size=-1)), INVALID, "INVALID_INPUT"),
            (lambda: jobs.ListJobs(listing(page_size=1001)), INVALID, "INVALID_INPUT"),
            (lambda: jobs.ListJobs(listing(page_token="x")), INVALID, "INVALID_INPUT"),
            (lambda: jobs.RestartJob(job_pb2.RestartJobRequest(id=done)), UNMET, "WRONG_STATE"),
            (lambda: jobs.StreamLogs(job_pb2.StreamLogsRequest(id=done, ranks=[1])), INVALID, "INVALID_INPUT"),
            (lambda: jobs.StreamLogs(job_pb2.StreamLogsRequest(id=done, workers=["w"])), INVALID, "INVALID_INPUT"),
            (lambda: jobs.StreamLogs(job_pb2.StreamLogsRequest(id=done, generation=2)), INVALID, "INVALID_INPUT"),
            (
                lambda: jobs.WatchJob(job_pb2.WatchJobRequest(id=done, cursor=-1)),
                grpc.StatusCode.OUT_OF_RANGE,
                "CURSOR_EXPIRED",
            ),
            (
                lambda: jobs.CreateJob(job_pb2.CreateJobRequest(job=job_of(), request_id="x" * 129)),
                INVALID,
                "INVALID_INPUT",
            ),
        ):
            assert refusal(call)[:2] == (code, reason)


def test_message_beyond_all_bounds_is_refused(cluster: DevCluster) -> None:
    large = job_of(process_spec=process(args=["x" * (2 << 20)]))
    huge = job_of(process_spec=process(args=["x" * (5 << 20)]))
    with stubs(cluster) as (jobs, _, _):
        assert refusal(lambda: jobs.CreateJob(job_pb2.CreateJobRequest(job=large)))[:2] == (INVALID, "INVALID_SPEC")
        code, _, _, _ = refusal(lambda: jobs.CreateJob(job_pb2.CreateJobRequest(job=huge)))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_same_request_id_makes_one_job(cluster: DevCluster) -> None:
    with stubs(cluster) as (jobs, _, _):
        request = job_pb2.CreateJobRequest(job=job_of(), request_id="twice")
        first, second = jobs.CreateJob(request).job, jobs.CreateJob(request).job
    assert first.id == second.id
    cluster.reach(first.id, "SUCCEEDED")
