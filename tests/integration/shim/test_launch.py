"""A launch happens once, and gives a rank what was ordered and nothing else."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast_agent.shell.shims.shim_files import ShimId, is_alive, read_shim_id

Shim = Any


def test_second_launch_is_refused_on_the_same_connection(shim: Shim) -> None:
    shim.launch(2, shim.sh("exit 0", generation=2))
    shim.until("empty")
    for generation in (2, 1, 0):
        shim.launch(generation, shim.sh("exit 0"))
        refused = shim.expect("refused")
        assert refused["generation"] == generation
        assert refused["message"] == f"generation {generation} is not above 2, which was launched here"
    assert not Path(f"{shim.out}/g1.r0.out").exists()


def test_second_launch_is_refused_on_a_new_connection(shim: Shim) -> None:
    shim.launch(1, shim.sh("exit 0"))
    shim.until("empty")
    shim.connect()
    shim.until("empty")
    shim.launch(1, shim.sh("exit 0"))
    shim.expect("refused")


def test_second_launch_is_refused_by_a_later_shim_of_the_directory(start_shim: Callable[..., Shim]) -> None:
    first = start_shim()
    first.assign()
    first.launch(7, first.sh("exit 0", generation=7))
    first.until("empty")
    first.process.kill()
    first.wait()
    second = start_shim(first.directory)
    hello = second.assign()
    assert (hello["generation"], hello["phase"]) == (7, "idle")
    second.launch(7, second.sh("exit 0", generation=7))
    second.expect("refused")
    second.launch(8, second.sh("exit 0", generation=8))
    assert [m["ev"] for m in second.until("empty")] == ["started", "exited", "empty"]


def test_launch_is_refused_while_the_generation_before_lives(shim: Shim) -> None:
    shim.launch(1, shim.sh("exec sleep 60"))
    shim.expect("started")
    shim.launch(2, shim.sh("exit 0", generation=2))
    assert shim.expect("refused")["message"] == "generation 1 is not empty"
    assert not (shim.directory / "g2.journal").exists()


def test_next_generation_follows_an_empty_one(shim: Shim) -> None:
    for generation in range(1, 6):
        shim.launch(generation, shim.sh("exit 4", generation=generation))
        assert [m["generation"] for m in shim.until("empty")] == [generation] * 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"argv": []}, "the command is empty"),
        ({"argv": [""]}, "the command is empty"),
        ({"argv": ["a\0b"]}, "'ab' contains a NUL byte"),
        ({"env": {"A=B": "x"}}, "a variable's name is empty or contains '='"),
        ({"stdout": "/nope/x"}, "/nope/x: No such file or directory"),
    ],
)
def test_bad_order_is_refused_and_burns_no_generation(shim: Shim, change: dict[str, object], message: str) -> None:
    shim.launch(1, shim.sh("exit 0") | change)
    assert shim.expect("refused")["message"] == message
    assert not (shim.directory / "g1.journal").exists()
    shim.launch(1, shim.sh("exit 0"))
    shim.until("empty")


def test_order_that_lacks_a_field_is_refused(shim: Shim) -> None:
    order = shim.order(1, shim.sh("exit 0"))
    del order["uid"]
    shim.send(**order)
    assert shim.expect("refused")["message"] == "lacks 'uid'"


def test_same_rank_twice_and_no_rank_are_refused(shim: Shim) -> None:
    shim.launch(1, shim.sh("exit 0"), shim.sh("exit 0"))
    shim.expect("refused")
    shim.launch(1)
    shim.expect("refused")


def test_absurd_numbers_are_refused(shim: Shim) -> None:
    shim.launch(1, shim.sh("exit 0"), core_bytes=10**30)
    shim.expect("refused")


def test_output_behind_a_link_or_a_pipe_is_refused(shim: Shim, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/tmp/elsewhere")
    os.mkfifo(tmp_path / "fifo")
    for name in ("link", "fifo"):
        shim.launch(1, shim.sh("exit 0") | {"stdout": str(tmp_path / name)})
        assert name in shim.expect("refused")["message"]


def test_rank_inherits_three_descriptors_and_no_other(shim: Shim) -> None:
    assert shim.run("/bin/sh", "-c", "exec ls -l /proc/self/fd")["status"] == 0
    links = dict(line.split(" -> ") for line in shim.output().splitlines() if "->" in line)
    targets = {name.rsplit(" ", 1)[1]: target for name, target in links.items()}
    # The fourth is the listing's own.
    assert sorted(targets) == ["0", "1", "2", "3"] and targets["3"].startswith("/proc/")
    assert targets["0"] == "/dev/null"
    assert targets["1"] == f"{shim.out}/g1.r0.out" and targets["2"] == f"{shim.out}/g1.r0.err"


LIBC_SIGNALS = 0b11 << 31
"""Signals 32 and 33: the C library's own. Nobody else can change them, so what we were started with stays."""

STATE = r"""
import os, signal, json, resource
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps({
    "ignored": int(status["SigIgn"], 16), "blocked": int(status["SigBlk"], 16),
    "privileges": int(status["NoNewPrivs"]), "group": os.getpgrp() == os.getpid(), "parent": os.getppid(),
    "umask": os.umask(0), "cwd": os.getcwd(), "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
    "oom": int(open("/proc/self/oom_score_adj").read()), "ids": os.getresuid() + os.getresgid(),
    "groups": sorted(os.getgroups()), "session": os.getsid(0), "env": sorted(os.environ),
}))
"""


def state(shim: Shim, **fields: object) -> dict[str, Any]:
    # Through env, since Python itself changes what is ignored.
    shim.launch(1, shim.rank(sys.executable, "-I", "-S", "-c", STATE, env={"ONLY": "this"}), **fields)
    assert shim.until("exited")[-1]["status"] == 0
    return json.loads(shim.output())  # type: ignore[no-any-return]


def test_rank_starts_from_a_clean_state(shim: Shim) -> None:
    found = state(shim, umask=0o27)
    python_ignores = 1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)
    assert found["ignored"] & ~(python_ignores | LIBC_SIGNALS) == 0 and found["blocked"] == 0
    assert found["privileges"] == 1 and found["group"] and found["parent"] == shim.process.pid
    assert found["umask"] == 0o27 and found["cwd"] == str(shim.out) and found["core"] == 0
    assert found["oom"] == 0 or not os.access("/proc/self/oom_score_adj", os.W_OK)
    assert found["session"] == shim.process.pid
    assert set(found["env"]) <= {"ONLY", "LC_CTYPE"}


def test_rank_of_a_program_that_ignores_nothing_ignores_nothing(shim: Shim) -> None:
    shim.run("/bin/sh", "-c", "exec grep SigIgn /proc/self/status")
    assert int(shim.output().split()[1], 16) & ~LIBC_SIGNALS == 0


@pytest.mark.require("root")
def test_rank_runs_as_the_user_that_was_ordered(shim: Shim, tmp_path: Path) -> None:
    for parent in (tmp_path, *tmp_path.parents):
        if parent != Path("/") and str(parent).startswith("/tmp/pytest"):
            parent.chmod(0o755)
    fields = {"uid": 12345, "gid": 12346, "groups": [12347]}
    shim.launch(1, shim.rank("/bin/sh", "-c", "id -u; id -g; id -G; echo more >/dev/stderr; :>&2"), **fields)
    assert shim.until("exited")[-1]["message"] == "exited with code 0"
    assert shim.output().split() == ["12345", "12346", "12346", "12347"]


@pytest.mark.require("root")
def test_user_who_may_not_enter_the_directory_is_told(shim: Shim, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o700)
    order = shim.sh("exit 0") | {"cwd": str(tmp_path / "closed")}
    shim.launch(1, order, uid=12345, gid=12345)
    message = shim.until("exited")[-1]["message"]
    assert message == f"cannot change to {tmp_path}/closed: Permission denied"


def test_uid_without_gid_is_refused(shim: Shim) -> None:
    shim.launch(1, shim.sh("exit 0"), uid=12345)
    assert shim.expect("refused")["message"] == "a uid needs a gid"


def test_bytes_that_are_not_utf8_reach_the_program(shim: Shim) -> None:
    script = "printf '%s|%s' \"$1\" \"$NAME\" | od -An -tx1 | tr -d ' \\n'; echo"
    odd = b"caf\xe9 \xe2\x82\xac".decode("utf-8", "surrogateescape")
    env = {"PATH": os.environ["PATH"], "NAME": odd}
    shim.launch(1, shim.rank("/bin/sh", "-c", script, "sh", odd, env=env))
    shim.until("exited")
    expected = b"caf\xe9 \xe2\x82\xac|caf\xe9 \xe2\x82\xac"
    assert shim.output().strip() == expected.hex()


def test_huge_arguments_and_environments_pass(shim: Shim) -> None:
    arguments = [str(n) for n in range(100_000)]
    env = {"PATH": os.environ["PATH"], **{f"V{n}": "y" * 1000 for n in range(300)}}
    shim.launch(1, shim.rank("/bin/sh", "-c", 'echo $# "$V299" | cut -c1-10', "sh", *arguments, env=env))
    assert shim.until("exited")[-1]["status"] == 0
    assert shim.output() == "100000 yyy\n"


def test_shim_says_who_it_is(shim: Shim) -> None:
    identity = read_shim_id(shim.directory / "shim.json")
    assert identity is not None and identity.pid == shim.process.pid
    assert is_alive(identity)
    assert not is_alive(ShimId(identity.pid, identity.start_ticks + 1, identity.boot_id))
    assert not is_alive(ShimId(identity.pid, identity.start_ticks, "another boot"))
    shim.process.kill()
    os.waitid(os.P_PID, identity.pid, os.WEXITED | os.WNOWAIT)
    assert not is_alive(identity), "a zombie"
    shim.wait()
    assert not is_alive(identity)
