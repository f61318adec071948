"""A deleted job leaves nothing: not on its hosts, one of which was away, and not in the controller's database."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from tests.e2e.cli_cluster import DevCluster


def test_deleted_job_leaves_nothing_on_hosts_or_in_the_database(make_cluster: Callable[..., DevCluster]) -> None:
    cluster = make_cluster(hosts=2, gpus=1)
    base = Path(cluster.dir)
    hello = ("run", "--gpus", "1", "--replicas", "2", "--detach", "--", "sh", "-c", "echo hello; sleep 0.2")
    other = cluster.holdfast(*hello).stdout.split()[0]
    job = cluster.holdfast(*hello).stdout.split()[0]
    for each in (other, job):
        cluster.reach(each, "SUCCEEDED")
    outputs = [host / "logs" / job for host in sorted((base / "hosts").iterdir())]
    assert all(output.is_dir() for output in outputs)

    cluster.kill_agent("host-1")
    assert "is deleted" in cluster.holdfast("job", "delete", job).stderr
    assert "There is no job" in cluster.holdfast("job", "show", job, check=False).stderr
    cluster.until(lambda: not outputs[0].exists())
    assert outputs[1].is_dir(), "its host is away"

    cluster.restart()
    cluster.until(lambda: not outputs[1].exists())
    cluster.until(lambda: _events(base, job) == 0)
    assert _events(base, other) > 0
    assert all((output.parent / other).is_dir() for output in outputs)
    assert job not in cluster.holdfast("ps", "--all").stdout


def _events(base: Path, job: str) -> int:
    """Events of the job, from a copy: the controller has the database for itself."""
    state = next(base.glob("**/holdfast.db")).parent
    copied = {
        name: (state / name).read_bytes() for name in ("holdfast.db", "holdfast.db-wal") if (state / name).exists()
    }
    aside = base / "copy"
    aside.mkdir(exist_ok=True)
    for name, content in copied.items():
        (aside / name).write_bytes(content)
    with sqlite3.connect(aside / "holdfast.db") as database:
        (count,) = database.execute("SELECT count(*) FROM events WHERE entity = ?", (f"job/{job}",)).fetchone()
    database.close()
    return int(count)
