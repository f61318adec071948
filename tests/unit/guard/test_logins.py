"""Which hosts are logged in to, what they answer, and how they find the first of them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from holdfast._base.version import __version__
from holdfast.errors import ConfigError
from holdfast.guard import logins, remote
from holdfast.guard.allocation import Allocation
from holdfast.guard.logins import MARK, Answer, Login

NOW = 1_700_000_000.0
GOOD = {
    "python": "3.12.1",
    "program": "/opt/venv/bin/python",
    "holdfast": __version__,
    "problem": "",
    "clock": NOW,
    "folder": True,
    "login": "10.0.0.9 50000 10.0.0.1 22",
}


def answer(**changed: Any) -> Answer:
    return logins.answer(Login("ann@n1"), MARK + json.dumps(GOOD | changed).encode() + b"\n")


def refusal(**changed: Any) -> str:
    found = logins.refusal(answer(**changed), "/opt/venv/bin/python", "/work", NOW)
    return f"{found.message} {found.fix}" if found else ""


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ("a,b", ["a", "b"]),
        ("n[1-2].lab,ann@big", ["n1.lab", "n2.lab", "ann@big"]),
        ("::1,10.0.0.2", ["::1", "10.0.0.2"]),
    ],
)
def test_hosts_are_named_in_a_list(text: str, targets: list[str]) -> None:
    assert [each.target for each in logins.logins(text)] == targets


def test_host_files_of_mpi_pbs_and_lsf_name_each_host_once() -> None:
    mpi = "# ours\nn1 slots=8\nn2 slots=8 max_slots=8\n\n"
    pbs = "n1\nn1\nn2\nn2\n"
    mpich = "n1:8\nn2:8\n"

    for file in (mpi, pbs, mpich):
        assert [each.target for each in logins.logins("@file", file)] == ["n1", "n2"]


def test_a_host_file_may_have_addresses_of_ipv6_and_ports() -> None:
    file = "fd00:77::1\nann@fd00:77::2\n[fd00:77::3]:8\nssh://ann@n4:2222\n"

    found = logins.logins("@file", file)

    assert [each.target for each in found] == ["fd00:77::1", "ann@fd00:77::2", "fd00:77::3", "ssh://ann@n4:2222"]
    assert [each.host for each in found] == ["fd00:77::1", "fd00:77::2", "fd00:77::3", "n4"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no host"),
        ("a,,b", "is no host"),
        ("-oProxyCommand=sh", "is no host"),
        ("a b", "is no host"),
        ("ssh://u@a:99999", "has no port from 1 to 65535"),
        ("ssh://a:", "has no port from 1 to 65535"),
        ("a,b,a", "names a twice"),
        ("ann@a,bob@a", "names a twice"),
        ("n[1-", "no host list"),
    ],
)
def test_lists_that_name_no_hosts_are_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        logins.logins(text)


def test_a_file_without_hosts_is_refused() -> None:
    with pytest.raises(ConfigError, match="names no host"):
        logins.logins("@file", "# none\n")


def test_a_host_that_is_as_this_one_is_taken() -> None:
    assert refusal() == ""
    assert refusal(clock=NOW + 299) == ""


@pytest.mark.parametrize(
    ("changed", "said", "cure"),
    [
        ({"program": "", "problem": "no Python"}, "n1 has no Python", "Install Python"),
        ({"python": "3.9.2", "program": "/usr/bin/python3", "holdfast": ""}, "Python 3.9.2", "Install Python"),
        ({"holdfast": "", "problem": "No module named 'holdfast'"}, "has no Holdfast: No mod", "-m pip install"),
        ({"holdfast": "0.0.9", "problem": "anything"}, "Holdfast 0.0.9", "Install one release"),
        ({"problem": "No module named 'click'"}, "can't be loaded on n1: No module named 'click'", "Install it"),
        ({"clock": NOW + 7200}, "clock of n1 is 7200 s ahead of", "Set the clocks"),
        ({"clock": NOW - 300}, "300 s behind", "Set the clocks"),
        ({"folder": False}, "n1 has no folder /work", "a folder that all hosts have"),
    ],
)
def test_a_host_that_cannot_run_a_task_is_named_with_the_cure(
    changed: dict[str, Any], said: str, cure: str
) -> None:
    text = refusal(**changed)

    assert "n1" in text
    assert said in text
    assert cure in text


@pytest.mark.parametrize("line", [b"not JSON", b"[1]", b'{"clock": "late"}'])
def test_an_answer_that_is_none_is_no_answer(line: bytes) -> None:
    with pytest.raises(ValueError):
        logins.answer(Login("n1"), MARK + line + b"\n")


def test_the_first_host_is_found_where_it_was_logged_in_to() -> None:
    assert logins.first_addresses([answer(), answer(login="10.0.0.9 1 10.0.0.2 22")]) == ("10.0.0.1",)


def test_a_first_host_that_is_this_machine_is_found_where_the_others_were_logged_in_to_from() -> None:
    here = answer(login="127.0.0.1 1 127.0.0.1 22")
    others = [answer(login=f"{client} 1 10.0.0.2 22") for client in ("10.0.0.9", "10.0.0.9", "10.1.0.9")]

    assert logins.first_addresses([here, *others]) == ("10.0.0.9", "10.1.0.9")
    assert logins.first_addresses([here]) == ("127.0.0.1",)
    assert logins.first_addresses([here, here]) == ("127.0.0.1",)


def test_a_login_that_says_no_address_goes_by_its_name() -> None:
    assert logins.first_addresses([answer(login="")]) == ("n1",)


def test_an_order_arrives_as_it_was_sent() -> None:
    place = Allocation("ssh", "guard-1", 1, 2, 0, 1, "n2", ("n1", "n2"), ("10.0.0.1",))
    order = remote.Order(
        place, "ab" * 32, {"NAME": "two\nlines \udcff"}, "/work", {"command": ["true"], "nproc": 1}, 0o077
    )

    line = order.line()

    assert line.count(b"\n") == 1
    assert remote.Order.read(line) == order


def test_a_login_and_a_task_keep_their_own_variables() -> None:
    here = {
        "PATH": "/opt/bin",
        "HF_TOKEN": "secret",
        "HOME": "/home/ann",
        "TMPDIR": "/scratch/17",
        "BASH_FUNC_f%%": "()",
    }
    here |= {"SLURM_PROCID": "3", "SSH_AUTH_SOCK": "/tmp/agent", "HOLDFAST_GUARD_SEED": "ab"}

    assert remote.shared_environment(here) == {"PATH": "/opt/bin", "HF_TOKEN": "secret"}


def test_no_value_of_a_variable_is_code_to_the_shell_that_runs_the_bare_command(tmp_path: Path) -> None:
    env = {"PATH": "/usr/bin:/bin", "HARM": f"'; touch {tmp_path}/harm; '$(touch {tmp_path}/harm)\n`x`"}
    script = logins.bare_script(("sh", "-c", 'printf %s "$HARM" >&2; exit 3'), env, str(tmp_path), 0, 1, 1, "n1")

    with subprocess.Popen(["/bin/sh"], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as shell:
        assert shell.stdin is not None
        assert shell.stderr is not None
        shell.stdin.write(script)
        shell.stdin.flush()  # and stays open, as a login does
        assert (shell.stderr.read().decode(), shell.wait(60)) == (env["HARM"], 3)

    assert not (tmp_path / "harm").exists()


def test_bare_commands_end_when_their_login_does(tmp_path: Path) -> None:
    script = logins.bare_script(("sleep", "1000"), {"PATH": "/usr/bin:/bin"}, str(tmp_path), 0, 1, 2, "n1")
    shell = subprocess.Popen(["/bin/sh"], stdin=subprocess.PIPE, start_new_session=True)
    assert shell.stdin is not None
    shell.stdin.write(script)

    shell.stdin.close()

    assert shell.wait(60) == 128 + 15
