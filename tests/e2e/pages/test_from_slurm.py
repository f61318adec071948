"""What the page for those who come from Slurm says to type in place of its commands is typed at a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from tests.e2e.cli_cluster import DevCluster, started
from tests.e2e.hosts.test_topology import with_topology
from tests.e2e.pages.typist import ROOT, Typist, user_shell

PAGE = (ROOT / "docs/users/from-slurm.md").read_text()
PROGRAM = """
import os, time
print("trains", flush=True)
while os.path.exists("stay"):
    time.sleep(0.1)
"""
VALUES = {"scheduling.priority": "3", "hostSelector.labels": "{rack: r1}"}
"""For fields that the page names without any."""


@dataclass
class Replacements:
    """Everything that the page has beside a word of Slurm's; what was typed of it is noted."""

    left: list[str] = field(default_factory=list)

    def take(self, *texts: str) -> str:
        """Note that they are typed; returns the first. Fails the test for one that the page does not have."""
        for text in texts:
            assert text in self.left, f"the page does not say {text!r}, or it was typed before: {self.left}"
            self.left.remove(text)
        return texts[0]

    def those(self, pattern: str) -> list[str]:
        """What is left that begins so."""
        return [text for text in self.left if re.match(pattern, text)]


def replacements() -> Iterator[str]:
    """What the tables have in their second column, between backticks."""
    tables = re.findall(r"^\| in Slurm.*?\n\n|^\| variable.*?\n\n|^\| `--dependency`.*?\n\n", PAGE, re.M | re.S)
    assert len(tables) == 3
    for table in tables:
        for line in table.splitlines()[2:]:
            yield from re.findall(r"`([^`]+)`", re.split(r" \| ", line)[1]) if line else ()


def test_everything_that_stands_beside_a_word_of_slurms_can_be_typed(tmp_path: Path) -> None:
    page = Replacements(list(dict.fromkeys(replacements())))
    folder = tmp_path / "trainings"
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    (folder / "job.yaml").write_text(job_file(folder))
    (folder / "job.sh").write_text(script())
    racks = {f"host-{number}": {"rack": "r1"} for number in range(4)}
    with (
        started(tmp_path / "c", hosts=4, gpus=8, labels=racks) as cluster,
        user_shell(folder, cluster.env) as shell,
    ):
        with_topology(cluster)
        a_job(cluster, shell, page)
        submitted(shell, page)
        fields(shell, page, folder)
        dependencies(cluster, shell, page)
        variables(shell, page)
        the_cluster(shell, page)
    assert page.left == []


def job_file(folder: Path, replicas: int = 1, **scheduling: Any) -> str:
    """A job of one rank for each replica."""
    process = {"command": ["python3", "train.py"], "workingDirectory": str(folder)}
    pool = {"replicaCount": 1, "machineSpec": {"acceleratorCount": 1}, "processSpec": process}
    pools = [pool, *([{**pool, "replicaCount": replicas - 1}] if replicas > 1 else [])]
    spec = {"workerPoolSpecs": pools, "scheduling": scheduling}
    return yaml.safe_dump({"displayName": "trains", "jobSpec": spec})


def script() -> str:
    """The batch script of the page."""
    (block,) = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S)
    return str(block)


def a_job(cluster: DevCluster, shell: Typist, page: Replacements) -> None:
    """A job of 32 ranks: what is asked of it, and done with it, while it runs."""
    shell.type("touch stay")
    run = page.take("holdfast run --replicas 4 --gpus 8 -- python train.py")
    job = shell.type(run.replace("run", "run --detach --enable-web-access", 1)).split()[-1]

    def typed(line: str) -> str:
        return shell.type(re.sub(r"\bJOB\b", job, page.take(line)))

    cluster.reach(job, "RUNNING")
    assert job in typed("holdfast ps")
    assert "32 ranks" in typed("holdfast job show JOB")
    typed("holdfast job shell JOB")
    typed("holdfast job restart JOB")
    cluster.reach(job, "RUNNING")
    typed("holdfast job pause JOB")
    cluster.reach(job, "PAUSED")
    shell.type(f"holdfast job resume {job}")
    cluster.reach(job, "RUNNING")
    typed("holdfast cancel JOB")
    cluster.reach(job, "CANCELLED")
    assert "trains" in typed("holdfast logs -f JOB")
    shell.type("rm stay")


def submitted(shell: Typist, page: Replacements) -> None:
    assert "would start now" in shell.type(page.take("holdfast submit --dry-run job.yaml"))
    assert "trains" in shell.type(page.take("holdfast submit job.yaml --wait"))
    said = shell.type(page.take("holdfast submit job.sh"))
    (job,) = re.findall(r"holdfast logs -f (\S+)", said)
    assert "SUCCEEDED" in shell.type(f"holdfast wait {job}")


def fields(shell: Typist, page: Replacements, folder: Path) -> None:
    """Fields of a job file and options of the same name: accepted, and said again as they are understood."""
    for text in page.those(r"scheduling\.|hostSelector\."):
        path, _, value = page.take(text).partition(": ")
        names = path.removeprefix("scheduling.").split(".")
        inner: Any = yaml.safe_load(value or VALUES[path])
        for name in reversed(names[1:]):
            inner = {name: inner}
        (folder / "field.yaml").write_text(job_file(folder, 4, **{names[0]: inner}))
        said = shell.type("holdfast submit --dry-run field.yaml")
        assert "would start now" in said, text
    for option in page.those("--(array|within|numa-binding) "):
        shell.type(f"holdfast submit --dry-run {page.take(option)} job.yaml")


def dependencies(cluster: DevCluster, shell: Typist, page: Replacements) -> None:
    shell.type("touch stay")
    ids = [shell.type("holdfast submit --detach job.yaml").split()[-1] for _ in range(2)]
    after = {}
    for text in page.those("--after "):
        named = text.replace("ID", ids[0], 1).replace("ID", ids[1])
        after[text] = shell.type(f"holdfast run --detach {named} -- true").split()[-1]
    shell.type(f"rm stay; holdfast wait {' '.join(ids)}")
    assert sorted(after) == ["--after ID", "--after ID --after ID", "--after ID:any", "--after ID:failed"]
    for text, job in after.items():
        cluster.reach(job, "FAILED" if "failed" in page.take(text) else "SUCCEEDED")


def variables(shell: Typist, page: Replacements) -> None:
    (job,) = re.findall(r"^(\S+-1)  SUCCEEDED", shell.type("holdfast run --array 1-2 -- env"), re.M)
    said = shell.type(f"holdfast logs {job}")
    names = page.those(r"[A-Z_]+$")
    assert len(names) > 10
    for name in names:
        assert re.search(rf"\b{page.take(name)}=.", said), name


def the_cluster(shell: Typist, page: Replacements) -> None:
    assert shell.type(page.take("holdfast host list")).count("READY") == 4
    shell.type(page.take("holdfast host drain n1").replace("n1", "host-0"))
    shell.until(r"host-0 .* drained ", "holdfast host list")
    for line in ("holdfast goodput", "holdfast usage"):
        assert shell.type(page.take(line)).strip()
