"""The look at a disk, whatever is mounted beside it and whatever the disk answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.doctor import disks

ROOT = b"25 1 0:23 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"


@pytest.mark.parametrize(
    "name",
    [b"a\x0cb", b"a\x85b", "a\u2028b".encode(), "a\u00a0b".encode(), b"\xff\xfe", b"a\\040b", b"a\rb"],
)
def test_a_mount_of_any_name_is_read_past(name: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Users may mount what they like where FUSE is installed."""
    table = tmp_path / "mountinfo"
    table.write_bytes(ROOT + b"90 25 0:50 / /home/ann/" + name + b" rw,nosuid - fuse.sshfs ann@x: rw,user_id=7\n\n")
    monkeypatch.setattr(disks, "_MOUNTS", table)
    found = disks.look("state_dir", tmp_path, least_mb=1, sync=False)
    assert (found.kind, found.options) == ("ext4", ("rw", "relatime", "rw"))


@pytest.mark.parametrize("name", ["plain", "with a blank", "é", "a\u2028b"])
def test_the_mount_that_holds_a_folder_is_found_by_its_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, table = tmp_path / name, tmp_path / "mountinfo"
    folder.mkdir()
    written = str(folder).replace(" ", "\\040").encode()
    table.write_bytes(ROOT + b"91 25 0:51 / " + written + b" ro,nodev shared:9 - nfs4 server:/x rw,vers=4.2\n")
    monkeypatch.setattr(disks, "_MOUNTS", table)
    found = disks.look("state_dir", folder, least_mb=1, sync=False)
    assert (found.kind, found.options) == ("nfs4", ("ro", "nodev", "rw", "vers=4.2"))


def test_a_folder_that_can_not_be_looked_at_is_a_finding(tmp_path: Path) -> None:
    found = disks.look("log_file", tmp_path / ("a" * 300), least_mb=1, sync=False)
    assert found.problem == "File name too long"
    assert [each.check for each in disks.check(found)] == ["disk.log_file"]
