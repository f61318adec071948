"""Workers are whom the admins say, with nothing to gain, and out of each other's reach, on a real host."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.agent.conftest import HOST, Agent
from tests.integration.agent.controller import Controller, assignment
from tests.integration.agent.launch.test_launch import launch

from holdfast.cli.submission.run_spec import literal

pytestmark = pytest.mark.require("root")

NOBODY, GAMES = 65534, 5
SHOW = """
grep -E '^(Uid|Gid|Groups|NoNewPrivs|Cap...):' /proc/self/status
echo "Umask: $(umask)"
echo "Home: $HOME $USER $LOGNAME"
for fd in $(seq 0 255); do [ -e /proc/$$/fd/$fd ] && printf 'Fd: %s\\n' $fd; done
[ -w "$TORCHELASTIC_ERROR_FILE" ] || : > "$TORCHELASTIC_ERROR_FILE" && echo 'Error file: mine'
: > "$HOLDFAST_PROGRESS_DIR/x" && : > scratch && : > /dev/shm/x && echo 'Places: mine'
cat /proc/$PPID/environ > /dev/null 2>&1 || echo 'Its shim: closed'
echo done
"""


def sh(script: str) -> list[str]:
    """A command whose ``$`` are the shell's."""
    return ["/bin/sh", "-c", literal(script)]


WAIT = sh(f"{SHOW}\nexec sleep 600")
SETTINGS = {
    "allow_root_workers": False,
    "worker_user": "daemon",
    "allowed_accounts": ["games"],
    "umask": "027",
    "checks": {"disk_free_mb": 0},
}


def shown(agent: Agent, generation: int, job: str = "job-1") -> dict[str, list[str]]:
    """What ``SHOW`` has printed, by its first word."""
    text = (agent.logs / f"{job}/g{generation}/workerpool0-0.r0.out").read_text()
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        found.setdefault(name, []).append(" ".join(value.split()))
    return found


def out_of(job: str, generation: int = 1) -> str:
    return f"{job}/g{generation}/workerpool0-0.r0.out"


def check_is(agent: Agent, generation: int, uid: int, gid: int, home: str) -> None:
    """The rank was that account, and had nothing that could make it more."""
    facts = shown(agent, generation)
    assert facts["Uid"] == [" ".join([str(uid)] * 4)]
    assert facts["Gid"] == [" ".join([str(gid)] * 4)]
    assert facts["Groups"] == [str(gid)]
    assert facts["NoNewPrivs"] == ["1"]
    assert {facts[name][0] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert facts["Umask"] == ["0027"]
    assert facts["Home"] == [home]
    assert facts["Fd"] == ["0", "1", "2"]
    assert facts["Error file"] == facts["Places"] == ["mine"]
    assert facts["Its shim"] == ["closed"]


async def relaunch(controller: Controller, generation: int, command: list[str], **options: Any) -> None:
    """In place, whatever runs now."""
    await launch(controller, command, generation=generation, grace_s=0.2, **options)
    await controller.state("RUNNING", generation=generation)


@pytest.mark.parametrize("settings", [SETTINGS])
async def test_a_rank_is_its_account_and_no_more_at_every_launch(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    agent.open_to_others()
    await launch(controller, WAIT, run_as="nobody")
    await agent.output(out_of("job-1"), "done")
    await relaunch(controller, 2, WAIT, run_as="nobody")
    await agent.output(out_of("job-1", 2), "done")
    agent.kill()
    agent.start()
    await controller.connected(2)
    await relaunch(controller, 3, WAIT, run_as="nobody")
    await agent.output(out_of("job-1", 3), "done")
    for generation in (1, 2, 3):
        check_is(agent, generation, NOBODY, NOBODY, "/nonexistent nobody nobody")
    stream = agent.logs / out_of("job-1", 3)
    assert (stream.stat().st_uid, stream.stat().st_mode & 0o777) == (NOBODY, 0o600)
    assert (agent.root / "state/scratch/job-1").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("settings", [SETTINGS])
async def test_what_one_account_does_here_is_closed_to_another(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    agent.open_to_others()
    secret = "echo secret; echo secret > note; echo secret > /dev/shm/note; echo $$; exec sleep 600"
    await launch(controller, sh(secret), run_as="nobody", env={"TOKEN": "hidden"})
    await agent.output(out_of("job-1"), "secret\n")
    await agent.until(lambda: (agent.logs / out_of("job-1")).read_text().count("\n") == 2, "its pid")
    victim = int((agent.logs / out_of("job-1")).read_text().split()[1])
    shim = agent.shim_pids()[0]
    tries = {
        "output": f"cat {agent.logs / out_of('job-1')}",
        "errors": f"ls {agent.logs}/job-1/g1/workerpool0-0.errors",
        "scratch": f"ls {agent.root}/state/scratch/job-1",
        "note": f"cat {agent.root}/state/scratch/job-1/note",
        "shm": "cat /dev/shm/note",
        "its shm": f"cat /proc/{victim}/root/dev/shm/note",
        "environment": f"cat /proc/{victim}/environ",
        "memory": f"head -c 1 /proc/{victim}/mem",
        "signal": f"kill -9 {victim}",
        "shim": f"kill -9 {shim}",
        "journal": f"ls {agent.workers}",
        "root": "su -c id || sudo -n id",
    }
    script = "".join(f"({command}) > /dev/null 2>&1 && echo 'open: {name}'\n" for name, command in tries.items())
    await launch(controller, sh(f"{script}echo tried"), job="job-2", run_as="games")
    await agent.output(out_of("job-2"), "tried")
    assert (agent.logs / out_of("job-2")).read_text() == "tried\n"
    assert lives(victim)


def lives(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"


REFUSALS = {
    "no-such-account": "there is no account no-such-account on this host",
    "root": "root has uid 0 here, and this host starts no workers as root (agent.toml: allow_root_workers)",
    "bin": "bin has uid 2 here, and those below 1000 are the system's",
}


@pytest.mark.parametrize("settings", [SETTINGS])
async def test_a_host_starts_nothing_as_an_account_that_its_admin_forbids(
    agent: Agent, controller: Controller
) -> None:
    """And work that names none as its ``worker_user``."""
    await controller.connected()
    agent.open_to_others()
    for number, (account, words) in enumerate(REFUSALS.items(), 1):
        worker = f"workerpool0-{number}"
        await controller.assign(assignment("PREPARE", ["/bin/true"], worker=worker, run_as=account))
        refused = await controller.state("CANNOT_PREPARE", worker=worker)
        assert refused.message.startswith(f"{HOST}: {words}")
        assert not refused.host_fault, "the host is good for all other work"
    await launch(controller, sh(SHOW))
    await controller.exit()
    check_is(agent, 1, 1, 1, "/usr/sbin daemon daemon")


CANARY = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) static void sing(void) {
    char program[256] = {0}, line[512];
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0) return;
    int length = snprintf(line, sizeof line, "library %d %d %s\\n", getuid(), geteuid(), program);
    int file = open(SONG, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (file >= 0 && write(file, line, length) < 0) return;
    if (file >= 0) close(file);
}
"""


@pytest.fixture
def song(tmp_path: Path, settings: dict[str, Any]) -> Path:
    """Where the canaries write who runs them: anybody may. The hooks write there, too, before the agent starts."""
    path = tmp_path / "song"
    path.touch()
    path.chmod(0o666)
    for name in ("prolog", "epilog"):
        hook = tmp_path / f"{name}.sh"
        hook.write_text(f"#!/bin/bash\necho {name} $(id -u) $LD_PRELOAD $BASH_ENV $PYTHONPATH >> {path}\n")
        hook.chmod(0o755)
    settings |= SETTINGS | {"hooks": {"prolog": [f"{tmp_path}/prolog.sh"], "epilog": [f"{tmp_path}/epilog.sh"]}}
    return path


@pytest.fixture
def preloads(song: Path, tmp_path: Path) -> dict[str, str]:
    """Variables by which a user's own code gets into programs that start with them."""
    (tmp_path / "canary.c").write_text(CANARY)
    build = ["cc", "-shared", "-fPIC", f'-DSONG="{song}"', "-o", str(tmp_path / "canary.so")]
    subprocess.run([*build, str(tmp_path / "canary.c")], check=True)
    (tmp_path / "rc").write_text(f"echo bash $(id -u) >> {song}\n")
    (tmp_path / "modules").mkdir()
    said = f"open({str(song)!r}, 'a').write(f'python {{os.getuid()}} {{os.geteuid()}}\\n')"
    (tmp_path / "modules/sitecustomize.py").write_text(f"import os\n{said}\n")
    return {
        "LD_PRELOAD": str(tmp_path / "canary.so"),
        "BASH_ENV": str(tmp_path / "rc"),
        "ENV": str(tmp_path / "rc"),
        "PYTHONPATH": str(tmp_path / "modules"),
        "PYTHONSTARTUP": str(tmp_path / "modules/sitecustomize.py"),
        "PATH": "/usr/bin:/bin",
    }


def heard(song: Path) -> tuple[list[list[str]], list[list[str]]]:
    """(lines of the hooks, lines of the canaries)."""
    lines = [line.split() for line in song.read_text().splitlines()]
    hooks = [line for line in lines if line[0] in ("prolog", "epilog")]
    return hooks, [line for line in lines if line not in hooks]


def have_it_mapped(pids: Iterable[int]) -> list[int]:
    """Processes that the canary has got into."""
    found = []
    for pid in pids:
        with contextlib.suppress(OSError):
            found += [pid] if "canary" in Path(f"/proc/{pid}/maps").read_text() else []
    return found


@pytest.mark.require("cc")
async def test_what_a_user_has_preloaded_runs_as_that_user_alone(
    song: Path, preloads: dict[str, str], agent: Agent, controller: Controller, tmp_path: Path
) -> None:
    await controller.connected()
    agent.open_to_others()
    command = ["/bin/bash", "-c", "/usr/bin/python3 -c ''"]
    options: dict[str, Any] = {"env": preloads, "run_as": "nobody", "output": str(tmp_path / "results")}
    await launch(controller, command, **options)
    assert (await controller.exit()).exit.exit_code == 0
    await controller.state("EMPTY")
    await launch(controller, command, generation=2, **options)
    await controller.exit(generation=2)
    await controller.state("EMPTY", generation=2)
    # It is over for good: its output is copied, its scratch directory removed.
    await controller.assign(assignment("FORGET", generation=2))
    await agent.gone(agent.workers / "job-1")
    hooks, sung = heard(song)
    assert hooks == [["prolog", "0"], ["epilog", "0"]] * 2, "and nothing of the user's in their environment"
    assert {line[0] for line in sung} == {"library", "bash", "python"}, "each of them sings"
    assert {word for line in sung for word in line[1:3] if word.isdigit()} == {str(NOBODY)}
    assert agent.process is not None
    assert have_it_mapped([agent.process.pid, *agent.spares(), *agent.shim_pids()]) == []
