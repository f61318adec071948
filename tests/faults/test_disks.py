"""The disk under a whole cluster loses its power, fills up, or turns read-only: what was acknowledged is there."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cli_cluster import DevCluster, exits, gone, until
from tests.faults.disk import Disk, is_cut, loop_disk
from tests.faults.story import patience

from holdfast import dev
from holdfast.cli.submission.run_spec import RunRequest, job_of
from holdfast.dev import processes
from holdfast.errors import HoldfastError

pytestmark = [pytest.mark.require("root", "loop")]
UNTIL_GO = "until [ -e go ]; do sleep 0.05; done; "


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with loop_disk(tmp_path) as made:
        yield made


@pytest.fixture
def cluster(disk: Disk, tmp_path: Path) -> Iterator[DevCluster]:
    """One host. Everything of the cluster lies on the disk; what the ranks do lies beside it."""
    directory = disk.path / "c"
    env = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
    made = DevCluster(directory, env | {"HOLDFAST_CONFIG": str(directory / "client.toml"), "NO_COLOR": "1"})
    try:
        with patience():
            dev.start(directory, hosts=1, gpus=0)
            disk.sync()  # a dev cluster's settings and certificates are not durable at once, nor have to be
            yield made
    finally:
        with contextlib.suppress(OSError):
            made.show_logs()
        with contextlib.suppress(HoldfastError, OSError):
            dev.stop(directory)
        end_everything(made)
    assert made.left() == []


def end_everything(cluster: DevCluster) -> None:
    """Whatever runs of the cluster, workers included, at once: nobody gets to say a last word."""
    directory = str(cluster.dir)

    def victims() -> list[processes.Process]:
        found = []
        for pid, seen in processes.snapshot().items():
            words = (*processes.arguments(pid), *processes.environment(pid).values())
            held: list[str] = []
            with contextlib.suppress(OSError):
                held = [os.readlink(entry.path) for entry in os.scandir(f"/proc/{pid}/fd")]
            if pid != os.getpid() and any(directory in word for word in (*words, *held)):
                found.append(seen.process)
        return found

    while found := victims():
        for process in found:
            processes.send(process, signal.SIGKILL)
        assert not processes.wait_all(set(found), 60)
        for process in found:
            processes.exit_status(process)


def submit(cluster: DevCluster, folder: Path, script: str) -> str:
    """The id of a job that was acknowledged. Raises ``HoldfastError`` where it was not."""
    folder.mkdir(exist_ok=True)
    job = job_of(RunRequest(("sh", "-c", script), max_restarts=0), os.environ, str(folder))
    return cluster.ask(lambda client: client.create_job(job)).id


def epochs(cluster: DevCluster) -> list[int]:
    return [int(path.read_text()) for path in cluster.dir.glob("hosts/*/state/epoch")]


def test_power_loss_takes_nothing_that_was_acknowledged(cluster: DevCluster, disk: Disk, tmp_path: Path) -> None:
    ended = submit(cluster, tmp_path / "ended", "exit 7")
    runs = submit(cluster, tmp_path / "runs", "exec sleep 600")
    before = exits(cluster.reach(ended, "FAILED"))
    cluster.reach(runs, "RUNNING")
    known = epochs(cluster)
    accepted = [submit(cluster, tmp_path / "more", f"exit {number}") for number in range(5)]
    (disk.path / "unsynced").write_text("never asked to be durable" * 1000)

    disk.cut_power()
    with pytest.raises(HoldfastError):
        submit(cluster, tmp_path / "late", "exit 0")
    end_everything(cluster)
    disk.replug()

    unsynced = disk.path / "unsynced"
    assert not unsynced.exists() or unsynced.stat().st_size == 0, "the power was really cut"
    assert epochs(cluster) == known
    cluster.restart()
    listed = {job.id for job in cluster.ask(lambda client: client.newest_jobs(50))}
    assert listed == {ended, runs, *accepted}
    assert exits(cluster.job(ended)) == before
    until(lambda: exits(cluster.job(runs), generation=1), 60, "for what ran to be accounted for")
    lost = exits(cluster.job(runs), generation=1)[0]
    assert (lost["reason"], lost["exitCode"], lost["signal"]) == ("LOST_SHIM_DIED", None, None)
    for number, job_id in enumerate(accepted):
        end = exits(cluster.reach(job_id, "SUCCEEDED", "FAILED"), generation=1)[0]
        assert end["exitCode"] in (number, None), "what it exited with, or that nobody knows"
        assert end["exitCode"] == number or end["reason"].startswith("LOST_") or end["reason"] == "NOT_STARTED"


def test_full_disk_ends_the_controller_and_keeps_the_exit_for_the_next_one(
    cluster: DevCluster, disk: Disk, tmp_path: Path
) -> None:
    job_id = submit(cluster, tmp_path / "job", f"{UNTIL_GO} exit 7")
    pids = cluster.ranks(cluster.reach(job_id, "RUNNING")["id"])
    filler = disk.fill()
    accepted: list[str] = []
    with contextlib.suppress(HoldfastError):
        while len(accepted) < 1000:
            accepted.append(submit(cluster, tmp_path / "more", "exit 0"))
    controller = processes.stat(cluster.pid("controller"))
    until(lambda: controller is None or not processes.lives(controller.process), 60, "for the controller to end")
    (tmp_path / "job/go").touch()
    until(lambda: gone(pids), 60, "for the rank to end")
    journal = next(cluster.dir.glob(f"hosts/*/state/workers/{job_id}/*/g1.journal"))
    until(lambda: '"exited"' in journal.read_text(), 60, "for its exit to be on the full disk")
    filler.unlink()
    cluster.restart()
    end = exits(cluster.reach(job_id, "FAILED"))[0]
    assert (end["reason"], end["exitCode"]) == ("NONZERO_EXIT", 7)
    listed = {job.id for job in cluster.ask(lambda client: client.newest_jobs(1000))}
    assert set(accepted) <= listed


def test_disk_that_turns_read_only_has_nothing_acknowledged_and_no_code_made_up(
    cluster: DevCluster, disk: Disk, tmp_path: Path
) -> None:
    job_id = submit(cluster, tmp_path / "job", f"{UNTIL_GO} exit 0")
    pids = cluster.ranks(cluster.reach(job_id, "RUNNING")["id"])
    controller = processes.stat(cluster.pid("controller"))
    disk.turn_read_only()
    assert is_cut(disk.path / "probe")
    with pytest.raises(HoldfastError):
        submit(cluster, tmp_path / "late", "exit 0")
    until(lambda: controller is None or not processes.lives(controller.process), 60, "for the controller to end")
    (tmp_path / "job/go").touch()
    until(lambda: gone(pids), 60, "for the rank to end")
    end_everything(cluster)
    disk.replug()
    cluster.restart()
    end = exits(cluster.reach(job_id, "SUCCEEDED"), generation=1)[0]
    assert (end["reason"], end["exitCode"], end["signal"]) == ("LOST_SHIM_DIED", None, None)
    assert [job.id for job in cluster.ask(lambda client: client.newest_jobs(10))] == [job_id]
