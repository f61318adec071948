"""Local code on a real cluster of two hosts: sent along, installed, run; and quicker the second time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cli_cluster import DevCluster, gone, started, until
from tests.support import wheels

SCRIPT = """
import json, os, sys, time
from pathlib import Path
import tiny
open("written", "a").write("x")
print(json.dumps({
    "version": tiny.VERSION, "args": sys.argv[1:], "cwd": os.getcwd(), "host": os.environ["HOLDFAST_HOST"],
    "package": os.environ["HOLDFAST_PACKAGE_DIR"], "written": open("written").read(),
}), flush=True)
mine = Path("MET") / os.environ["HOLDFAST_JOB"]
mine.mkdir(parents=True, exist_ok=True)
(mine / os.environ["RANK"]).touch()
while os.environ["RANK"] == "0" and len(list(mine.iterdir())) < int(os.environ["WORLD_SIZE"]):
    time.sleep(0.05)  # the primary's end is the job's
"""


@pytest.fixture(scope="module")
def links(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("links")
    wheels.wheel(folder, "tiny")
    wheels.wheel(folder, "tiny", "2.0")
    return folder


@pytest.fixture(scope="module")
def packaging(tmp_path_factory: pytest.TempPathFactory, links: Path) -> Iterator[DevCluster]:
    """Two hosts that install from a folder of the tests', without an index: by their settings, by pip's variables."""
    with started(tmp_path_factory.mktemp("packaging") / "cluster", hosts=2, gpus=1) as cluster:
        settings = [cluster.dir / "hosts" / host / "agent.toml" for host in ("host-0", "host-1")]
        places = f"[packages]\nno_index = true\nfind_links = [{json.dumps(str(links))}]\n"
        settings[0].write_text(settings[0].read_text() + places)
        settings[1].with_name("site.env").write_text(f"PIP_NO_INDEX=1\nPIP_FIND_LINKS={links}\n")
        settings[1].write_text('env_file = "site.env"\n' + settings[1].read_text())
        for host in ("host-0", "host-1"):
            cluster.kill_agent(host)
        cluster.restart()
        yield cluster


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    (folder / "trainer").mkdir(parents=True)
    (folder / "trainer/__init__.py").touch()
    script = SCRIPT.replace("MET", str(tmp_path / "met"))
    (folder / "trainer/task.py").write_text(script)
    (folder / "train.py").write_text(script)
    (folder / "requirements.txt").write_text("tiny==1.0\n")
    return folder


def lines(output: str) -> list[dict[str, object]]:
    """What ranks have printed, with or without who it was before it."""
    return [json.loads(line[line.index("{") :]) for line in output.splitlines()]


def preparations(cluster: DevCluster, job_id: str) -> set[str]:
    return {
        event["message"].rpartition(" on ")[0]
        for event in cluster.events(job_id)
        if event["type"] == "PreparationNoted"
    }


def job_of(said: str) -> str:
    return said.partition("holdfast: job ")[2].partition(":")[0]


def test_the_reference_s_command_line_runs_local_code_on_two_hosts(packaging: DevCluster, code: Path) -> None:
    command = (
        "submit",
        "--wait",
        "--all",
        "--region=nowhere",
        "--display-name=hello",
        f"--worker-pool-spec=machine-type=big,replica-count=1,accelerator-count=1,executor-image-uri=r/e,"
        f"local-package-path={code},script=train.py",
        "--worker-pool-spec=machine-type=big,replica-count=1,accelerator-count=1",
    )
    first = packaging.holdfast(*command)
    found = lines(first.stdout)
    assert {line["host"] for line in found} == {"host-0", "host-1"}
    for line in found:
        assert line["version"] == "1.0"
        assert line["cwd"] == line["package"]
        assert line["written"] == "x"
    assert "; uploaded" in first.stderr
    assert "installing requirements on host-" in first.stderr
    assert preparations(packaging, job_of(first.stderr)) == {
        "fetching the packaged code",
        "installing requirements",
    }

    second = packaging.holdfast(*command)
    assert "the cluster has it already" in second.stderr
    assert preparations(packaging, job_of(second.stderr)) == set()
    assert {line["written"] for line in lines(second.stdout)} == {"x"}
    assert not {line["cwd"] for line in found} & {line["cwd"] for line in lines(second.stdout)}

    (code / "train.py").write_text((code / "train.py").read_text() + "# changed\n")
    third = packaging.holdfast(*command)
    assert preparations(packaging, job_of(third.stderr)) == {"fetching the packaged code"}
    # Nothing of a job that has ended is left but what others may use again.
    homes = [packaging.dir / "hosts" / host / "state" for host in ("host-0", "host-1")]
    until(lambda: not any(list((home / "scratch").glob("*")) for home in homes), 60, "for the copies to go")
    assert all(list((home / "unpacking").glob("*")) == [] for home in homes if (home / "unpacking").exists())


def test_a_module_of_a_folder_runs_from_a_prompt(packaging: DevCluster, code: Path) -> None:
    done = packaging.holdfast("run", "--package", str(code), "--", "python3", "-m", "trainer.task", "--lr", "1")
    [line] = lines(done.stdout)
    assert line["args"] == ["--lr", "1"]


def test_a_python_package_is_installed_and_run_as_a_module(packaging: DevCluster, tmp_path: Path) -> None:
    package = wheels.wheel(tmp_path, "trainer", task="import sys, tiny; print(tiny.VERSION, *sys.argv[1:])\n")
    more = wheels.wheel(tmp_path / "more", "tiny", "2.0")
    task = {
        "executorImageUri": "r/e",
        "packageUris": [str(package), more.as_uri()],
        "pythonModule": "task",
        "args": ["--model-dir=/out"],
    }
    body = {"workerPoolSpecs": [{"replicaCount": "1", "pythonPackageSpec": task}]}
    (tmp_path / "body.json").write_text(json.dumps(body))
    done = packaging.holdfast("submit", "--wait", str(tmp_path / "body.json"))
    assert done.stdout == "2.0 --model-dir=/out\n"
    assert "executorImageUri: is kept, but changes nothing" in done.stderr


def test_requirements_that_do_not_resolve_end_the_job_with_the_reason_and_the_log(
    packaging: DevCluster, code: Path
) -> None:
    done = packaging.holdfast(
        "submit",
        "--wait",
        "--script=train.py",
        f"--local-package-path={code}",
        "--requirements=tiny==3.0",
        check=False,
    )
    assert done.returncode == 125
    assert "No solution found" in done.stderr
    job_id = job_of(done.stderr)
    job = packaging.job(job_id)
    [end] = [end for worker in job["workers"] for end in worker["exits"]]
    assert end["reason"] == "CANNOT_START"
    assert "the installation failed" in end["message"]
    assert "tiny==3.0" in packaging.holdfast("logs", job_id).stderr
    hosts = packaging.holdfast("host", "list").stdout
    assert "cordoned" not in hosts.lower()


def test_a_job_is_cancelled_while_it_is_installed_and_an_agent_that_dies_then_starts_anew(
    packaging: DevCluster, code: Path, tmp_path: Path
) -> None:
    mark = tmp_path / "building"
    body = f"import time; open({str(mark)!r}, 'a').write(f'{{os.getpid()}}\\n'); time.sleep(600)"
    slow = wheels.source(tmp_path, "slow", body)
    job_id = packaging.holdfast(
        "submit",
        "--script=train.py",
        f"--local-package-path={code}",
        f"--extra-packages={slow}",
        "--on-host=host-0",
    ).stdout.strip()

    def builds(count: int) -> list[int]:
        until(lambda: mark.exists() and mark.read_text().count("\n") >= count, 60, "for the build")
        return [int(line) for line in mark.read_text().splitlines()]

    builds(1)
    assert packaging.job(job_id)["waitReason"] == "installing requirements on host-0"
    packaging.kill_agent("host-0")
    packaging.restart()
    first, second = builds(2)
    packaging.end(job_id)
    assert packaging.job(job_id)["state"] == "JOB_STATE_CANCELLED"
    until(lambda: gone([first, second]), 60, "for both builds to be gone")
