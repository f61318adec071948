"""Every line that the pages for admins say to type is typed, on a bare machine, as it is printed there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.e2e.pages.typist import Page, Typist, bare_machine

pytestmark = [pytest.mark.require("root", "mount", "netns")]
JOINS = r"hft-… --ca-hash sha256:…"
ELSEWHERE = {
    r"^make |^for n in .* scp |^scp |^apt |^rsync |^journalctl |^systemctl daemon-reload": "tests/machines",
    r"^cd deploy/ansible|^ansible-playbook": "tests/machines/test_ansible.py",
    r"^python3 -m venv |^ln -s |^cp deploy/|^sed -i s,|^useradd --system": "a registry, or units",
    r"^holdfast-controller --config|^holdfast-agent --config": "what systemctl starts here",
    r"accept-loss|^systemctl st(art|op) holdfast-controller|job resume|stop-orphans|user remove eve|HOST --yes": "e2e",
    r"^holdfast-controller backup s3://": "tests/integration/controller/store/test_backup.py",
    r"^holdfast reservation ": "tests/integration/controller/daemon/commands/test_reservations.py",
    r"^holdfast login .*--oidc": "tests/integration/controller/daemon/enrolment/test_oidc.py",
    r"ca rotate --f|^systemctl disable": "tests/e2e/cluster/test_ca_rotation.py",
    r"^cp /root/old|^chown holdfast|^(admins  |  anchor) ": "an account of the packages'; output",
}
"""Lines that can't be typed on such a machine, by a regular expression, and what runs them."""


LATER = ("Restore", "Move the controller", "The CA's key is lost", "Rotate the CA", "Replace a host under its name")
"""Sections of the runbook for what comes after the work of a day."""
HERE = {
    r"gpu-\[\d\d-16\]|gpu-07|\bHOST\b": "gpu-01",
    r"ctl\.lab": "ctl",
    "motd set - .*": "motd set - < /etc/hostname",
}


def elsewhere(line: str) -> bool:
    return any(re.search(pattern, line) for pattern in ELSEWHERE)


def printed_line(said: str, program: str) -> str:
    """The last line to paste that a command has printed, without its program and address."""
    lines: list[str] = re.findall(rf"^{program} \S+ --token (\S+ --ca-hash \S+)$", said, re.M)
    return lines[-1]


def test_every_line_of_the_pages_for_admins(tmp_path: Path) -> None:
    pages = {name: Page(name) for name in ("install", "joining", "operations", "access")}
    with bare_machine(tmp_path) as machine:
        from_nothing_to_a_job(machine, pages["install"])
        the_runbook(machine, pages["operations"])
        lost_and_restored(machine, pages["operations"])
        replaced_and_rotated(machine, pages["operations"])
        _, _, any_host, _, _, ann, _ = pages["joining"].lines("")
        machine.type_all(pages["joining"], [any_host, ann])
    nothing_is_left_untyped(list(pages.values()))


def from_nothing_to_a_job(machine: Typist, page: Page) -> None:
    _, controller, host, account, users, _, ann = page.blocks()["Ten bare machines"]
    said = machine.type_all(page, controller[1:3])
    assert "export HOLDFAST_CONFIG=/etc/holdfast/admin/client.toml" in said, "the page and the command say the same"
    machine.type_all(page, controller[3:4])
    machine.until("certificate +until", "holdfast whoami")
    lines = machine.type_all(page, controller[4:])
    (token, *others) = re.findall(r"^holdfast-agent join ctl:7444 --token (.*)$", lines, re.M)
    assert len(others) == 9

    machine.type("hostname gpu-01")
    machine.type_all(page, host[1:3], {JOINS: token})
    machine.until("gpu-01 +READY", "holdfast host list")
    assert "gpu-01: " in machine.type_all(page, host[3:], doctor=1), "what is wrong with this machine, if anything"
    machine.type("hostname ctl")

    machine.type_all(page, account)
    machine.type_all(page, users[:-1])
    line = printed_line(machine.type_all(page, users[-1:]), "holdfast login")
    machine.type("printf 'import os; print(os.getcwd(), os.environ[\"USER\"])\\n' > /home/ann/train.py")
    as_ann = {
        JOINS: line,
        "^": "runuser -l ann -c '",
        "$": "'",
        "--gpus 8 --replicas 10 ": "",
        "python ": "python3 ",
    }
    said = machine.type_all(page, ann, as_ann)
    assert "you are ann of the cluster main" in said
    assert "/home/ann ann" in said


def the_runbook(machine: Typist, page: Page) -> None:
    page.typed.add(page.lines("Install, join")[0])  # the same as on the page of installing
    machine.type_all(page, page.lines("Install, join")[1:], HERE)
    job = machine.type("runuser -l ann -c 'holdfast run --detach -- sleep 600'").split()[-1]
    here = HERE | {r"\bJOB\b": job}
    machine.until("RUNNING", "holdfast ps")

    people = page.lines("Users and accounts")
    said = machine.type_all(page, people)
    ben = re.findall(r"^holdfast login .*$", said, re.M)[-1]
    said = machine.type(ben)
    assert "you are ben" in said
    assert "HOLDFAST_CONFIG names /etc/holdfast/admin/client.toml, which counts instead" in said
    assert "root of the cluster main" in machine.type("holdfast whoami")
    assert re.search(r"ben of the cluster[\s\S]*admin everywhere", machine.type("HOLDFAST_CONFIG= holdfast whoami"))
    machine.type("mv /etc/holdfast/admin /root/admin")
    assert "unset HOLDFAST_CONFIG" in machine.type("holdfast whoami", ends=(125,))
    machine.type("mv /root/admin /etc/holdfast/admin")

    for heading in ("Watch", "Diagnose a host", "Investigate a hang", "Withheld shares and fences"):
        machine.type_all(page, page.lines(heading), here, doctor=1)
    machine.until("RUNNING", f"holdfast job show {job}")
    machine.type_all(page, [line for line in page.lines("Back up") if not elsewhere(line)])
    assert machine.type("stat -c '%a %n' /srv/backup /srv/backup/*").split()[::2] == ["700", "600"]
    upgrade = [line for line in page.lines("Upgrade") if not line.startswith("apt ")]
    assert "2 of 2 processes unchanged" in machine.type_all(page, upgrade)
    machine.type_all(page, page.lines("Maintenance"), here)
    machine.type_all(page, page.lines("Rotate the key of secrets"))
    machine.until("gpu-01 +READY", "holdfast host list")
    for heading in (each for each in page.blocks() if each not in LATER):
        rest = [line for line in page.lines(heading) if line not in page.typed]
        machine.type_all(page, [line for line in rest if not elsewhere(line)], here, doctor=1)


def lost_and_restored(machine: Typist, page: Page) -> None:
    first, then = page.blocks()["Restore"]
    machine.type("systemctl stop holdfast-controller")
    machine.type("rm -r /var/lib/holdfast/controller /etc/holdfast/admin /etc/holdfast/controller.toml")
    machine.type_all(page, first[:2])
    machine.type_all(page, first[2:4])
    machine.until("controller", "holdfast status")
    machine.type_all(page, first[4:])
    machine.until("gpu-01 +READY", "holdfast host list")
    job = machine.type("holdfast job list -o name").strip().splitlines()[-1].rpartition("/")[2]
    machine.until("RUNNING", "holdfast ps")
    skipped = ("fence", "resume", "stop-orphans", "eve")
    machine.type_all(
        page, [line for line in then if not any(word in line for word in skipped)], HERE | {"JOB": job}
    )
    (copy, _, _, tidy), _ = page.blocks()["The CA's key is lost"]
    machine.type_all(page, [copy])
    machine.type("cmp /root/old/state/ca/ca.key /var/lib/holdfast/controller/ca/ca.key")
    machine.type_all(page, [tidy])


def replaced_and_rotated(machine: Typist, page: Page) -> None:
    leave = page.lines("Replace a host under its name")
    machine.until("CANCELLED", "holdfast job list")
    said = machine.type_all(page, leave[:3], HERE)
    machine.type("systemctl stop holdfast-agent; rm -r /var/lib/holdfast/agent /etc/holdfast/agent.toml")
    machine.type_all(page, leave[3:5], {JOINS: printed_line(said, "holdfast-agent join"), **HERE})
    machine.until("gpu-01 +READY", "holdfast host list")
    machine.type_all(page, leave[5:], doctor=1)
    rotate = page.lines("Rotate the CA")
    assert "Not ready" in machine.type_all(page, rotate[:2])
    page.typed.add(rotate[3])  # as the second line


def nothing_is_left_untyped(pages: list[Page]) -> None:
    """Beside what ``ELSEWHERE`` names, and lines that differ from typed ones in the machine's name or a comment."""
    typed = {_bare(line) for page in pages for line in page.typed}
    left = {_bare(line) for page in pages for line in page.untyped()} - typed
    assert sorted(line for line in left if not elsewhere(line)) == []
    assert [pattern for pattern in ELSEWHERE if not any(re.search(pattern, line) for line in left)] == []


def _bare(line: str) -> str:
    return re.sub(r" +# .*", "", line).replace("ctl.lab", "ctl")
