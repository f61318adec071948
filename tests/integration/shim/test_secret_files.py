"""Ranks get what a file holds if their account may read it: the rights of the shim, maybe root, don't count."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

Shim = Any
NOBODY = {"uid": 65534, "gid": 65534, "groups": [12345]}
SAY = """printf '%s\\n' "$KEY"; grep -E '^(Uid|Gid|Groups|CapEff):' /proc/self/status"""


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that every account reaches; pytest's own are for one alone."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def launch(shim: Shim, file: Path | str, **identity: Any) -> dict[str, Any]:
    """The exit of one rank whose KEY is in the file."""
    rank = shim.sh(SAY) | {"secret_files": {"KEY": str(file)}, "cwd": "/"}
    shim.launch(1, rank, **identity)
    exited: dict[str, Any] = shim.until("exited")[-1]
    return exited


def refusal(shim: Shim, file: Path | str, **identity: Any) -> str:
    """Why the rank was not started."""
    exited = launch(shim, file, **identity)
    assert (exited["status"], exited["reason"]) == (None, "CANNOT_START")
    return str(exited["message"])


def test_a_rank_gets_what_the_file_holds_without_the_line_end(shim: Shim, public: Path) -> None:
    (public / "key").write_bytes(b"s3 \xffcret\r\n")
    assert launch(shim, public / "key")["status"] == 0
    assert Path(f"{shim.out}/g1.r0.out").read_bytes().startswith(b"s3 \xffcret\n")


@pytest.mark.require("root")
def test_a_rank_reads_with_its_own_account_and_has_no_other_afterwards(shim: Shim, public: Path) -> None:
    file = public / "key"
    file.write_text("mine")
    os.chown(file, 65534, 0)
    file.chmod(0o400)
    assert launch(shim, file, **NOBODY)["status"] == 0
    ids = ["Uid:", *["65534"] * 4, "Gid:", *["65534"] * 4, "Groups:", "12345", "CapEff:", "0" * 16]
    assert shim.output().split() == ["mine", *ids]


@pytest.mark.require("root")
def test_a_supplementary_group_of_the_account_counts(shim: Shim, public: Path) -> None:
    file = public / "key"
    file.write_text("ours")
    os.chown(file, 0, 12345)
    file.chmod(0o040)
    assert launch(shim, file, **NOBODY)["status"] == 0
    assert shim.output().startswith("ours\n")


@pytest.mark.require("root")
@pytest.mark.parametrize("how", ["root's file", "root's folder", "a link to it", "/etc/shadow"])
def test_what_only_root_may_read_is_not_read(shim: Shim, public: Path, how: str) -> None:
    folder = public / "root"
    folder.mkdir()
    file = folder / "key"
    file.write_text("roots-own")
    named: Path | str = file
    match how:
        case "root's file":
            file.chmod(0o600)
        case "root's folder":
            folder.chmod(0o700)
        case "a link to it":
            file.chmod(0o600)
            named = public / "link"
            named.symlink_to(file)
        case path:
            named = path
    assert refusal(shim, named, **NOBODY) == f"cannot read the secret KEY: {named}: Permission denied"
    assert "roots-own" not in shim.output()


def test_nothing_but_a_file_is_read_and_a_fifo_holds_nobody_up(shim: Shim, public: Path) -> None:
    os.mkfifo(public / "fifo")
    assert refusal(shim, public / "fifo") == f"cannot read the secret KEY: {public}/fifo: it is no file"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot read the secret KEY: {file}: No such file or directory"),
        (b"\n", "the secret KEY: {file} is empty"),
        (b"canary\0", "the secret KEY: {file} contains a NUL byte, which no variable can hold"),
        (b"canary" * 20_000, "the secret KEY: {file} has more than 64 KiB"),
    ],
)
def test_what_can_be_no_value_is_said_and_not_shown(
    shim: Shim, public: Path, content: bytes | None, said: str
) -> None:
    file = public / "key"
    if content is not None:
        file.write_bytes(content)
    assert refusal(shim, file) == said.format(file=file)


def test_a_value_is_in_no_file_of_the_shim(shim: Shim, public: Path) -> None:
    (public / "key").write_text("canary-88")
    rank = shim.python("import os; raise SystemExit(os.environ['KEY'] != 'canary-88')")
    rank["env"] |= {"OTHER": "canary-89"}
    shim.launch(1, rank | {"secret_files": {"KEY": str(public / "key")}})
    assert shim.until("exited")[-1]["status"] == 0
    for path in shim.directory.iterdir():
        if path.is_file():
            assert b"canary" not in path.read_bytes(), path
