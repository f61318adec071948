"""Canaries: two secrets travel through a real cluster that is shot at, and every byte that comes out is searched.

Ranks prove that they had the values by printing their SHA-256. The values themselves may be nowhere but in the
environment of ranks: not below the cluster's folder (databases, journals, logs at level debug), not in any answer
of the command line or over HTTP, not among the arguments or in the environment of any other process.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import signal
import ssl
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from tests.e2e.cli_cluster import DevCluster, rank_pids, started, until

from holdfast.cli.app import root
from holdfast.dev import processes

RANK = """
import hashlib, os, pathlib, time
for name in ("FROM_STORE", "FROM_FILE"):
    digest = hashlib.sha256(os.environb[name.encode()]).hexdigest()
    print(os.environ["HOLDFAST_GENERATION"], name, digest, flush=True)
while not pathlib.Path("go").exists():
    time.sleep(0.05)
"""
LOOKS = [
    "ps",
    "ps -o wide",
    "ps -o yaml",
    "job show {job}",
    "job show {job} -o wide",
    "job show {job} -o json",
    "job show {job} -o yaml",
    "job events {job} -o json",
    "job recoveries {job} -o json",
    "job hangs {job}",
    "job stacks {job}",
    "logs {job}",
    "host list -o json",
    "host show host-0 -o json",
    "audit -o json",
    "audit -o wide",
    "secret list --all",
    "secret list --all -o json",
    "user list -o json",
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    """One host, on which both workers run."""
    with started(tmp_path_factory.mktemp("canaries") / "c", hosts=1, gpus=0) as made:
        yield made


class Canaries:
    """The values, and where they were seen."""

    def __init__(self, cluster: DevCluster, written: pytest.CaptureFixture[str]) -> None:
        self.written = written
        self.cluster = cluster
        self.values = {name: f"canary-{secrets.token_hex(12)}" for name in ("FROM_STORE", "FROM_FILE")}
        self.said: dict[str, str] = {}
        """Whatever the cluster has answered, by the question."""

    def ask(self, words: str, input: str | None = None) -> str:
        """The command line, with all that it says kept."""
        env = {"HOLDFAST_CONFIG": self.cluster.env["HOLDFAST_CONFIG"], "NO_COLOR": "1"}
        done = CliRunner().invoke(root, words.split(), input=input, env=env)
        # What goes past Python's own streams, such as notes and the output of ranks, is taken from the descriptors.
        self.said[f"{len(self.said)} {words}"] = said = "".join((done.output, *self.written.readouterr()))
        assert done.exit_code == 0, f"{words}: {said}"
        return done.stdout.strip()

    def in_text(self, text: bytes | str) -> bool:
        data = text if isinstance(text, bytes) else text.encode()
        return any(value.encode() in data for value in self.values.values())

    def in_files(self) -> list[Path]:
        """Files below the cluster's folder that hold a value."""
        return [path for path in self.cluster.dir.rglob("*") if path.is_file() and self.in_text(path.read_bytes())]

    def in_processes(self, ranks: set[int]) -> list[str]:
        """Processes that show a value, but for the environment of ranks."""
        found = []
        for pid in processes.snapshot().keys() - {os.getpid()}:
            for what in ("cmdline", "environ", "comm"):
                try:
                    shown = Path(f"/proc/{pid}/{what}").read_bytes()
                except OSError:
                    continue
                if self.in_text(shown) and not (what == "environ" and pid in ranks):
                    found.append(f"{what} of {pid}")
        return found

    def over_http(self, job: str) -> None:
        """Keep what the same cluster answers over HTTP."""
        pki = self.cluster.dir / "pki"
        port = tomllib.loads((self.cluster.dir / "dev.toml").read_text())["http_port"]
        trust = ssl.create_default_context(cafile=str(pki / "ca.pem"))
        trust.load_cert_chain(pki / "user.pem", pki / "user.key")
        with httpx.Client(
            verify=trust, trust_env=False, base_url=f"https://localhost:{port}", timeout=30
        ) as client:
            for path in ("/v1/jobs", f"/v1/jobs/{job}", "/v1/hosts", "/v1/projects/default/locations/x/customJobs"):
                answer = client.get(path)
                assert answer.status_code == 200, f"{path}: {answer.text}"
                self.said[f"GET {path}"] = answer.text


def spec(file: Path, directory: Path) -> str:
    task = {
        "command": [sys.executable, "-c", RANK.replace("$", "$$")],
        "workingDirectory": str(directory),
        "secretEnv": [{"name": "FROM_STORE", "secret": "wandb"}, {"name": "FROM_FILE", "file": str(file)}],
    }
    pools = [{"replicaCount": 1, "processSpec": task}, {"replicaCount": 1, "processSpec": task}]
    return json.dumps({"displayName": "canary", "jobSpec": {"workerPoolSpecs": pools, "successPolicy": "ALL"}})


def test_no_byte_of_a_secret_is_anywhere_but_with_the_ranks(
    cluster: DevCluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    canaries = Canaries(cluster, capfd)
    digests = {name: hashlib.sha256(value.encode()).hexdigest() for name, value in canaries.values.items()}
    file, job_file = tmp_path / "key", tmp_path / "job.json"
    file.write_text(canaries.values["FROM_FILE"] + "\n")
    job_file.write_text(spec(file, tmp_path))
    canaries.ask("secret set wandb", input=canaries.values["FROM_STORE"] + "\n")
    job = canaries.ask(f"submit {job_file}")

    def running(generation: int) -> dict[int, int]:
        """Pids of the ranks, once all of that generation have printed."""
        until(lambda: cluster.job(job)["generation"] == generation, 60, f"for generation {generation}")
        cluster.reach(job, "RUNNING")
        outputs = [
            host / f"logs/{job}/g{generation}/workerpool{pool}-0.r{pool}.out"
            for pool in (0, 1)
            for host in cluster.dir.glob("hosts/*")
        ]
        until(
            lambda: sum(o.exists() and o.read_text().count("\n") == 2 for o in outputs) == 2, 60, f"for {outputs}"
        )
        pids = rank_pids(cluster.job(job))
        for pid in pids.values():
            environ = Path(f"/proc/{pid}/environ").read_bytes()
            assert all(value.encode() in environ for value in canaries.values.values())
        assert canaries.in_processes(set(pids.values())) == []
        return pids

    running(1)
    shims = [worker["shimPid"] for worker in cluster.job(job)["workers"]]
    os.kill(shims[0], signal.SIGKILL)
    running(2)
    cluster.kill(*cluster.pids())
    for settings in (cluster.dir / "controller.toml", cluster.dir / "hosts/host-0/agent.toml"):
        settings.write_text('log_level = "debug"\n' + settings.read_text())
    cluster.restart()
    canaries.ask("secret set wandb", input=canaries.values["FROM_STORE"])
    canaries.ask(f"job restart {job}")
    ranks = running(3)
    cluster.kill("host-0")
    os.kill(ranks[1], signal.SIGKILL)
    cluster.restart()
    running(4)
    for words in LOOKS:
        canaries.ask(words.format(job=job))
    canaries.over_http(job)
    (tmp_path / "go").touch()
    cluster.reach(job, "SUCCEEDED")
    canaries.ask("secret remove wandb")
    everything = "".join(canaries.said.values())
    assert all(digest in everything for digest in digests.values()), "what ranks print is among what is searched"

    assert canaries.in_files() == []
    assert [question for question, answer in canaries.said.items() if canaries.in_text(answer)] == []
    printed = "".join(path.read_text() for path in cluster.dir.glob(f"hosts/*/logs/{job}/g*/*.out"))
    expected = [f"{g} {name} {digest}" for g in range(1, 5) for name, digest in digests.items()]
    assert sorted(printed.splitlines()) == sorted(2 * expected)
