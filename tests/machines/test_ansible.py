"""The Ansible role, run from afar on bare machines: a whole cluster, and again with nothing left to do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.machines.cluster import USER, Cluster, employ, log_in, switched_on, tell
from tests.machines.conftest import NEEDS, NEXT, ROOT

BESIDE = Path(sys.executable).with_name("ansible-playbook")
PLAYBOOK = str(BESIDE) if BESIDE.exists() else shutil.which("ansible-playbook")
pytestmark = [
    *NEEDS,
    pytest.mark.skipif(PLAYBOOK is None or not shutil.which("ssh-keygen"), reason="needs ansible-playbook and ssh"),
]
ANSIBLE_TIMEOUT_S = 900


@dataclass
class Play:
    """Ansible on a machine of the admin's, on the same wire."""

    cluster: Cluster
    folder: Path

    def run(self, packages: Path, fails: bool = False, **settings: str) -> str:
        """What ``ansible-playbook site.yml`` prints."""
        words = [f"-e{name}={value}" for name, value in settings.items()]
        command = [str(PLAYBOOK), "-i", str(self.folder / "inventory.ini"), str(ROOT / "deploy/ansible/site.yml")]
        done = subprocess.run(
            self.cluster.network.inside("admin", *command, f"-eholdfast_packages={packages}", *words),
            env=os.environ | self.env(),
            capture_output=True,
            text=True,
            timeout=ANSIBLE_TIMEOUT_S,
        )
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        return done.stdout

    def env(self) -> Mapping[str, str]:
        """Nothing of whose account this is plays a part."""
        ssh = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o ControlMaster=no"
        (self.folder / "ansible.cfg").touch()
        return {
            "ANSIBLE_CONFIG": str(self.folder / "ansible.cfg"),
            "ANSIBLE_HOME": str(self.folder),
            "ANSIBLE_SSH_ARGS": ssh,
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_PIPELINING": "true",
            "ANSIBLE_PRIVATE_KEY_FILE": str(self.folder / "key"),
        }

    def trust(self) -> None:
        """Machines that let the admin's key in, and an inventory of them."""
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / "key")], check=True, timeout=60
        )
        for machine in self.cluster.machines.values():
            machine.run("mkdir", "-p", "-m", "700", "/root/.ssh")
            machine.put(self.folder / "key.pub", "/root/.ssh/authorized_keys")
            employ(machine)
        names = self.cluster.names
        hosts = [f"{name} ansible_host={self.cluster.network.address(name)}" for name in names]
        lines = ["[holdfast_controller]", hosts[0], "[holdfast_hosts]", *hosts]
        # They have no sudo, and root needs none.
        lines += [
            "[all:vars]",
            "ansible_user=root",
            "ansible_become=false",
            "ansible_python_interpreter=/usr/bin/python3",
        ]
        lines += [f"holdfast_worker_user={USER}"]
        (self.folder / "inventory.ini").write_text("\n".join(lines) + "\n")


@pytest.fixture
def play(lower: Path, tmp_path: Path) -> Iterator[Play]:
    with switched_on(lower, tmp_path / "machines", "m1", "m2") as cluster:
        found = Play(cluster, tmp_path)
        found.trust()
        yield found


def changed(said: str) -> dict[str, int]:
    """By machine, how much a run has changed."""
    return {name: int(number) for name, number in re.findall(r"^(\w+) +: ok=\d+ +changed=(\d+)", said, re.M)}


def test_a_cluster_from_nothing_and_again_with_nothing_to_do(
    play: Play, packages: list[Path], next_packages: list[Path]
) -> None:
    cluster, folder = play.cluster, packages[0].parent
    refused = play.run(play.folder, fails=True)
    assert "holds 0 packages of holdfast-controller, and one is needed" in refused

    said = play.run(folder)
    tell(f"the playbook has run: {changed(said)}")
    assert "hft-" not in said
    cluster.until(r"m1 +READY[\s\S]*m2 +READY", "host list")
    log_in(cluster.controller)
    assert cluster.holdfast("run --replicas 2 --workdir /tmp -- whoami", who=USER).count(USER) == 1, "rank 0's"

    assert changed(play.run(folder)) == {"m1": 0, "m2": 0}
    tell("once more: nothing is changed")

    both = play.folder / "both"
    both.mkdir()
    for package in [*packages, *next_packages]:
        (both / package.name).symlink_to(package)
    (client,) = both.glob("holdfast-client_*")
    client.rename(both / f"holdfast-client_{NEXT}_{client.name.rpartition('_')[2]}")
    assert "2 packages of holdfast-controller" in play.run(both, fails=True)
    play.run(both, holdfast_version=NEXT)
    cluster.until(f"m1[\\s\\S]*{NEXT}[\\s\\S]*m2[\\s\\S]*{NEXT}", "host list -o json")
    tell("the next release is on all of them")
