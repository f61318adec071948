"""The pages of installing, typed as they are printed, on machines with systemd: from bare ones to a job on two hosts.

A line that is not typed is named in ``NOT_TYPED`` with the reason; a new line that is neither fails the test.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest
from tests.e2e.pages.typist import Page, Typist
from tests.machines.cluster import USER, Cluster, switched_on, tell
from tests.machines.conftest import NEEDS, ROOT
from tests.machines.machine import PATIENCE_S, Machine, together

pytestmark = NEEDS
SHELL = ("", "sh", "bash", "shell", "console")
"""Languages of blocks with lines to type."""
NOT_TYPED = {
    "install": {
        r"^make packages": "needs Node and package registries; its program has built the packages of all tests",
        r"^python3 -m venv .* install ": "needs a package registry; the packages' environments are there instead",
        r"^cd deploy/ansible|^ansible-playbook": "test_ansible.py runs the playbook on machines",
    },
    "joining": {
        r"^iptables ": "the machines have no iptables; tests/security/floods/test_firewall.py types it",
        r"^holdfast login .*--oidc": "needs an identity provider, as in"
        " tests/integration/controller/daemon/enrolment/test_oidc.py",
    },
}
"""Lines of each page that these tests don't type, by a regular expression, and why.

What a comment gives as another way (``# or: dnf``) is for machines of another kind.
"""
SECRET = r"hft-… --ca-hash sha256:…"
HOSTS = ("gpu-01", "gpu-02")
HERE = {
    "01 02 03 04 05 06 07 08 09 10": "01 02",
    "--gpus 8 --replicas 10": f"--cpus {os.cpu_count()} --replicas 2",  # whole hosts too, which have no GPU
}
"""Names and numbers of the machines here in place of those of the page."""
TREE = "/root/holdfast"
TRAIN = """
import getpass, os, socket
with open(f"{socket.gethostname()}.rank", "w") as file:
    print(getpass.getuser(), os.getcwd(), os.environ["WORLD_SIZE"], file=file)
"""
A_JOB = "holdfast run -- sh -c 'echo $(id -un) $(pwd)'"
BY_HAND = """
set -e
for part in client controller agent; do dpkg-deb -x /root/packages/holdfast-${part}_*.deb /root/unpacked; done
mkdir -p /opt/holdfast/all
for part in client controller agent; do cp -a /root/unpacked/opt/holdfast/$part/. /opt/holdfast/all/; done
sed -i -E '1s,/opt/holdfast/[a-z]+/,/opt/holdfast/all/,' $(grep -lI '^#!' /opt/holdfast/all/bin/*)
"""
"""What the line with a package registry would leave."""


@contextlib.contextmanager
def shell(machine: Machine, user: str = "root") -> Iterator[Typist]:
    """A login shell, in a cgroup of the machine's as any of an admin's."""
    login = ("env", "HOME=/root", "USER=root", "bash", "-l") if user == "root" else ("runuser", "-l", user)
    command = machine.inside("systemd-run", "--quiet", "--pipe", "--collect", "--", *login)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT) as process:
        try:
            typist = Typist(process, PATIENCE_S)
            typist.type("cd")
            yield typist
        finally:
            process.kill()


def printed(said: str, program: str) -> list[str]:
    """Token and hash of each line to paste that a command has printed."""
    found = re.findall(rf"^{program} \S+ --token (hft-\S+ --ca-hash sha256:\S+)$", said, re.MULTILINE)
    assert found, said
    return found


def named(page: Page, line: str) -> bool:
    return any(re.search(pattern, line) for pattern in NOT_TYPED[page.name])


def nothing_is_left_untyped(page: Page, headings: Iterable[str]) -> None:
    """Each line of these sections was typed, or is one of ``NOT_TYPED``, which names nothing that isn't on the page."""
    lines = {heading: page.lines(heading) for heading in page.blocks()}
    left = [line for heading in headings for line in lines[heading] if line not in page.typed]
    assert [line for line in left if not named(page, line)] == []
    everything = [line for each in lines.values() for line in each]
    assert [found for found in NOT_TYPED[page.name] if not any(re.search(found, line) for line in everything)] == []


def put(machine: Machine, packages: Sequence[Path], folder: str) -> None:
    machine.run("mkdir", "-p", folder)
    for package in packages:
        machine.put(package, f"{folder}/{package.name}")


@pytest.fixture
def bare(lower: Path, tmp_path: Path, packages: list[Path]) -> Iterator[Cluster]:
    """A controller's machine, two hosts, and one where the packages were built, which is Ann's; /home is shared."""
    with switched_on(lower, tmp_path, "ctl", *HOSTS, "desk") as cluster:
        (cluster.shared / "home").mkdir(mode=0o755)
        for machine in cluster.machines.values():
            machine.run("mount", "--bind", "/shared/home", "/home")
        put(cluster["desk"], packages, f"{TREE}/dist")
        trusted(cluster)
        yield cluster


def trusted(cluster: Cluster) -> None:
    """Have an admin at the desk reach all machines by ssh."""
    desk = cluster["desk"]
    desk.sh("mkdir -pm 700 /root/.ssh && ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519")
    desk.sh(
        "echo 'StrictHostKeyChecking accept-new' > /root/.ssh/config && cp /root/.ssh/id_ed25519.pub /shared/key"
    )
    for name in ("ctl", *HOSTS):
        cluster[name].sh("mkdir -pm 700 /root/.ssh && cp /shared/key /root/.ssh/authorized_keys")


def test_the_page_leads_from_bare_machines_to_a_job_on_two_hosts(bare: Cluster) -> None:
    page = Page("install", languages=SHELL)
    packages, controller, host, accounts, users, client, ann = page.blocks()["Ten bare machines"]
    with contextlib.ExitStack() as stack:
        root = {name: stack.enter_context(shell(machine)) for name, machine in bare.machines.items()}
        root["desk"].type(f"cd {TREE}")
        root["desk"].type_all(page, packages[1:], HERE)
        tell("packages are on the machines")

        said = root["ctl"].type_all(page, controller)
        lines = printed(said, "holdfast-agent join")
        assert len(lines) == 10
        tokens = dict(zip(HOSTS, lines, strict=False))
        tell("the controller runs, and has printed lines for ten hosts")

        def join(name: str) -> None:
            said = root[name].type_all(page, host, {SECRET: tokens[name]})
            assert re.search(rf"^{name}: \d+ checks, 0 errors", said, re.MULTILINE), said

        together(join, HOSTS)
        tell("the hosts have joined")

        for name in ("ctl", *HOSTS, "desk"):
            root[name].type_all(page, accounts)
        said = root["ctl"].type_all(page, users)
        root["ctl"].until(r"gpu-01 +READY[\s\S]*gpu-02 +READY", users[0])
        (login,) = printed(said, "holdfast login")

        root["desk"].type("cd dist")
        root["desk"].type_all(page, client)
        with shell(bare["desk"], USER) as hers:
            hers.type(f"cat > train.py <<'EOF'\n{TRAIN}\nEOF")
            hers.type("python3 -m venv --without-pip env; . env/bin/activate")
            print(hers.type_all(page, ann, HERE | {SECRET: login}))
            ranks = hers.type("cat *.rank; ls *.rank")
        assert ranks.split() == [*(USER, f"/home/{USER}", "2") * 2, *(f"{name}.rank" for name in HOSTS)]
    tell("ann's job has run on both hosts")
    nothing_is_left_untyped(page, page.blocks().keys() - {"By hand"})


def test_by_hand_and_by_the_page_on_joining(lower: Path, tmp_path: Path, packages: list[Path]) -> None:
    install, joining = Page("install", languages=SHELL), Page("joining", languages=SHELL)
    with switched_on(lower, tmp_path, "ctl") as cluster, contextlib.ExitStack() as stack:
        ctl = cluster["ctl"]
        ctl.sh("sed -i 's/ ctl$/ ctl ctl.lab/' /etc/hosts")
        put(ctl, packages, "/root/packages")
        ctl.sh(BY_HAND)
        shutil.copytree(ROOT / "deploy", cluster.shared / "deploy")
        root = stack.enter_context(shell(ctl))
        root.type(f"mkdir {TREE} && cp -r /shared/deploy {TREE} && cd {TREE}")
        root.type_all(install, [line for line in install.lines("By hand") if not named(install, line)])
        _, (_, _, start_controller, *_), (_, _, start_agent, _), accounts, *_ = install.blocks()[
            "Ten bare machines"
        ]
        tell("installed by hand")

        init, controller, create, join, agent, user, login = joining.lines("")
        said = root.type_all(joining, [init])
        (act_as_admin,) = re.findall(r"export HOLDFAST_CONFIG=\S+", said)
        root.type(act_as_admin)
        pids = [in_foreground(root, joining, controller)]
        root.until("certificate +until", "holdfast whoami")
        (token,) = printed(root.type_all(joining, [create]), "holdfast-agent join")
        root.type_all(joining, [join], {SECRET: token})
        root.type_all(install, accounts)
        root.type(f"echo 'worker_user = \"{USER}\"' >> /etc/holdfast/agent.toml")
        pids.append(in_foreground(root, joining, agent))
        root.until("ctl +READY", "holdfast host list")
        (token,) = printed(root.type_all(joining, [user]), "holdfast login")
        hers = stack.enter_context(shell(ctl, USER))
        hers.type_all(joining, [login], {SECRET: token})
        assert f"\n{USER} /home/{USER}\n" in hers.type(A_JOB)
        tell("ann's job has run; both daemons are in the foreground")

        for pid in reversed(pids):
            root.type(f"kill {pid} && tail --pid={pid} -f /dev/null")
        root.type_all(install, [start_controller, start_agent])
        root.until("ctl +READY", "holdfast host list")
        assert f"\n{USER} /home/{USER}\n" in hers.type(A_JOB)
        assert root.type("stat -c %U /proc/$(systemctl show -P MainPID holdfast-controller)").strip() == "holdfast"
        tell("and once more by the units that were copied")
    nothing_is_left_untyped(install, ["By hand"])
    nothing_is_left_untyped(joining, joining.blocks())


def in_foreground(typist: Typist, page: Page, line: str) -> int:
    """Have a daemon run as a line says it, at another terminal, so to speak; its number."""
    typist.type_all(page, [line], {"^": "{ exec ", "$": "\n} >> /root/daemons.log 2>&1 &"})
    return int(typist.type("echo $!"))
