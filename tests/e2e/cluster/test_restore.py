"""The controller's machine is lost with its disk, and another one goes on from a backup that is older."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import anyio
import pytest
from tests.e2e.cli_cluster import until
from tests.e2e.site import WITHIN_S, Site, made

from holdfast.client import Client
from holdfast.dev import processes
from holdfast.errors import CursorExpired

LIFE_S = 3600
UNTIL_GO = "until [ -e {go} ]; do sleep 0.1; done"
ENDLESS = "while :; do sleep 0.2; done"


def show(site: Site, *words: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(site.holdfast("etc/admin", *words, "-o", "json").stdout)
    return found


def reach(site: Site, job: str, state: str, generation: int = 1) -> dict[str, object]:
    found: list[dict[str, object]] = []

    def there() -> bool:
        found.append(show(site, "job", "show", job))
        return found[-1]["state"] == f"JOB_STATE_{state}" and found[-1]["generation"] >= generation  # type: ignore[operator]

    until(there, WITHIN_S, f"for {job} to be {state}")
    return found[-1]


def start(site: Site, name: str) -> None:
    site.start(name, "holdfast_controller", site.root / "etc/controller.toml")
    until(lambda: "controller.ready" in site.log(name), WITHIN_S, "for the controller")


def rank(job: dict[str, object]) -> int:
    workers: list[dict[str, list[dict[str, int]]]] = job["workers"]  # type: ignore[assignment]
    return workers[0]["ranks"][0]["pid"]


@pytest.mark.slow
def test_a_controller_whose_disk_is_lost_goes_on_from_a_backup(tmp_path: Path) -> None:
    with made(tmp_path) as site:
        site.make(LIFE_S, LIFE_S)
        site.join("h1")
        until(lambda: "READY" in site.holdfast("etc/admin", "host", "list").stdout, WITHIN_S)
        settings = site.root / "etc/controller.toml"
        port = (site.root / "etc/admin/client.toml").read_text().split('controller = "127.0.0.1:')[1].split('"')[0]
        times = 'heartbeat_interval = "1s"\nsuspect_after = "4s"\n'
        settings.write_text(times + settings.read_text().replace("127.0.0.1:0", f"127.0.0.1:{port}", 1))
        run = ("run", "--detach", "--")
        a = site.holdfast("etc/admin", *run, "sh", "-c", ENDLESS).stdout.strip()
        c = site.holdfast("etc/admin", *run, "sh", "-c", UNTIL_GO.format(go=site.root / "go")).stdout.strip()
        reach(site, a, "RUNNING")
        reach(site, c, "RUNNING")

        (site.root / "pass").write_text("secret words\n")
        words = ("--passphrase-file", str(site.root / "pass"))
        site.command("holdfast_controller", "backup", "b.hf", "--config", str(settings), *words)

        # What the backup will not know: A is relaunched in place, B is handed in, C ends.
        site.holdfast("etc/admin", "job", "restart", a)
        before = reach(site, a, "RUNNING", generation=2)
        b = site.holdfast("etc/admin", *run, "sh", "-c", ENDLESS).stdout.strip()
        of_b = rank(reach(site, b, "RUNNING"))
        (site.root / "go").touch()
        reach(site, c, "SUCCEEDED")
        cursor = anyio.run(_cursor, site.client("etc/admin"), c)

        lost = site.daemons["controller"]
        os.kill(lost.pid, signal.SIGKILL)
        lost.wait(60)
        shutil.rmtree(site.root / "state")
        settings.unlink()
        said = site.command("holdfast_controller", "restore", "b.hf", *words).stdout
        assert "2 jobs, 2 going on, 1 host." in said
        start(site, "restored")

        after = reach(site, a, "RUNNING", generation=2)
        assert rank(after) == rank(before), "nobody has touched its process"
        host = show(site, "host", "show", "h1")
        assert [work["jobId"] for work in host["strangeWork"]] == [b]  # type: ignore[attr-defined]
        assert processes.stat(of_b) is not None, "work that nobody knows runs on"
        assert "no job" in site.holdfast("etc/admin", "job", "show", b, check=False).stderr
        of_c = reach(site, c, "PAUSED")
        ends = [end["reason"] for worker in of_c["workers"] for end in worker["exits"]]  # type: ignore[attr-defined]
        assert ends == ["LOST_RECORD"], "no code is invented"
        with pytest.raises(CursorExpired):
            anyio.run(_watch, site.client("etc/admin"), c, cursor)

        fresh = site.holdfast("etc/admin", *run, "true").stdout.strip()
        assert fresh not in (a, b, c)
        reach(site, fresh, "SUCCEEDED")
        site.holdfast("etc/admin", "host", "stop-orphans", "h1", b)
        until(lambda: not show(site, "host", "show", "h1")["strangeWork"], WITHIN_S, "for B to be gone")
        assert processes.stat(of_b) is None
        site.holdfast("etc/admin", "cancel", a)
        reach(site, a, "CANCELLED")
        site.holdfast("etc/admin", "job", "resume", c)
        assert int(reach(site, c, "SUCCEEDED")["generation"]) > 1000  # type: ignore[call-overload]


async def _cursor(client: Client, job: str) -> int:
    async with client:
        return (await client.get_job(job)).cursor


async def _watch(client: Client, job: str, cursor: int) -> None:
    async with client:
        async for _ in client.watch_job(job, cursor):
            pass
