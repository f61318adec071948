"""Another user of the hosts on which ``holdfast guard`` runs gets neither in nor anything to read."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.guard.guarding import PATIENCE_S, environment, nothing_is_left, processes, wait_for
from tests.security.hosts import neighbour as attack
from tests.support.machine_parts import ANOTHER_USER, SYSTEM_PYTHON
from tests.support.whole_run import leftovers

from holdfast._base.version import __version__
from holdfast.guard import certificates, meeting
from holdfast.guard.allocation import SEED_VARIABLE, read

pytestmark = pytest.mark.require("root")
SEED = os.urandom(32).hex()
WAITS = 'import os, pathlib, time; pathlib.Path("up").write_text(repr(dict(os.environ))); time.sleep(1000)'


# What can be read of a process: its files in /proc, and the names in its folders there.
READS = """\
import os, sys
for pid in sys.argv[1:]:
    for name in ("environ", "mem", "maps", "smaps", "smaps_rollup", "auxv", "io", "stack", "syscall", "timers"):
        try:
            with open(f"/proc/{pid}/{name}", "rb", 0) as file:
                if file.read(1):
                    print(pid, name)
        except OSError:
            pass
    for name in ("fd", "map_files", "ns"):
        try:
            print(pid, name, [os.readlink(f"/proc/{pid}/{name}/{each}") for each in os.listdir(f"/proc/{pid}/{name}")])
        except OSError:
            pass
    for name in ("cwd", "root", "exe"):
        try:
            print(pid, name, os.readlink(f"/proc/{pid}/{name}"))
        except OSError:
            pass
    try:
        os.kill(int(pid), 0)
        print(pid, "signals")
    except OSError:
        pass
"""
# What is answered to nonsense, by TCP and by UDP, at each address; and which sockets with a name can be reached.
KNOCKS = """\
import json, socket, sys
NONSENSE = [b"", b"\\n", bytes(4096), b"[" * 60000 + b"\\n", b"x" * 200000, b'{"nonce": "n"}\\n0 {}\\n']
NONSENSE += [b"GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n", b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n" + bytes(9)]
NONSENSE += [bytes.fromhex("1603010005010000010303")]
given = json.loads(sys.argv[1])
for host, port in given["tcp"]:
    for text in NONSENSE:
        said = b""
        with socket.create_connection((host, port), 60) as knock:
            try:
                knock.sendall(text)
                knock.shutdown(socket.SHUT_WR)
                while data := knock.recv(4096):
                    said += data
            except OSError:
                pass
        print(json.dumps([port, said.decode("latin-1")]))
for host, port in given["udp"]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as knock:
        knock.settimeout(0.2)
        knock.connect((host, port))
        for text in NONSENSE:
            try:
                knock.send(text[:1000])
                print(json.dumps([port, knock.recv(4096).decode("latin-1")]))
            except OSError:
                pass
for path in given["unix"]:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
        with socket.socket(socket.AF_UNIX, kind) as knock:
            try:
                knock.connect(path)
                print(json.dumps([path, "connected"]))
            except OSError:
                pass
"""


def neighbour(*command: str) -> str:
    """What a command of another user prints, as far as it gets."""
    done = subprocess.run([*ANOTHER_USER, *command], cwd="/", capture_output=True, text=True, timeout=PATIENCE_S)
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


@pytest.mark.require("system_python")
def test_a_neighbour_learns_of_its_processes_what_ps_shows_and_reaches_none(env: dict[str, str]) -> None:
    running = [str(pid) for pid in processes(env)]
    own = subprocess.run([SYSTEM_PYTHON, "-I", "-c", READS, *running], capture_output=True, text=True)

    assert len(own.stdout.splitlines()) > 10 * len(running), "their user reads all of it"
    assert neighbour(SYSTEM_PYTHON, "-I", "-c", READS, *running) == ""


def _listening(env: dict[str, str], kind: str) -> list[tuple[str, int]]:
    """Where a guard's processes listen, by ``-t`` or ``-u``."""
    guards = set(processes(env))
    said = subprocess.run(["ss", "-Hlnp", kind], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    ours = [line.split()[3] for line in said.stdout.splitlines() if any(f"pid={pid}," in line for pid in guards)]
    return [(address.rpartition(":")[0].strip("[]"), int(address.rpartition(":")[2])) for address in ours]


def _lasting(env: dict[str, str]) -> dict[int, str]:
    """Processes of a guard but those that only look at something."""
    running = processes(env)
    return {pid: line for pid, line in running.items() if "gpu.helper" not in line and "py-spy" not in line}


def _named_sockets(env: dict[str, str]) -> list[str]:
    """Names of the sockets that a guard's processes have, abstract ones with their @."""
    inodes = set()
    for pid in processes(env):
        for each in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                inodes.add(os.readlink(each).removeprefix("socket:[").removesuffix("]"))
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
    return sorted({words[7] for words in lines if len(words) > 7 and words[6] in inodes})


@pytest.mark.require("system_python")
def test_nonsense_is_answered_by_nothing_and_named_sockets_are_out_of_reach(
    folder: Path, env: dict[str, str]
) -> None:
    before = _lasting(env)
    tcp, udp, unix = _listening(env, "-t"), _listening(env, "-u"), _named_sockets(env)
    assert len(tcp) >= 2, "tasks meet, and the controller listens"
    assert not any(name.startswith("@") for name in unix), "an abstract socket is open to all"
    # They are bound by way of a descriptor of their folder, so their names are no paths of theirs.
    unix += [str(path) for path in Path(env["TMPDIR"]).rglob("*") if path.is_socket()]
    assert len(unix) >= 4, "agents and shims have sockets"

    given = json.dumps({"tcp": tcp, "udp": udp, "unix": unix})
    said = [json.loads(line) for line in neighbour(SYSTEM_PYTHON, "-I", "-c", KNOCKS, given).splitlines()]

    assert len(said) == 9 * len(tcp)
    for port, text in said:
        if text.startswith("{"):
            (greeting,) = text.splitlines()
            assert set(json.loads(greeting)) == {"job", "nonce", "credential"}
        else:
            assert text[:1] in ("", "\x15"), (port, text)  # an alert of TLS
        assert SEED not in text
    assert before == _lasting(env)
    config = env | {"HOLDFAST_CONFIG": str(next(folder.glob("holdfast-*")) / "client.toml")}
    shown = subprocess.run(
        [sys.executable, "-m", "holdfast", "ps", "-o", "json"], env=config, capture_output=True, timeout=PATIENCE_S
    )
    assert [job["state"] for job in json.loads(shown.stdout)] == ["JOB_STATE_RUNNING"]


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
    folder: Path, env: dict[str, str], tmp_path: Path
) -> None:
    (record,) = folder.glob("holdfast-*")
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    certificates.write_here(b"o" * 32, stranger, "host-1", controller=True)
    shutil.copy(record / "client.toml", stranger)

    assert answered_to(record, "user") != b"", "the guard's own user is answered"
    assert answered_to(record, None) == b""
    assert [answered_to(stranger, name) for name in ("user", "agent", "controller")] == [b""] * 3

    place = read(env, "host")
    said = b""
    for port in meeting.ports(place.job):
        try:
            connection = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        except ConnectionRefusedError:
            continue
        with connection:
            introduction = {
                "task": 1,
                "name": "forged",
                "version": __version__,
                "command": "",
                "clock": time.time(),
            }
            connection.sendall(f'{{"nonce": "n"}}\n{"0" * 64} {json.dumps(introduction)}\n'.encode())
            while data := connection.recv(4096):
                said += data

    (greeting,) = said.splitlines()
    assert set(json.loads(greeting)) == {"job", "nonce", "credential"}
    assert SEED.encode() not in said


def _inet(env: dict[str, str]) -> set[tuple[str, str, int]]:
    """Protocol, address in hexadecimal digits and port of every socket that a guard's processes have.

    All processes that have something of its scratch open: shims have neither arguments nor an environment that tell.
    """
    inodes: set[str] = set()
    for line in leftovers.processes(env["TMPDIR"]):
        pid = line.split()[1].rstrip(":")
        with contextlib.suppress(OSError):
            for each in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    inodes.add(os.readlink(each).removeprefix("socket:[").removesuffix("]"))
    found = set()
    for kind in ("tcp", "tcp6", "udp", "udp6", "udplite", "udplite6", "raw", "raw6"):
        with contextlib.suppress(FileNotFoundError):
            for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]:
                words = line.split()
                address, _, port = words[1].partition(":")
                if words[9] in inodes:
                    found.add((kind, address, int(port, 16)))
    return found


def test_shims_and_daemons_have_sockets_on_the_addresses_of_the_job_alone_and_none_for_datagrams(
    env: dict[str, str],
) -> None:
    bound = _inet(env)

    loopback = {("tcp", "0100007F"), ("tcp6", "0000000000000000FFFF00000100007F")}
    assert {(kind, address) for kind, address, _ in bound} <= loopback
    assert {port for _, _, port in bound} >= {port for _, port in _listening(env, "-t")}


def _tried(given: dict[str, object], *by: str) -> list[str]:
    """What succeeds of all that a neighbour tries. In a session of his own: who shares one may send SIGCONT."""
    command = [*by, SYSTEM_PYTHON, "-I", "-c", Path(attack.__file__).read_text(), json.dumps(given)]
    done = subprocess.run(
        command, cwd="/", capture_output=True, text=True, timeout=PATIENCE_S, check=True, start_new_session=True
    )
    return done.stdout.splitlines()


@pytest.mark.require("system_python")
def test_a_neighbour_who_tries_everything_reads_nothing_ends_nothing_and_alters_nothing(
    folder: Path, env: dict[str, str]
) -> None:
    (record,) = folder.glob("holdfast-*")
    events, before = (record / "events.jsonl").read_bytes(), _lasting(env)
    agents = Path(env["TMPDIR"]).glob("holdfast-guard-*/agent.toml")
    blocks = [re.findall(r'port_range = "(\d+)-(\d+)"', path.read_text())[0] for path in agents]
    ports = {port for first, last in blocks for port in range(int(first), int(last) + 1)}
    assert len(ports) > 1
    scratch = [str(path) for top in Path(env["TMPDIR"]).iterdir() for path in (top, *top.rglob("*"))]
    pids = [int(line.split()[1].rstrip(":")) for line in leftovers.processes(env["TMPDIR"])]
    files = [*scratch, *map(str, (record, *record.rglob("*")))]
    assert len(pids) > 8 and len(files) > 40
    udp = [("127.0.0.1", port) for port in ports | {port for _, _, port in _inet(env)}]
    given = {"pids": pids, "files": files, "tcp": _listening(env, "-t"), "udp": udp}

    assert _tried(given, *ANOTHER_USER) == []

    assert before.items() <= _lasting(env).items()
    assert (record / "events.jsonl").read_bytes() == events
    config = env | {"HOLDFAST_CONFIG": str(record / "client.toml")}
    for words, states in ((["ps"], ["JOB_STATE_RUNNING"]), (["host", "list"], ["READY"] * 2)):
        command = [sys.executable, "-m", "holdfast", *words, "-o", "json"]
        shown = subprocess.run(command, env=config, capture_output=True, timeout=PATIENCE_S)
        assert [each["state"] for each in json.loads(shown.stdout)] == states


@pytest.mark.require("system_python")
def test_what_a_neighbour_tries_would_succeed_with_what_is_his(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    victim = subprocess.Popen(["sleep", "1000"])
    try:
        given = {"pids": [victim.pid], "files": [str(tmp_path / "file")], "tcp": [], "udp": []}
        said = {line.rpartition(" ")[0] for line in _tried(given)}
    finally:
        victim.kill()
        victim.wait()

    assert said >= {"memory", "priority", "affinity", "limits", "signal", "read", "write", "mode", "rename"}
    assert said & {"descriptor", "trace"}
