"""A controller that stands still for many leases, stopped or held by its own code, ends nothing."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from tests.e2e.cli_cluster import DevCluster, Json, rank_pids, started

from holdfast.client import Client
from holdfast.v1 import host_pb2

LEASES = "heartbeat_interval = 0.5\nsuspect_after = 2\nlease = 4\nlost_after = 5\n"
STILL_S = 24.0
"""Five times as long as a host may be silent, and longer than a call of the command line waits."""
HOLD = f"""
import signal, sys, time

def hold_the_loop(*_):
    end = time.monotonic() + {STILL_S}
    while time.monotonic() < end:
        pass

if "holdfast_controller" in sys.orig_argv:
    signal.signal(signal.SIGUSR1, hold_the_loop)
"""
SLEEPS = "import time\nwhile True:\n    time.sleep(0.2)"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    """Two hosts with a GPU each; a SIGUSR1 makes the controller's own code hold its event loop."""
    folder = tmp_path_factory.mktemp("still")
    (folder / "sitecustomize.py").write_text(HOLD)
    with pytest.MonkeyPatch.context() as patched, started(folder / "c", hosts=2, gpus=1) as made:
        patched.setenv("PYTHONPATH", str(folder))
        patched.delenv("HOLDFAST_STALLS", raising=False)
        made.kill("controller")
        settings = made.dir / "controller.toml"
        settings.write_text(settings.read_text() + LEASES)
        made.restart()
        yield made


def gang(cluster: DevCluster) -> Json:
    """Two workers, one on each host, with the default policy; they have heard each other."""
    run = ("--max-restarts", "0", "--gpus", "1", "--replicas", "2", "--", sys.executable, "-c", SLEEPS)
    job = cluster.reach(cluster.detach(*run), "RUNNING")
    time.sleep(2.0)
    return job


@contextlib.contextmanager
def standing_still(cluster: DevCluster, how: signal.Signals) -> Iterator[None]:
    """The controller stands still for ``STILL_S`` at least, and is answering again afterwards."""
    leader = cluster.pid("controller")
    began = time.monotonic()
    os.kill(leader, how)
    try:
        yield
        time.sleep(max(0.0, STILL_S - (time.monotonic() - began)))
    finally:
        if how is signal.SIGSTOP:
            os.kill(leader, signal.SIGCONT)
    cluster.until(lambda: cluster.holdfast("ps", check=False).returncode == 0, 60)


def logged(cluster: DevCluster, event: str) -> list[Json]:
    lines = (cluster.dir / "controller.log").read_text().splitlines()
    ours = (line for line in lines if line.startswith("{"))  # gRPC may write of a connection that it gives up
    return [entry for line in ours if (entry := json.loads(line))["event"] == event]


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGUSR1], ids=["stopped", "held by its own code"])
def test_nothing_ends_because_the_controller_stood_still(cluster: DevCluster, how: signal.Signals) -> None:
    cluster.make_idle()
    before = gang(cluster)
    job = before["name"].removeprefix("jobs/")
    told = len(logged(cluster, "loop.stalled"))
    with standing_still(cluster, how):
        time.sleep(1.0)
        silent = cluster.holdfast("ps", check=False, timeout=40)
        assert silent.returncode != 0
        assert "does not answer" in silent.stderr or "did not answer within" in silent.stderr
        assert "overloaded or stopped" in silent.stderr
        assert "certificate" not in silent.stderr
    cluster.until(
        lambda: all(host.state == host_pb2.HOST_STATE_READY for host in cluster.ask(Client.list_hosts)), 60
    )
    time.sleep(2.0)  # until a deadline that was missed meanwhile would have been noticed
    now = cluster.job(job)
    assert (now["state"], now["generation"], rank_pids(now)) == ("JOB_STATE_RUNNING", 1, rank_pids(before))
    assert now["attempt"] == 1
    assert not [entry for entry in logged(cluster, "event.committed") if entry["type"] == "HostLost"]
    stalls = [stall for stall in logged(cluster, "loop.stalled")[told:] if stall["seconds"] > STILL_S / 2]
    (stall,) = stalls
    if how is signal.SIGSTOP:
        assert stall["cause"] == "machine"
    else:
        assert stall["cause"] == "code"
        assert any(frame.endswith(" hold_the_loop") for frame in stall["stack"])
    cluster.end(job)


def test_a_host_that_died_while_the_controller_stood_still_is_given_up_after_a_full_term(
    cluster: DevCluster,
) -> None:
    def lost() -> list[Json]:
        return [entry for entry in logged(cluster, "event.committed") if entry["type"] == "HostLost"]

    cluster.restart()
    cluster.make_idle()
    before = len(lost())
    with standing_still(cluster, signal.SIGSTOP):
        cluster.kill("host-1")
    cluster.until(lambda: len(lost()) > before, 60)
    went_on, given_up = (
        datetime.fromisoformat(entries[-1]["time"]) for entries in (logged(cluster, "loop.stalled"), lost())
    )
    assert given_up - went_on > timedelta(seconds=3)
    cluster.restart()
