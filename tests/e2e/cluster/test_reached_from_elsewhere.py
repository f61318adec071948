"""HTTP and metrics from another machine, by the documented commands: curl checks the name, and Prometheus gets in.

Each machine is a network namespace with an /etc of its own; ``ctl.lab`` is the name that ``init --advertise`` got.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cli_cluster import until
from tests.faults.network import Network, joined

from holdfast_agent.shell import config
from holdfast_agent.shell.cgroups.cgroups import find

pytestmark = [pytest.mark.require("root", "netns", "mount", "curl")]

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/admins/metrics.md").read_text()
WITHIN_S = 90
NAMES = {"ctl": "ctl.lab ctl box", "h0": "host-0", "prom": "prom"}
"""As all know them; the last one is the machine's own."""
HOME = "/var/lib/prometheus"
# Where nothing that another test has mounted is in the way; what is mounted here goes with the process.
INSIDE = 'mount --bind "$1/etc" /etc && mount --bind "$1/lib" /var/lib && hostname "$2" && shift 2 && exec "$@"'


@dataclass
class Lab:
    """Three machines: the controller's, a host, and one that looks on."""

    root: Path
    network: Network
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def words(self, where: str, *command: str) -> list[str]:
        own = NAMES[where].split()[-1]
        steps = ["unshare", "-m", "-u", "sh", "-c", INSIDE, "sh", str(self.root / where), own]
        return [*self.network.inside(where, *steps), *command]

    def run(self, where: str, *command: str, check: bool = True, **env: str) -> str:
        """What a command prints on a machine."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
        path = f"{Path(sys.executable).parent}:{kept['PATH']}"
        words = self.words(where, *command)
        done = subprocess.run(
            words, env={**kept, "NO_COLOR": "1", "PATH": path, **env}, capture_output=True, text=True, timeout=120
        )
        assert not check or done.returncode == 0, f"{where}: {command}\n{done.stdout}{done.stderr}"
        return done.stdout if check else done.stdout + done.stderr

    def start(self, where: str, *command: str) -> None:
        """A daemon, whose words are in ``log``."""
        with (self.root / f"{where}.log").open("ab") as log:
            self.running[where] = subprocess.Popen(
                self.words(where, *command), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def log(self, where: str) -> str:
        return (self.root / f"{where}.log").read_text(errors="replace")

    def stop(self, where: str) -> None:
        daemon = self.running.pop(where)
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(60)

    def admin(self, *words: str) -> str:
        """The command line of the first admin, on the controller's machine."""
        return self.run("ctl", "holdfast", *words, HOLDFAST_CONFIG=str(self.root / "etc/admin/client.toml"))

    def controller(self) -> None:
        """Start it, and wait for it."""
        self.start("ctl", sys.executable, "-m", "holdfast_controller", "--config", str(self.settings))
        until(lambda: self.log("ctl").count("controller.ready") > self._starts(), WITHIN_S, "for the controller")

    def _starts(self) -> int:
        return self.log("ctl").count("controller.stopping")

    @property
    def settings(self) -> Path:
        return self.root / "etc/controller.toml"

    def made(self) -> None:
        """``init`` under a name, a host that joins; metrics of both are served as the page says."""
        folders = ("--dir", str(self.root / "etc"), "--state-dir", str(self.root / "state"), "--admin", "ann")
        self.run("ctl", "holdfast-controller", "init", "--advertise", "ctl.lab", "--advertise", "ctl", *folders)
        self.settings.write_text(f"{setting('controller')}\n{self.settings.read_text()}")
        self.controller()
        line = self.admin("host", "token", "create", "host-0")
        home = self.root / "host"
        folders = ("--dir", str(home), "--state-dir", str(home / "state"), "--log-dir", str(home / "logs"))
        self.run("h0", *shlex.split(line), *folders)
        agent = home / "agent.toml"
        listen = setting("each host").replace("ADDRESS", self.network.address("h0"))
        agent.write_text(f"{listen}\nsimulated_gpus = 1\nallow_root_workers = true\n{agent.read_text()}")
        self.start("h0", sys.executable, "-m", "holdfast_agent", "--config", str(agent))
        until(lambda: "READY" in self.admin("host", "list"), WITHIN_S, "for the host")

    def log_in(self) -> None:
        """Prometheus becomes a user, as typed on the page, and gets its files."""
        typed = section("Prometheus")[0].splitlines()
        for line in typed:
            _, *words = shlex.split(line, comments=True)
            said = self.admin(*words)
        written = section("Prometheus")[1].splitlines()[0]
        assert written.startswith("sudo -u prometheus -H holdfast login")
        self.run("prom", *shlex.split(said), HOME=HOME)


def section(title: str) -> list[str]:
    """Its code blocks."""
    text = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    return re.findall(r"^```\n(.*?)^```$", text, re.M | re.S)


def setting(of: str) -> str:
    """The line that the page has one write into the settings of the controller, or of each host."""
    found = re.search(rf"`([a-z_]+ = [^`]+)` [^`]*on (the )?{of}", " ".join(PAGE.split())) or re.search(
        rf"`([a-z_]+ = [^`]+)` in agent.toml on {of}", " ".join(PAGE.split())
    )
    assert found, of
    return found[1]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    root = tmp_path_factory.mktemp("lab")
    with joined(list(NAMES)) as network:
        made = Lab(root, network)
        addresses = "".join(f"{network.address(key)} {name}\n" for key, name in NAMES.items())
        for where in NAMES:
            (root / where / "lib/prometheus").mkdir(parents=True)
            (root / where / "etc/prometheus").mkdir(parents=True)
            for name in ("passwd", "group", "nsswitch.conf", "ssl"):
                kept = Path("/etc", name)
                copy = shutil.copytree if kept.is_dir() else shutil.copy
                copy(kept, root / where / "etc" / name)
            (root / where / "etc/hosts").write_text(f"127.0.0.1 localhost\n{addresses}")
        try:
            made.made()
            made.log_in()
            yield made
        finally:
            for where, daemon in made.running.items():
                daemon.send_signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    daemon.wait(60)
                daemon.kill()
                daemon.wait()
                print(f"--- {where}", *made.log(where).splitlines()[-30:], sep="\n")
            with contextlib.suppress(Exception):
                find(config.load(root / "host/agent.toml")).leave()


def fetch(lab: Lab, url: str, where: str = "prom", check: bool = True) -> str:
    """By curl with Prometheus' files; it checks the name in the certificate."""
    own = f"{HOME}/.config/holdfast"
    keys = ("--cacert", f"{own}/ca.pem", "--cert", f"{own}/user.pem", "--key", f"{own}/user.key")
    return lab.run(where, "curl", "-sS", "--max-time", "30", *keys, url, check=check)


def test_the_page_is_fetched_from_another_machine_by_every_name_that_was_given(lab: Lab) -> None:
    typed = re.search(r"`(curl --cacert ca.pem [^`]+)`", " ".join(PAGE.split()))
    assert typed
    line = f"cd {HOME}/.config/holdfast && {typed[1]} -sS --max-time 30"
    assert "holdfast_build_info{" in lab.run("prom", "sh", "-c", line)
    for name in ("ctl.lab", "ctl", "box"):
        assert "holdfast_build_info{" in fetch(lab, f"https://{name}:8443/metrics")
    # An address that was not given is none of the certificate's, and the error is the client's own.
    refused = fetch(lab, f"https://{lab.network.address('ctl')}:8443/metrics", check=False)
    assert "no alternative certificate subject name matches" in refused


def test_a_name_that_is_added_to_the_settings_is_in_the_certificate_of_the_next_start(lab: Lab) -> None:
    address = lab.network.address("ctl")
    lab.settings.write_text(re.sub(r"(?m)^names = .*$", f'names = ["ctl", "{address}"]', lab.settings.read_text()))
    lab.stop("ctl")
    lab.controller()
    assert "holdfast_build_info{" in fetch(lab, f"https://{address}:8443/metrics")
    assert json.loads(fetch(lab, "https://ctl.lab:8443/v1/jobs")).keys() <= {"jobs", "nextPageToken"}


@pytest.mark.require("prometheus", "promtool")
def test_prometheus_scrapes_both_daemons_by_the_example_as_it_is(lab: Lab) -> None:
    etc = lab.root / "prom/etc/prometheus"
    example = ROOT / "deploy/monitoring/prometheus.example.yml"
    shutil.copy(example, etc / "prometheus.yml")
    shutil.copy(ROOT / "deploy/monitoring/holdfast.rules.yml", etc)
    (etc / "holdfast-hosts.json").write_text(json.dumps([{"targets": ["host-0:9470"]}]))
    lab.run("prom", "promtool", "check", "config", "/etc/prometheus/prometheus.yml")
    data = str(lab.root / "data")
    lab.start("prom", "prometheus", "--config.file=/etc/prometheus/prometheus.yml", f"--storage.tsdb.path={data}")

    def ask(path: str) -> Any:
        said = lab.run("prom", "curl", "-sSg", f"http://127.0.0.1:9090/api/v1/{path}", check=False)
        return json.loads(said).get("data", {}) if said.startswith("{") else {}

    def up() -> bool:
        found = {one["labels"]["job"]: one for one in ask("targets").get("activeTargets", ())}
        states = {job: (one["health"], one["lastError"]) for job, one in found.items()}
        assert "down" not in {health for health, _ in states.values()}, states
        return states == {"holdfast-controller": ("up", ""), "holdfast-agent": ("up", "")}

    try:
        until(up, WITHIN_S, "for both to be scraped")
        for asked in ("holdfast_agent_connected", "holdfast_hosts{state=%22ready%22}"):
            assert [one["value"][1] for one in ask(f"query?query={asked}")["result"]] == ["1"]
        rules = [rule["name"] for group in ask("rules")["groups"] for rule in group["rules"]]
        assert "HoldfastControllerAbsent" in rules
    finally:
        lab.stop("prom")
