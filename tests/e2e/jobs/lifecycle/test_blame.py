"""Who failed first: the rank that raised is named, though its peers are gone before it for the lost connection."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.e2e.cli_cluster import DevCluster, exits
from tests.e2e.lifecycle_jobs import job_file, newest, submit

pytestmark = pytest.mark.usefixtures("idle")

PROGRAM = '''
"""Rank 0 listens, the others keep a connection to it; rank 2 raises, and takes its time to leave."""

import os
import socket
import sys
import threading
import time

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))


def serve() -> None:
    server = socket.create_server(address)
    peers = [server.accept()[0] for _ in range(size - 1)]
    for peer in peers:
        peer.sendall(b"go")
    held = [threading.Thread(target=hear, args=(peer,)) for peer in peers]
    for each in held:
        each.start()
    for each in held:
        each.join()


def hear(peer: socket.socket) -> None:
    if not peer.recv(1):
        print("ConnectionResetError: Connection reset by peer", file=sys.stderr, flush=True)
        os._exit(1)


def join() -> socket.socket:
    for _ in range(600):
        try:
            return socket.create_connection(address)
        except ConnectionRefusedError:
            time.sleep(0.05)
    raise SystemExit("rank 0 never came")


if os.environ["HOLDFAST_GENERATION"] != "1":
    sys.exit(0)
if rank == 0:
    serve()
else:
    with join() as peer:
        assert peer.recv(2) == b"go"
        if rank == 2:
            try:
                raise ValueError("loss is NaN in batch 17")
            finally:
                peer.close()
                time.sleep(0.4)
        while peer.recv(1):
            pass
    raise ConnectionError("lost rank 0: the connection was closed")
'''


def program(folder: Path) -> list[str]:
    (folder / "peers.py").write_text(PROGRAM)
    return [sys.executable, str(folder / "peers.py")]


def test_rank_that_raised_is_named_and_not_its_peers_that_left_before(trio: DevCluster, tmp_path: Path) -> None:
    job_id = submit(trio, tmp_path, "", command=program(tmp_path), workers=3)
    job = trio.reach(job_id, "SUCCEEDED")
    (recovery,) = job["recoveries"]
    assert (recovery["endReason"], recovery["endRelatedTask"]) == ("NONZERO_EXIT", "workerpool1-1 rank 2")
    first = exits(job, generation=1)
    assert first[0]["endTime"] < first[2]["endTime"], "the story was told as meant"
    assert {e["reason"] for e in first.values()} == {"NONZERO_EXIT"}


def test_job_that_fails_for_it_says_which_rank_and_which_exception(trio: DevCluster, tmp_path: Path) -> None:
    file = job_file(tmp_path, "", command=program(tmp_path), workers=3, maxWorkerRestarts=0, maxJobRetries=0)
    done = trio.holdfast("submit", str(file), "--wait", check=False)
    job = trio.job(newest(trio))
    assert (job["state"], job["recoveries"]) == ("JOB_STATE_FAILED", [])
    assert job["error"]["message"] == (
        "The replica workerpool1-1 exited with a non-zero status of 1. Termination reason: Error."
    )
    assert any(line == "ValueError: loss is NaN in batch 17" for line in job["error"]["details"])
    assert done.returncode == 1
    assert "ValueError: loss is NaN in batch 17" in trio.holdfast("job", "show", job["id"]).stdout
