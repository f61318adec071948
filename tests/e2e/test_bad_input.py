"""Bad input and wrong callers: a clear sentence, a stable reason, the right gRPC code; and the daemons live on.

Longer than 400 lines because it is one list of abuses of one cluster, which takes seconds to start.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from tests.e2e.cluster import DevCluster, gone

from holdfast import errors, pki, settings, tls
from holdfast.client import Client
from holdfast.identity import Identity, Kind
from holdfast.tls import TlsFiles
from holdfast.v1 import agent_pb2, agent_pb2_grpc, host_pb2, host_pb2_grpc, job_pb2, job_pb2_grpc, spec_pb2

Stubs = tuple[Any, Any, Any]
INVALID, UNMET = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION


@pytest.fixture(autouse=True)
def alive(cluster: DevCluster) -> Iterator[None]:
    """After each test the same daemons as before it still answer."""
    before = cluster.pids()
    yield
    assert cluster.pids() == before
    assert not gone(before.values())
    hosts = {host.name: host.state for host in cluster.ask(Client.list_hosts)}
    assert [hosts[name] for name in ("host-0", "host-1")] == [host_pb2.HOST_STATE_READY] * 2


@pytest.fixture(autouse=True, scope="module")
def serving(cluster: DevCluster) -> Iterator[None]:
    """After all of them the cluster still runs jobs, on every host."""
    yield
    done = cluster.holdfast(
        "run", "--replicas", "2", "--gpus", "2", "--all", "--", "sh", "-c", "echo on $HOLDFAST_HOST"
    )
    assert "on host-0" in done.stdout and "on host-1" in done.stdout


def files(cluster: DevCluster) -> TlsFiles:
    return TlsFiles(*(cluster.dir / "pki" / name for name in ("ca.pem", "user.pem", "user.key")))


@contextlib.contextmanager
def stubs(cluster: DevCluster, credentials: TlsFiles | None = None) -> Iterator[Stubs]:
    """The bare services, without any of the SDK's kindness."""
    target = settings.load(cluster.dir / "client.toml").controller
    options = [("grpc.ssl_target_name_override", tls.SERVER_NAME), ("grpc.use_local_subchannel_pool", 1)]
    with grpc.secure_channel(target, tls.channel_credentials(credentials or files(cluster)), options) as channel:
        yield (
            job_pb2_grpc.JobServiceStub(channel),
            host_pb2_grpc.HostServiceStub(channel),
            agent_pb2_grpc.AgentServiceStub(channel),
        )


def refusal(call: Callable[[], Any]) -> tuple[grpc.StatusCode, str, str, dict[str, str]]:
    """(code, reason, sentence, problem of each field) of a call that must fail; streams are read."""
    with pytest.raises(grpc.RpcError) as caught:
        list(answer) if hasattr(answer := call(), "__next__") else None
    error = caught.value
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    rich = rpc_status.from_call(error)
    for detail in rich.details if rich else ():
        if not detail.Unpack(info):
            detail.Unpack(bad)
    fields = {violation.field: violation.description for violation in bad.field_violations}
    return error.code(), info.reason, error.details(), fields


def job_of(**pool: Any) -> job_pb2.CustomJob:
    """A good job of one worker, but for what ``pool`` says."""
    good = {"replica_count": 1, "process_spec": spec_pb2.ProcessSpec(command=["true"])}
    spec = spec_pb2.CustomJobSpec(worker_pool_specs=[spec_pb2.WorkerPoolSpec(**(good | pool))])
    return job_pb2.CustomJob(display_name="bad", job_spec=spec)


def process(**fields: Any) -> spec_pb2.ProcessSpec:
    return spec_pb2.ProcessSpec(**({"command": ["true"]} | fields))


def gpus(count: int, kind: str = "") -> spec_pb2.MachineSpec:
    return spec_pb2.MachineSpec(accelerator_count=count, accelerator_type=kind)


ENV_101 = [spec_pb2.EnvVar(name=f"V{number}", value="x") for number in range(101)]
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
            job_of(machine_spec=gpus(1, "NO_SUCH_GPU")),
            UNMET,
            "NEVER_FITS",
            "jobSpec.workerPoolSpecs",
            "NO_SUCH_GPU",
        ),
        (
            job_of(process_spec=None, container_spec=spec_pb2.ContainerSpec(image_uri="x")),
            grpc.StatusCode.UNIMPLEMENTED,
            "TASK_KIND_UNAVAILABLE",
            f"{POOL}.containerSpec",
            "container",
        ),
    ],
)
def test_bad_job_is_refused_with_its_field(
    cluster: DevCluster, job: job_pb2.CustomJob, code: grpc.StatusCode, reason: str, field: str, says: str
) -> None:
    with stubs(cluster) as (jobs, _, _):
        found = refusal(lambda: jobs.CreateJob(job_pb2.CreateJobRequest(job=job)))
        assert found[:2] == (code, reason), found
        assert list(found[3]) == [field]
        assert says in found[2], "the sentence itself tells, too"
        assert not [
            j for j in jobs.ListJobs(job_pb2.ListJobsRequest(page_size=1000)).jobs if j.display_name == "bad"
        ]


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


# No controller, or not ours


def settings_file(
    tmp_path: Path, cluster: DevCluster, credentials: TlsFiles, controller: str = ""
) -> dict[str, str]:
    """The environment of a user with these settings."""
    address = controller or settings.load(cluster.dir / "client.toml").controller
    values = {"controller": address, "ca": credentials.ca, "cert": credentials.cert, "key": credentials.key}
    (tmp_path / "client.toml").write_text("".join(f"{key} = {json.dumps(str(v))}\n" for key, v in values.items()))
    return {"HOLDFAST_CONFIG": str(tmp_path / "client.toml")}


def test_controller_that_is_not_there_is_told_soon(cluster: DevCluster, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        env = settings_file(tmp_path, cluster, files(cluster), address)
        for command in (("ps",), ("run", "--", "true"), ("logs", "-f", "x")):
            began = time.monotonic()
            done = cluster.holdfast(*command, env=env, check=False)
            assert time.monotonic() - began < 8
            assert done.returncode == 125
            assert f"No controller answers at {address}" in done.stderr
            assert "Traceback" not in done.stderr


def test_controller_that_accepts_and_never_speaks_is_given_up(cluster: DevCluster, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        env = settings_file(tmp_path, cluster, files(cluster), f"127.0.0.1:{deaf.getsockname()[1]}")
        began = time.monotonic()
        done = cluster.holdfast("ps", env=env, check=False)
        assert time.monotonic() - began < 20
    assert done.returncode == 125
    assert "controller" in done.stderr and "Traceback" not in done.stderr


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA of the same cluster's name that nobody here trusts, and a user of its making."""
    directory = tmp_path_factory.mktemp("others")
    pki.create_ca("dev", directory)
    pki.issue(directory, Identity("dev", Kind.USER, "admin"), directory, "user")
    return directory


def made(cluster: DevCluster, directory: Path, identity: Identity, **more: Any) -> TlsFiles:
    """A certificate that our CA has signed."""
    return pki.issue(cluster.dir / "pki", identity, directory, "made", **more)


def strangers(cluster: DevCluster, tmp_path: Path, others: Path) -> dict[str, TlsFiles]:
    ours = files(cluster)
    past = datetime.timedelta(seconds=-1)
    (tmp_path / "expired").mkdir()
    return {
        "of another CA": TlsFiles(ours.ca, others / "user.pem", others / "user.key"),
        "trusting another CA": TlsFiles(others / "ca.pem", ours.cert, ours.key),
        "expired": made(cluster, tmp_path / "expired", Identity("dev", Kind.USER, "admin"), lifetime=past),
    }


@pytest.mark.parametrize("who", ["of another CA", "trusting another CA", "expired"])
def test_stranger_is_turned_away_in_the_handshake(
    cluster: DevCluster, tmp_path: Path, others: Path, who: str
) -> None:
    credentials = strangers(cluster, tmp_path, others)[who]
    with stubs(cluster, credentials) as (jobs, _, agents):
        for call in (
            lambda: jobs.ListJobs(job_pb2.ListJobsRequest(), timeout=10),
            lambda: agents.Session(iter([agent_pb2.SessionRequest()]), timeout=10),
        ):
            assert refusal(call)[0] is grpc.StatusCode.UNAVAILABLE
    began = time.monotonic()
    done = cluster.holdfast("ps", env=settings_file(tmp_path, cluster, credentials), check=False)
    assert time.monotonic() - began < 8
    assert done.returncode == 125
    assert "certificate" in done.stderr, done.stderr
    # With TLS 1.3 a client never hears why its own certificate was refused.
    expected = errors.Unauthenticated if who == "trusting another CA" else errors.Unavailable
    with pytest.raises(expected, match="certificate"):
        cluster_as(tmp_path)


def cluster_as(tmp_path: Path) -> Any:
    """List hosts with the settings in ``tmp_path``."""

    async def work() -> Any:
        async with Client(settings.load(tmp_path / "client.toml")) as client:
            return await client.list_hosts()

    return anyio.run(work)


def test_host_is_no_user_and_user_is_no_host(cluster: DevCluster, tmp_path: Path) -> None:
    home = cluster.dir / "hosts" / "host-0"
    host = TlsFiles(files(cluster).ca, home / "agent.pem", home / "agent.key")
    with stubs(cluster, host) as (jobs, hosts, _):
        for call in (
            lambda: jobs.CreateJob(job_pb2.CreateJobRequest(job=job_of())),
            lambda: jobs.GetJob(job_pb2.GetJobRequest(id="x")),
            lambda: jobs.ListJobs(job_pb2.ListJobsRequest()),
            lambda: jobs.CancelJob(job_pb2.CancelJobRequest(id="x")),
            lambda: jobs.RestartJob(job_pb2.RestartJobRequest(id="x")),
            lambda: jobs.WatchJob(job_pb2.WatchJobRequest(id="x")),
            lambda: jobs.StreamLogs(job_pb2.StreamLogsRequest(id="x")),
            lambda: hosts.ListHosts(host_pb2.ListHostsRequest()),
            lambda: hosts.GetHost(host_pb2.GetHostRequest(name="x")),
            lambda: hosts.WatchHosts(host_pb2.WatchHostsRequest()),
            lambda: hosts.Cordon(host_pb2.CordonRequest(name="host-1")),
            lambda: hosts.Uncordon(host_pb2.UncordonRequest(name="host-1")),
        ):
            assert refusal(call)[:2] == (grpc.StatusCode.PERMISSION_DENIED, "DENIED")
    done = cluster.holdfast("ps", env=settings_file(tmp_path, cluster, host), check=False)
    assert done.returncode == 125
    assert "holdfast://dev/host/host-0 is a host; this call is for a user" in done.stderr
    with stubs(cluster) as (_, _, agents):
        for call in (
            lambda: agents.Session(iter([agent_pb2.SessionRequest(hello=agent_pb2.Hello())])),
            lambda: agents.Transfer(iter([agent_pb2.TransferRequest(hello=agent_pb2.TransferHello())])),
        ):
            assert refusal(call)[:2] == (grpc.StatusCode.PERMISSION_DENIED, "DENIED")


@pytest.mark.parametrize("kind", [Kind.USER, Kind.HOST])
def test_certificate_of_another_cluster_is_denied(cluster: DevCluster, tmp_path: Path, kind: Kind) -> None:
    credentials = made(cluster, tmp_path, Identity("production", kind, "admin"))
    with stubs(cluster, credentials) as (jobs, _, agents):
        for call in (
            lambda: jobs.ListJobs(job_pb2.ListJobsRequest()),
            lambda: agents.Session(iter([agent_pb2.SessionRequest(hello=agent_pb2.Hello())])),
        ):
            assert refusal(call)[:2] == (grpc.StatusCode.PERMISSION_DENIED, "DENIED")


def test_without_a_certificate_nobody_gets_in(cluster: DevCluster) -> None:
    target = settings.load(cluster.dir / "client.toml").controller
    bare = grpc.ssl_channel_credentials(root_certificates=files(cluster).ca.read_bytes())
    options = [("grpc.ssl_target_name_override", tls.SERVER_NAME)]
    for channel in (grpc.secure_channel(target, bare, options), grpc.insecure_channel(target)):
        with channel:
            jobs = job_pb2_grpc.JobServiceStub(channel)  # type: ignore[no-untyped-call]
            found = refusal(lambda jobs=jobs: jobs.ListJobs(job_pb2.ListJobsRequest(), timeout=10))  # type: ignore[misc]
            assert found[0] is grpc.StatusCode.UNAVAILABLE


def test_noise_on_the_port_hurts_nobody(cluster: DevCluster) -> None:
    host, _, port = settings.load(cluster.dir / "client.toml").controller.rpartition(":")
    for noise in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"\0" * 1000, bytes(range(256)) * 64):
        with socket.create_connection((host, int(port)), timeout=5) as link, contextlib.suppress(OSError):
            link.sendall(noise)
            link.shutdown(socket.SHUT_WR)
            while link.recv(4096):
                pass


def test_session_that_talks_nonsense_hurts_nobody(cluster: DevCluster, tmp_path: Path) -> None:
    """A host of ours whose agent has lost its mind."""
    credentials = made(cluster, tmp_path, Identity("dev", Kind.HOST, "host-9"))
    report = agent_pb2.WorkerReport(job_id="no-such", worker="w", state=99, generation=-1)  # type: ignore[arg-type]
    ended = agent_pb2.ExitReport(job_id="no-such", worker="w", exit=job_pb2.Exit(rank=-1, generation=9))
    with stubs(cluster, credentials) as (_, _, agents):
        code, _, _, _ = refusal(lambda: agents.Session(iter([agent_pb2.SessionRequest(worker_report=report)])))
        assert code is INVALID
        says = [agent_pb2.SessionRequest(worker_report=report), agent_pb2.SessionRequest(exit_report=ended)]
        with contextlib.suppress(grpc.RpcError):
            list(agents.Session(iter([agent_pb2.SessionRequest(), *says]), timeout=5))
