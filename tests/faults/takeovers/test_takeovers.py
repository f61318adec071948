"""Controllers, their database, and the network between fail, one after the other, while users work and gangs train.

``make takeovers TAKEOVERS=200 SEED=0`` for as many faults as that; OUT names a file that keeps the outcome.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.e2e.cli_cluster import until
from tests.faults.takeovers import figures, judge
from tests.faults.takeovers.faults import KINDS, chosen
from tests.faults.takeovers.judge import Fault
from tests.faults.takeovers.site import LEASES, USER, Site, started

ROOT = Path(__file__).parents[3]
pytestmark = [
    pytest.mark.require("root"),
    pytest.mark.require("netns"),
    pytest.mark.require("postgres"),
    pytest.mark.require("cc"),
]
WITHIN_S = 180.0
CALM_S = 3.0
SHORT = ("leader killed", "leader cut from the database", "database fails over")


@contextmanager
def users_of(site: Site) -> Iterator[subprocess.Popen[bytes]]:
    """Users who work from now on until the block ends, and are heard to their end."""
    command = site.network.inside(USER, sys.executable, "-m", "tests.faults.takeovers.traffic", str(site.directory))
    env = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
    with (site.directory / "users.log").open("wb") as log:
        users = subprocess.Popen(command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield users
        (site.directory / "over").touch()
        assert users.wait(WITHIN_S) == 0, (site.directory / "users.log").read_text()[-4000:]
    finally:
        users.kill()
        users.wait()


def acknowledged_since(site: Site, moment: float) -> bool:
    """Whether a submission that began after a moment was acknowledged."""
    lines = judge.history(site.directory) if (site.directory / "history.jsonl").exists() else []
    return any(line["what"] == "submit" and line["ok"] and line["begun"] > moment for line in lines)


def told(site: Site, kinds: Sequence[str], seed: int) -> list[Fault]:
    """Tell a story of these faults; each begins once the site is in order again."""
    random_, faults = random.Random(seed), []
    with users_of(site) as users:
        until(lambda: len(list((site.directory / "alive").glob("*"))) == 4, WITHIN_S, "for both gangs")
        for number, kind in enumerate(kinds, 1):
            time.sleep(CALM_S * random_.random())
            begun = time.monotonic()
            with KINDS[kind](site, random_):
                pass
            mended = time.monotonic()
            faults.append(Fault(kind, begun, mended))
            until(lambda since=mended: acknowledged_since(site, since), WITHIN_S, f"for a commit after {kind}")  # type: ignore[misc]
            site.in_order()
            assert users.poll() is None, (site.directory / "users.log").read_text()[-4000:]
            print(
                f"{number:>3}/{len(kinds)} {kind}: {time.monotonic() - begun:.1f} s until all was in order",
                flush=True,
            )
    return faults


def story(directory: Path, kinds: Sequence[str], seed: int) -> None:
    with started(directory) as site:
        try:
            faults = told(site, kinds, seed)
            found = judge.problems(site.directory, LEASES["lease"])
        except AssertionError as error:
            raise AssertionError(f"{error}\n{site.unsettled()}") from error
        outcome = judge.outcome(site.directory, faults, seed, found)
        if out := os.environ.get("OUT"):
            with Path(out).open("a") as kept:
                kept.write(json.dumps(outcome) + "\n")
        print(*figures.table([outcome]), sep="\n")
        assert found == [], f"{found}\n{site.unsettled()}"


def test_users_and_gangs_notice_nothing_of_a_short_story(tmp_path: Path) -> None:
    story(tmp_path / "c", SHORT, seed=0)


@pytest.mark.crash
@pytest.mark.timeout(5 * 3600)
def test_users_and_gangs_notice_nothing_of_a_long_story(tmp_path: Path) -> None:
    seed = int(os.environ.get("SEED", "0"))
    only = os.environ.get("ONLY", "")
    count = int(os.environ.get("TAKEOVERS", "20"))
    kinds = chosen(seed, count) if not only else [only] * count
    story(tmp_path / "c", kinds, seed)
