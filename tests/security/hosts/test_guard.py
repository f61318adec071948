"""Another user of the hosts on which ``holdfast guard`` runs gets neither in nor anything to read."""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.guard.guarding import PATIENCE_S, environment, nothing_is_left, processes, wait_for

from holdfast.guard import meeting
from holdfast.guard.allocation import SEED_VARIABLE, read

pytestmark = pytest.mark.require("root")
NOBODY = "65534"
SEED = os.urandom(32).hex()
WAITS = 'import os, pathlib, time; pathlib.Path("up").write_text(repr(dict(os.environ))); time.sleep(1000)'


def neighbour(*command: str) -> str:
    """What a command of another user prints, as far as it gets."""
    account = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    done = subprocess.run([*account, *command], cwd="/", capture_output=True, text=True, timeout=PATIENCE_S)
    return done.stdout


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Open to all, as /tmp is: what keeps others out must be the guard's own doing."""
    made = Path(tempfile.mkdtemp(prefix="guarded-"))
    made.chmod(0o1777)
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def env(folder: Path) -> Iterator[dict[str, str]]:
    """The environment of the first of two tasks that the environment numbers, both of which run."""
    numbers = {"HOLDFAST_GUARD_HOST": "127.0.0.1", "HOLDFAST_GUARD_TASKS": "2", SEED_VARIABLE: SEED}
    env = environment(folder, **numbers, HOLDFAST_GUARD_TASK="0")
    Path(env["TMPDIR"]).chmod(0o1777)
    command = (sys.executable, "-m", "holdfast", "guard", "--", sys.executable, "-c", WAITS)
    tasks = [
        subprocess.Popen(
            command, cwd=folder, env=env | {"HOLDFAST_GUARD_TASK": str(task)}, stdin=subprocess.DEVNULL
        )
        for task in range(2)
    ]
    try:
        wait_for(lambda: list(folder.glob("holdfast-*/client.toml")) and (folder / "up").exists(), "both tasks run")
        yield env
    finally:
        for task in tasks:
            task.terminate()
        for task in tasks:
            task.wait(PATIENCE_S)
    nothing_is_left(env)


def test_no_file_of_a_guard_can_be_read_by_another_user(folder: Path, env: dict[str, str]) -> None:
    scratch = [str(path) for path in Path(env["TMPDIR"]).iterdir()]
    record = [str(path) for path in folder.glob("holdfast-*")]
    assert len(scratch) == 2
    assert len(record) == 1

    found = neighbour("find", *scratch, *record, "-readable").split()

    assert found == []
    assert neighbour("find", str(folder), "-maxdepth", "1", "-readable").split() != [], (
        "the neighbour sees the folder"
    )


def test_no_command_line_and_no_rank_holds_the_secret_and_no_environment_is_open(
    folder: Path, env: dict[str, str]
) -> None:
    running = processes(env)
    assert len(running) > 8

    assert not any(SEED in line for line in running.values())
    assert SEED not in (folder / "up").read_text()
    assert neighbour("cat", *(f"/proc/{pid}/environ" for pid in running)) == ""


def answered_to(record: Path, certificate: str | None) -> bytes:
    """The first that a guard's controller says to a caller of HTTP/2; nothing where it hangs up."""
    controller = int((record / "client.toml").read_text().partition("127.0.0.1:")[2].partition('"')[0])
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    if certificate:
        context.load_cert_chain(record / f"{certificate}.pem", record / f"{certificate}.key")
    with socket.create_connection(("127.0.0.1", controller), PATIENCE_S) as plain:
        try:
            with context.wrap_socket(plain) as caller:
                caller.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
                return caller.recv(4096)
        except (ssl.SSLError, ConnectionError):
            return b""


def test_nothing_that_a_guard_listens_on_answers_a_caller_without_its_secret(
    folder: Path, env: dict[str, str]
) -> None:
    (record,) = folder.glob("holdfast-*")

    assert answered_to(record, "user") != b"", "the guard's own user is answered"
    assert answered_to(record, None) == b""

    place = read(env, "host")
    said = b""
    for port in meeting.ports(place.job):
        try:
            connection = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        except ConnectionRefusedError:
            continue
        with connection:
            forged = {"task": 1, "name": "forged", "version": "1", "nonce": "0" * 32, "proof": "0" * 64}
            connection.sendall(json.dumps(forged).encode() + b"\n")
            while data := connection.recv(4096):
                said += data

    (greeting,) = said.splitlines()
    assert set(json.loads(greeting)) == {"job", "nonce", "credential"}
    assert SEED.encode() not in said


def test_addresses_are_those_of_the_job_alone(env: dict[str, str]) -> None:
    guards = set(processes(env))
    listening = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, timeout=PATIENCE_S, check=True)

    ours = [
        line.split()[3] for line in listening.stdout.splitlines() if any(f"pid={pid}," in line for pid in guards)
    ]

    assert ours
    assert all("127.0.0.1" in address for address in ours), ours
