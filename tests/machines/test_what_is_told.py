"""What packages tell of themselves: mail, syslog, C frames, a shutdown; and certificates that change unnoticed."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.machines.cluster import USER, Cluster, employ, install, join, log_in, ranks, switched_on, tell
from tests.machines.conftest import NEEDS, ROOT
from tests.machines.machine import PATIENCE_S, together

pytestmark = NEEDS
NAME = "ctl.lab"
"""The controller's, which ``init --advertise`` is given; its machine is called otherwise."""
RELAY = "relay.corp.example"
"""The mail server in the example of the page on notifications."""
LIFE_S = 45
CERTIFICATES = {"ctl": "/var/lib/holdfast/controller/controller.pem", "gpu": "/etc/holdfast/agent.pem"}
DAEMONS = {"ctl": "holdfast-controller", "gpu": "holdfast-agent"}
# As at the end of the 90 days that `init` gives it.
AGED = f"""
import datetime
from pathlib import Path
from holdfast._security import pki, server_names
from holdfast._security.tls import TlsFiles
state = Path("/var/lib/holdfast/controller")
own = TlsFiles(state / "ca/ca.pem", state / "controller.pem", state / "controller.key")
pki.renew_server(state / "ca", own, datetime.timedelta(seconds={LIFE_S}), server_names.named(own.cert))
"""
# Trusts the CA alone, as a browser or Prometheus does: the name has to fit.
SERVED = f"""
import socket, ssl
trust = ssl.create_default_context(cafile="/shared/ca.pem")
with trust.wrap_socket(socket.create_connection(("{NAME}", 8443), 20), server_hostname="{NAME}") as door:
    print(ssl.DER_cert_to_PEM_cert(door.getpeercert(True)))
"""
PROGRAM = """
import itertools, time
for i in itertools.count():
    print("tick", i, flush=True)
    time.sleep(0.5)
"""
AUDIT, COPY = "/var/lib/holdfast/controller/audit-admins.jsonl", "/var/log/holdfast-audit"
RSYSLOG = f"""
module(load="imtcp")
input(type="imtcp" port="601" ruleset="audit")
template(name="line" type="string" string="%msg%\\n")
ruleset(name="audit") {{ action(type="omfile" file="{COPY}" template="line") }}
"""
RELAYS = "systemd-run python3 -m aiosmtpd -n -l 0.0.0.0:25 -c aiosmtpd.handlers.Mailbox /var/mail/gpu-admins"
READ = """
import email.policy, glob
for path in glob.glob("/var/mail/gpu-admins/new/*"):
    with open(path, "rb") as file:
        mail = email.message_from_binary_file(file, policy=email.policy.default)
    print(mail["from"], mail["to"], mail["subject"], mail.get_body().get_content())
"""


@pytest.fixture
def cluster(lower: Path, tmp_path: Path, packages: list[Path]) -> Iterator[Cluster]:
    """A controller and a host whose certificates end soon, and a machine that receives syslog and mail."""
    print()
    tell("booting three machines")
    with switched_on(lower, tmp_path, "ctl", "gpu", "mon") as found:
        ctl, mon = found["ctl"], found["mon"]
        parts = {"ctl": ("controller", "client"), "gpu": ("agent",)}
        together(lambda name: install(found[name], packages, *parts[name]), list(parts))
        entries = f"{found.network.address('ctl')} {NAME}\\n{found.network.address('mon')} {RELAY}\\n"
        for machine in found.machines.values():
            machine.sh(f"printf '{entries}' >> /etc/hosts")
        (found.shared / "audit.conf").write_text(RSYSLOG)
        mon.sh(f"cp /shared/audit.conf /etc/rsyslog.d/ && systemctl restart rsyslog && {RELAYS}")

        ctl.run("holdfast-controller", "init", "--advertise", NAME)
        ctl.run("/opt/holdfast/controller/bin/python3", "-c", AGED)
        ctl.sh("cp /var/lib/holdfast/controller/ca/ca.pem /shared/ && cp /etc/holdfast/controller.toml /shared/")
        settings = found.shared / "controller.toml"
        settings.write_text(configured(settings.read_text()))
        ctl.sh("cat /shared/controller.toml > /etc/holdfast/controller.toml && holdfast-controller --check")
        ctl.run("systemctl", "enable", "--now", "holdfast-controller")
        found.until("", "host list")
        for name in parts:
            employ(found[name])
        join(ctl, found["gpu"])
        log_in(ctl)
        found.until("gpu +READY", "host list")
        tell("a controller and a host are ready")
        yield found


def configured(settings: str) -> str:
    """With the mail channel as the page on notifications prints it, syslog, HTTP, and short lives of certificates."""
    page = (ROOT / "docs/users/notifications.md").read_text()
    found = re.search(r'^\[\[notifications\]\]\nname = "on-call"\n(.+\n)+', page, re.MULTILINE)
    assert found
    lives = f'[certificates]\nhost = "{LIFE_S}s"\ncontroller = "{LIFE_S}s"\n'
    return f'http_port = 8443\naudit_syslog = "tcp:mon:601"\n{settings}\n{lives}\n{found[0]}'


def daemons(cluster: Cluster) -> dict[str, str]:
    """What would change if one of them had started again, or had connected again."""
    alive = {
        name: cluster[name].run("systemctl", "show", unit, "-P", "MainPID,NRestarts")
        for name, unit in DAEMONS.items()
    }
    opened = "journalctl -u holdfast-controller --output=cat | grep session.opened"
    return alive | {"sessions": cluster["ctl"].sh(opened)}


def certificates(cluster: Cluster) -> dict[str, str]:
    return {name: cluster[name].run("cat", path) for name, path in CERTIFICATES.items()}


def test_mail_syslog_stacks_and_shutdown_of_a_cluster_whose_certificates_change(cluster: Cluster) -> None:
    (cluster.shared / "ticks.py").write_text(PROGRAM)
    job = cluster.holdfast("run --detach --workdir /tmp -- python3 /shared/ticks.py", who=USER).split()[-1]
    cluster.until("tick 1", f"logs {job}")

    certificates_change_unnoticed(cluster, job)
    c_frames_are_told(cluster, job)
    audit_records_reach_a_syslog_server(cluster)
    a_shutdown_is_called_one(cluster, job)
    mail_is_delivered(cluster)


def certificates_change_unnoticed(cluster: Cluster, job: str) -> None:
    """All of the first ones end, and nobody restarts, connects again or misses a line."""
    before, alive, running = certificates(cluster), daemons(cluster), ranks(cluster["gpu"])
    assert len(running) == 1 and alive["sessions"].count("session.opened") == 1
    began = time.monotonic()
    while time.monotonic() < began + LIFE_S or not before.items().isdisjoint(certificates(cluster).items()):
        assert time.monotonic() < began + PATIENCE_S, "not renewed"
        time.sleep(1)
    tell(f"all certificates were renewed within {time.monotonic() - began:.0f} s, and the first ones have ended")
    assert (daemons(cluster), ranks(cluster["gpu"])) == (alive, running)
    assert re.search("gpu +READY", cluster.holdfast("host list"))
    ticks = cluster.holdfast(f"logs {job}").splitlines()
    assert len(ticks) > LIFE_S and ticks == [f"tick {i}" for i in range(len(ticks))]
    served = cluster["mon"].run("python3", "-c", SERVED)
    assert served.strip() != before["ctl"].strip()
    tell(f"the HTTP port shows another machine the new one, which names {NAME}")


def c_frames_are_told(cluster: Cluster, job: str) -> None:
    said = cluster.holdfast(f"job stacks {job} --native 0 --full")
    print(said)
    assert "ticks.py:5" in said and re.search(r"\bclock_nanosleep\b", said), said
    tell("pystack, which the package brings, has read C frames")


def audit_records_reach_a_syslog_server(cluster: Cluster) -> None:
    cluster.holdfast("host cordon gpu --reason 'new fans'")
    cluster.holdfast("host uncordon gpu")
    sent = cluster["ctl"].until("HostService/Uncordon", "cat", AUDIT).splitlines()
    cluster["mon"].until(re.escape(sent[-1]), "cat", COPY)
    received = cluster["mon"].run("cat", COPY).splitlines()
    assert [line for line in sent if line not in received] == []
    tell(f"{len(sent)} records of admins are on the syslog server as they are on disk")


def a_shutdown_is_called_one(cluster: Cluster, job: str) -> None:
    """In a list, of the host itself and in its history; while it is away, and once it is given up."""
    cluster["gpu"].power_off()
    tell("the host is powered off")
    at = r"shut down at \d\d:\d\d"
    cluster.until(f"gpu .*{at}", "host list")
    assert re.search(at, cluster.holdfast("host show gpu"))
    history = cluster.until(f"lost: it {at}", "host events gpu")
    told = [cluster.holdfast("host list"), cluster.holdfast("host show gpu"), history, cluster.holdfast("status")]
    print(*told, sep="\n")
    assert [text for text in told if "silent" in text] == []
    assert [text for text in told if not re.search(at, text)] == []
    assert "HOST_SHUTDOWN" in cluster.holdfast(f"job show {job}")
    tell("it was shut down, say the list, the host and its history")


def mail_is_delivered(cluster: Cluster) -> None:
    """Of what has just happened, and of a try."""
    cluster["ctl"].run("holdfast-controller", "notify", "on-call")
    tried, happened = "a test of the channel on-call", "gpu shuts down; its work moves elsewhere"
    addressed = "holdfast@corp.example gpu-admins@corp.example cluster main: "
    both = "".join(rf"(?=[\s\S]*^{addressed}{subject})" for subject in (tried, happened))
    print(cluster["mon"].until(f"(?m)\\A{both}", "python3", "-c", READ))
    tell("a real mail server has what the page on notifications promises")
