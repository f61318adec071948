"""A cluster amid an upgrade: real daemons of different releases."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cli_cluster import DevCluster, rank_pids, started
from tests.support import other_release

from holdfast import __version__
from holdfast.dev import processes

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    """One host with two GPUs."""
    with started(tmp_path_factory.mktemp("skew") / "c", hosts=1, gpus=2) as made:
        yield made


def shown(cluster: DevCluster) -> dict[str, object]:
    found: dict[str, object] = json.loads(cluster.holdfast("host", "show", "host-0", "-o", "json").stdout)
    return found


def test_agent_that_is_too_new_is_turned_away_in_words_that_everyone_sees(cluster: DevCluster) -> None:
    job = cluster.detach("--gpus", "1", "--", "sleep", "600")
    pids = rank_pids(cluster.reach(job, "RUNNING"))
    born = {pid: processes.stat(pid) for pid in pids.values()}
    cluster.kill_agent("host-0")
    home = cluster.dir / "hosts/host-0"
    command = other_release.command("9.0", "+2", "+0", "holdfast_agent", "--config", str(home / "agent.toml"))
    with (home / "agent.log").open("ab") as log:
        newer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=cluster.env)
    try:
        cluster.until(lambda: shown(cluster)["refused"], 60)
        said = shown(cluster)
        assert said["agentVersion"] == "9.0"
        assert f"the controller is {__version__} " in str(said["refused"])
        assert str(said["refused"]).endswith("Upgrade the controller first; what runs there runs on.")
        assert str(said["refused"]) in cluster.holdfast("host", "show", "host-0").stdout
        assert "Upgrade the controller first" in cluster.holdfast("host", "list", env={"COLUMNS": "400"}).stdout
        cluster.until(lambda: '"session.refused"' in (home / "agent.log").read_text(), 60)
    finally:
        newer.send_signal(signal.SIGTERM)
        assert newer.wait(60) == 0
    cluster.restart()
    now = cluster.reach(job, "RUNNING")
    assert (now["generation"], rank_pids(now)) == (1, pids)
    assert {pid: processes.stat(pid).process for pid in pids.values()} == {  # type: ignore[union-attr]
        pid: stat.process  # type: ignore[union-attr]
        for pid, stat in born.items()
    }
    assert shown(cluster)["refused"] == ""
    cluster.end(job)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", ["controller", "agent"])
def test_previous_release_and_this_one_run_a_job_together(tmp_path: Path, part: str) -> None:
    """The newest tag's wheel in an environment of its own, as the controller and as the agent."""
    tags = subprocess.run(
        ["git", "tag", "--sort=-creatordate"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    if tags.returncode != 0 or not tags.stdout.split():
        pytest.skip("there is no earlier release: git has no tag")
    python = _installed(tags.stdout.split()[0], tmp_path)
    with started(tmp_path / "c", hosts=1, gpus=1) as cluster:
        name = "controller" if part == "controller" else "host-0"
        config = "controller.toml" if part == "controller" else "hosts/host-0/agent.toml"
        cluster.kill(name)
        if part == "controller":  # it can't be asked to read a newer store
            shutil.rmtree(cluster.dir / "controller")
        command = [str(python), "-m", f"holdfast_{part}", "--config", str(cluster.dir / config)]
        with (tmp_path / "previous.log").open("wb") as log:
            previous = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=cluster.env)
        try:
            ready = ("host", "list", "-o", "json")
            cluster.until(lambda: '"READY"' in cluster.holdfast(*ready, check=False).stdout, 90)
            done = cluster.holdfast(
                "run", "--gpus", "1", "--", sys.executable, "-c", "raise SystemExit(7)", check=False
            )
            assert done.returncode == 7, done.stderr + (tmp_path / "previous.log").read_text()
        finally:
            previous.send_signal(signal.SIGTERM)
            previous.wait(60)


def _installed(tag: str, folder: Path) -> Path:
    """A Python that has the release of ``tag``; what it depends on it shares with ours."""
    source, home = folder / "source", folder / "venv"
    source.mkdir()
    archive = subprocess.run(["git", "archive", tag], cwd=ROOT, capture_output=True, check=True, timeout=180)
    subprocess.run(["tar", "x", "-C", str(source)], input=archive.stdout, check=True, timeout=180)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True, timeout=120)
    (packages,) = home.glob("lib/python3*/site-packages")
    (packages / "shared.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(packages), str(source)]
    subprocess.run(command, check=True, timeout=600, env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    return home / "bin/python"
