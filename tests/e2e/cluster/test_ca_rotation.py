"""The cluster's CA is changed under a running job and its open streams, and nobody notices."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import anyio
import pytest
from tests.e2e.cli_cluster import until
from tests.e2e.cluster.test_joining import TICKS, Reader
from tests.e2e.site import WITHIN_S, Site, made

from holdfast._security import pki

LIFE_S = 9
CONTROLLERS_LIFE_S = 3600


def ca(site: Site, *words: str, check: bool = True) -> str:
    done = site.command(
        "holdfast_controller", "ca", *words, "--config", str(site.root / "etc/controller.toml"), check=check
    )
    return done.stdout + done.stderr


def everybody_is_ready(site: Site) -> None:
    def ready() -> bool:
        for user in ("etc/admin", "bob"):
            site.holdfast(user, "whoami")  # a user's certificate is renewed when it is used
        return "Everybody is ready" in ca(site, "show")

    until(ready, WITHIN_S, "for everybody to have renewed")


def hashes(site: Site) -> list[str]:
    return [line.split()[1] for line in ca(site, "show").splitlines() if line.startswith("trusted:")]


@pytest.mark.slow
def test_the_ca_changes_under_open_streams_and_nobody_notices(tmp_path: Path) -> None:
    with made(tmp_path) as site:
        site.make(LIFE_S, CONTROLLERS_LIFE_S)
        site.join("h1")
        # The first admin's certificate is good for a month; another login makes it one like the others.
        words = shlex.split(site.holdfast("etc/admin", "user", "token", "ann").stdout)
        site.command("holdfast", *words[1:], "--dir", str(site.root / "etc/admin"))
        site.admit("bob")
        until(lambda: "READY" in site.holdfast("etc/admin", "host", "list").stdout, WITHIN_S)
        job = site.holdfast("bob", "run", "--detach", "--", "sh", "-c", TICKS).stdout.strip()
        reader = Reader()

        async def live() -> None:
            async with site.client("bob") as bob, anyio.create_task_group() as tasks:
                tasks.start_soon(reader.watch, bob, job)
                tasks.start_soon(reader.follow, bob, job)
                with anyio.fail_after(WITHIN_S):
                    await reader.heard.wait()
                await anyio.to_thread.run_sync(rotate, site)
                reader.heard = anyio.Event()
                with anyio.fail_after(WITHIN_S):
                    await reader.heard.wait()
                assert reader.outages == []
                await bob.cancel_job(job)

        before = hashes(site)
        pids = site.holdfast("bob", "job", "show", job, "-o", "json").stdout
        anyio.run(live)
        assert reader.outages == [] and reader.events.count("GangLaunched") == 1
        ticks = reader.output.decode().splitlines()
        assert ticks == [f"tick {i}" for i in range(len(ticks))], "no byte is lost or doubled"
        assert json.loads(pids)["generation"] == 1
        assert site.log("controller").count('"session.opened"') == 1
        after = hashes(site)
        assert len(before) == len(after) == 1 and before != after
        assert not list((site.root / "state/ca").glob("ca-*")), "the old key is nowhere"
        for folder in ("h1", "bob", "etc/admin"):
            until(lambda folder=folder: _trusted(site, folder) == after, WITHIN_S)  # type: ignore[misc]
        # Who joins now is told the hash of the new one.
        site.join("h2")
        until(lambda: "h2" in site.holdfast("bob", "host", "list").stdout, WITHIN_S, "for h2")
        site.holdfast("bob", "whoami")


def _trusted(site: Site, folder: str) -> list[str]:
    from holdfast_controller.shell.enrolment.authority import ca_hash

    if folder != "h1":
        site.holdfast(folder, "whoami")
    return [ca_hash(pem) for pem in pki.trusted_cas(site.root / folder)]


def rotate(site: Site) -> None:
    old = hashes(site)
    assert "No change is under way" in ca(site, "show")
    assert "Not ready, 3: host/h1, user/ann, user/bob" in ca(site, "rotate")
    assert hashes(site)[0] == old[0], "the old one issues until all know the new one"
    assert "would be shut out" in ca(site, "rotate", check=False)
    assert "There is no new CA that issues" in ca(site, "rotate", "--finish", check=False)
    everybody_is_ready(site)
    assert "The new CA issues" in ca(site, "rotate")
    assert hashes(site)[1] == old[0]
    assert "would be shut out" in ca(site, "rotate", "--finish", check=False)
    everybody_is_ready(site)
    assert "No change is under way" in ca(site, "rotate", "--finish")
