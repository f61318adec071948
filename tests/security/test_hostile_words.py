"""What a host, a worker or another user has written reaches no terminal as more than words, in whatever command."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import pty
import re
import struct
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
import yaml
from tests.integration.client.fake_controller import Pki
from tests.security.hostile_controller import FORGED, HOSTILE, HostileController

from holdfast.cli.app import root

WITHOUT_CALLS = {
    "completion": "prints a script of click's",
    "job schema": "prints a constant",
    "dev start": "starts daemons; its words are its own",
    "dev stop": "stops daemons; its words are its own",
    "dev status": "looks at daemons of this user's; its words are its own",
    "login": "speaks to the enrolment port over a link of its own",
    "guard": "a controller of its own; ranks' output is copied byte for byte",
    "hang evaluate": "reads a local corpus of numbers",
}
"""Commands that show nothing of a controller's, and why."""
SHOW_OUTPUT = ("logs", "job logs", "run", "submit")
COMMANDS: dict[str, list[str]] = {
    "run": ["run -- true", "run --all -- true", "run --detach -- true"],
    "submit": ["submit {job}", "submit {job} --wait", "submit {job} --wait --all"],
    "ps": ["ps", "ps --all", "ps -o wide", "ps -o json", "ps -o yaml", "ps -o name"],
    "logs": ["logs j1", "logs j1 -f", "logs j1 --rank 1", "logs j1 --grep a"],
    "job logs": ["job logs j1"],
    "cancel": ["cancel j1", "cancel --all-mine --yes", "cancel --label a=b --yes"],
    "wait": ["wait j1", "wait j1 j2 --any", "wait --label a=b", "wait j1 -o json"],
    "status": ["status", "status -o json", "status -o yaml"],
    "top": ["top --once"],
    "job attach": ["job attach j1"],
    "job shell": ["job shell j1", "job shell j1 --hold -- true"],
    "job rerun": ["job rerun j1 --gpus 3", "job rerun j1 --wait -- true"],
    "job wait": ["job wait j1"],
    "job list": ["job list", "job list -o wide", "job list -o json", "job list -o yaml", "job list -o name"],
    "job show": ["job show j1", "job show j1 -o wide", "job show j1 -o json", "job show j1 -o yaml"],
    "job events": ["job events j1", "job events j1 -o wide", "job events j1 -o json", "job events j1 -o name"],
    "job watch": ["job watch j1", "job watch j1 -o json"],
    "job restart": ["job restart j1"],
    "job pause": ["job pause j1", "job pause --label a=b --yes"],
    "job resume": ["job resume j1", "job resume --label a=b --yes"],
    "job cancel": ["job cancel j1", "job cancel --all-mine --yes"],
    "job delete": ["job delete j1", "job delete --label a=b --yes"],
    "job recoveries": ["job recoveries j1", "job recoveries j1 -o json"],
    "job hangs": ["job hangs j1", "job hangs j1 --full", "job hangs j1 -o json"],
    "job series": [*("job series j1", "job series j1 -o json", "job series j1 -o csv", "job series j1 --rank 0")],
    "job stacks": ["job stacks j1", "job stacks j1 --full", "job stacks j1 -o json"],
    "job hang-action": ["job hang-action j1 off --for 2h", "job hang-action j1 on"],
    "job inject": ["job inject j1 kill --rank 0", "job inject j1 slow --rank 1 --for 5s --speed 20"],
    "job hold": ["job hold j1 --for 2h"],
    "host list": ["host list", "host list -o wide", "host list -o json", "host list -o yaml", "host list -o name"],
    "host show": ["host show h1", "host show h1 -o wide", "host show h1 -o json", "host show h1 -o yaml"],
    "host events": ["host events h1", "host events h1 -o wide", "host events h1 --since 2h -o json"],
    "host check": ["host check h1", "host check h1 --now"],
    "host cordon": ["host cordon h1"],
    "host uncordon": ["host uncordon h1", "host uncordon h1 --gpu 0"],
    "host drain": ["host drain h1", "host drain h1 --at +2h"],
    "host fence": ["host fence h1 --yes-it-is-off"],
    "host watch": ["host watch", "host watch -o json"],
    "host token create": ["host token create", "host token create h1"],
    "host remove": ["host remove h1"],
    "host maintenance list": ["host maintenance list", "host maintenance list -o json"],
    "host maintenance cancel": ["host maintenance cancel h1"],
    "host stop-orphans": ["host stop-orphans h1 j1"],
    "host dismiss": ["host dismiss h1 j1"],
    "hang record": ["hang record j1 --for 1s --out {new}", "hang record j1 --hang 1 --out {new}"],
    "hang replay": ["hang replay {recording}", "hang replay {recording} -o json"],
    "secret set": ["secret set key --from-file {job}"],
    "secret list": ["secret list", "secret list -o json", "secret list -o yaml"],
    "secret remove": ["secret remove key"],
    "usage": ["usage", "usage -o json"],
    "goodput": [
        *("goodput j1", "goodput j1 -o json", "goodput j1 -o csv", "goodput verify j1"),
        *("goodput", "goodput --by host", "goodput -o json", "goodput -o csv"),
    ],
    "shares": ["shares", "shares -o json"],
    "share set": ["share set vision --weight 2", "share set vision --guarantee 64"],
    "share clear": ["share clear vision"],
    "quota set": ["quota set --user ann --gpus 32", "quota set --project vision --running none"],
    "quota clear": ["quota clear --user ann"],
    "quota list": ["quota list", "quota list -o json", "quota list -o yaml"],
    "reservation create": ["reservation create conf --project vision --count 1 --for 2h"],
    "reservation list": ["reservation list", "reservation list -o json", "reservation list -o yaml"],
    "reservation show": ["reservation show conf", "reservation show conf -o json"],
    "reservation delete": ["reservation delete conf"],
    "schedule create": ["schedule create nightly {job} --cron @daily"],
    "schedule list": ["schedule list", "schedule list -o json", "schedule list -o yaml"],
    "schedule show": ["schedule show nightly", "schedule show nightly -o json"],
    "schedule pause": ["schedule pause nightly"],
    "schedule resume": ["schedule resume nightly"],
    "schedule remove": ["schedule remove nightly"],
    "template create": ["template create base {job}"],
    "template list": ["template list", "template list -o json", "template list -o yaml"],
    "template show": ["template show base", "template show base -o json"],
    "template run": ["template run base", "template run base --wait"],
    "template remove": ["template remove base"],
    "user add": ["user add ann"],
    "user set": ["user set ann --run-as ann"],
    "user list": ["user list", "user list -o json", "user list -o yaml"],
    "user remove": ["user remove ann"],
    "user token": ["user token ann"],
    "web open": ["web open --no-browser", "web open j1 --no-browser"],
    "web sessions": ["web sessions", "web sessions -o json", "web sessions --all -o name"],
    "web end": ["web end s1"],
    "motd show": ["motd show", "motd show -o json"],
    "motd set": ["motd set hello"],
    "motd clear": ["motd clear"],
    "whoami": ["whoami", "whoami -o json"],
    "audit": ["audit", "audit -o wide", "audit -o json", "audit -o yaml"],
    "audit verify": ["audit verify", "audit verify -o json"],
    "doctor": ["doctor --client", "doctor --client -o json"],
}
"""What is typed, by command: every command that shows something of a controller's."""

DANGEROUS = re.compile(
    "[\x00-\x08\x0b-\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]"  # controls but tab, line end, carriage return and ESC
    "|\x1b(?!\\[[0-9;]*m)"  # escape sequences but colours
    "|[\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]"
)
COLOUR = re.compile("\x1b\\[[0-9;]*m")
BARS = re.compile("\r|\x1b\\[K")
"""What a lone rank's output may do to its own line."""


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[str]:
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from leaves(each, (*path, name))
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield " ".join(path)


def test_every_command_is_tried() -> None:
    assert sorted(leaves(root)) == sorted({*COMMANDS, *WITHOUT_CALLS})
    assert all(line.startswith(name) for name, lines in COMMANDS.items() for line in lines)


@dataclass
class Printed:
    """What reached the two descriptors."""

    out: bytes
    err: bytes
    status: object


@contextlib.contextmanager
def descriptors(terminal: bool, printed: Printed) -> Iterator[None]:
    """Descriptors 1 and 2, and Python's streams over them, lead to a terminal or a pipe each, which is read."""
    kept = {fd: os.dup(fd) for fd in (1, 2)}
    streams = (sys.stdout, sys.stderr)
    found: dict[int, list[bytes]] = {1: [], 2: []}
    readers = []
    for fd in (1, 2):
        reading, writing = pty.openpty() if terminal else os.pipe()
        if terminal:
            tty.setraw(writing)
            fcntl.ioctl(writing, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 100, 0, 0))

        def read(reading: int = reading, fd: int = fd) -> None:
            with contextlib.suppress(OSError):  # EIO: the last writer has closed the terminal
                while data := os.read(reading, 1 << 16):
                    found[fd].append(data)
            os.close(reading)

        os.dup2(writing, fd)
        os.close(writing)
        readers.append(threading.Thread(target=read))
        readers[-1].start()
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(open(os.dup(fd), "wb", buffering=0), write_through=True)  # noqa: SIM115
        for fd in (1, 2)
    )
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.close()
        sys.stdout, sys.stderr = streams
        for fd, old in kept.items():
            os.dup2(old, fd)
            os.close(old)
        for reader in readers:
            reader.join()
        printed.out, printed.err = b"".join(found[1]), b"".join(found[2])


def typed(line: str, *, terminal: bool) -> Printed:
    printed = Printed(b"", b"", None)
    with descriptors(terminal, printed):
        try:
            root.main(line.split(), prog_name="holdfast")
        except SystemExit as end:
            printed.status = end.code
    return printed


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki.make(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def controller(pki: Pki) -> Iterator[HostileController]:
    hostile = HostileController(pki)
    yield hostile
    hostile.stop()


@pytest.fixture
def words(
    controller: HostileController, pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Path]:
    """Files that the command lines name; the settings lead to the hostile controller."""
    settings = tmp_path / "client.toml"
    settings.write_text(
        f'controller = "127.0.0.1:{controller.port}"\nca = "{pki.folder}/ca.pem"\n'
        f'cert = "{pki.folder}/user.pem"\nkey = "{pki.folder}/user.key"\n'
    )
    monkeypatch.setenv("HOLDFAST_CONFIG", str(settings))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    controller.refuses = False
    controller.forget()
    job = tmp_path / "job.yaml"
    job.write_text('{"displayName": "x", "jobSpec": {"workerPoolSpecs": [{"processSpec": {"command": ["true"]}}]}}')
    return {"job": job, "new": tmp_path / "new", "recording": _recording(tmp_path)}


def _recording(folder: Path) -> Path:
    path = folder / "recording.jsonl"
    path.write_text(json.dumps({"v": 1, "job": HOSTILE}) + "\n" + HOSTILE + "\n")
    return path


LINES = [(name, line) for name, lines in COMMANDS.items() for line in lines]


@pytest.mark.parametrize("refuses", [False, True], ids=["answers", "refusals"])
@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
@pytest.mark.parametrize(("name", "line"), LINES, ids=[line for _, line in LINES])
def test_nothing_but_words_is_printed(
    controller: HostileController, words: dict[str, Path], name: str, line: str, terminal: bool, refuses: bool
) -> None:
    controller.refuses = refuses
    for _ in range(1 if refuses else 3):  # each time other members of enumerations and oneofs
        controller.forget()
        printed = typed(line.format(**words), terminal=terminal)
        for stream, data in (("stdout", printed.out), ("stderr", printed.err)):
            if name == "job shell" and not refuses:
                continue  # a program that the user runs there: its bytes as they are, and on a terminal it drives that
            if name in SHOW_OUTPUT and not terminal and not refuses and stream == "stdout":
                continue  # the ranks' bytes, as they are: programs read them
            text = data.decode()
            if name in SHOW_OUTPUT:
                text = BARS.sub("", text) if terminal else text
            assert not DANGEROUS.search(text), (stream, DANGEROUS.search(text), text)
            assert terminal or "\x1b" not in text, stream
            if "\r" in text:
                assert name in SHOW_OUTPUT
            lines = [COLOUR.sub("", each) for each in text.split("\n")]
            forged = [each for each in lines if each.startswith(FORGED)]
            own_output = name in SHOW_OUTPUT and stream == "stdout"
            assert own_output or not forged, (stream, forged[:1])
            assert "Traceback" not in text, text


def texts(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from (key, *texts(each))
    elif isinstance(value, list):
        for each in value:
            yield from texts(each)
    elif isinstance(value, str):
        yield value


@pytest.mark.parametrize(
    "line",
    [
        *(
            f"{command} -o {form}"
            for command in ("ps", "job show j1", "host list", "host show h1")
            for form in ("json", "yaml")
        ),
        *(
            "audit -o json",
            "user list -o yaml",
            "status -o json",
            "job recoveries j1 -o json",
            "job watch j1 -o json",
        ),
    ],
)
def test_programs_read_what_was_written(controller: HostileController, words: dict[str, Path], line: str) -> None:
    out = typed(line, terminal=False).out.decode()
    found = json.loads(out.splitlines()[0] if "watch" in line else out) if "json" in line else yaml.safe_load(out)
    assert HOSTILE in texts(found)
