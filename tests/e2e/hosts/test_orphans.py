"""Callers that find no controller, aren't of this cluster, or are not what they say; and the daemons live on."""

from __future__ import annotations

import contextlib
import datetime
import json
import socket
import time
from pathlib import Path
from typing import Any

import anyio
import grpc
import pytest
from tests.e2e.bare_calls import INVALID, files, job_of, refusal, stubs
from tests.e2e.cli_cluster import DevCluster

from holdfast import errors, settings
from holdfast._base.identity import Identity, Kind
from holdfast._security import pki, tls
from holdfast._security.tls import TlsFiles
from holdfast.client import Client
from holdfast.v1 import access_pb2, agent_pb2, host_pb2, job_pb2, job_pb2_grpc

pytestmark = pytest.mark.usefixtures("alive", "serving")


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
            assert time.monotonic() - began < 20
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
    assert time.monotonic() - began < 20
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
            jobs = job_pb2_grpc.JobServiceStub(channel)
            found = refusal(lambda jobs=jobs: jobs.ListJobs(job_pb2.ListJobsRequest(), timeout=10))  # type: ignore[misc]
            assert found[0] is grpc.StatusCode.UNAVAILABLE


def test_a_dev_cluster_differs_only_in_who_made_its_ca(cluster: DevCluster, tmp_path: Path) -> None:
    """Roles, owners and the audit log hold there as anywhere."""
    cluster.ask(lambda client: client.access.add_user("vera", access_pb2.ROLE_VIEWER))
    people = {name: tmp_path / name for name in ("vera", "ulf")}
    for name, folder in people.items():
        folder.mkdir()
        made(cluster, folder, Identity("dev", Kind.USER, name))
    vera, ulf = (
        TlsFiles(files(cluster).ca, folder / "made.pem", folder / "made.key") for folder in people.values()
    )
    with stubs(cluster) as (jobs, _, _):
        job_id = jobs.CreateJob(job_pb2.CreateJobRequest(job=job_of())).job.id
    with stubs(cluster, vera) as (jobs, hosts, _):
        assert jobs.GetJob(job_pb2.GetJobRequest(id=job_id)).job.id == job_id
        code, _, sentence, _ = refusal(lambda: jobs.CancelJob(job_pb2.CancelJobRequest(id=job_id)))
        assert code is grpc.StatusCode.PERMISSION_DENIED
        assert sentence == f"The job {job_id} is admin's; only its owner and admins may do that."
        code, _, _, _ = refusal(lambda: hosts.Drain(host_pb2.DrainRequest(name="host-0")))
        assert code is grpc.StatusCode.PERMISSION_DENIED
    with stubs(cluster, ulf) as (jobs, _, _):
        _, _, sentence, _ = refusal(lambda: jobs.ListJobs(job_pb2.ListJobsRequest()))
        assert sentence.startswith("There is no user ulf in this cluster")
    kept = cluster.ask(lambda client: client.access.audit(refused=True))
    assert {("user/vera", "JobService/CancelJob"), ("user/ulf", "JobService/ListJobs")} <= {
        (entry.who, entry.call) for entry in kept
    }


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
