"""From a folder to a bundle."""

from __future__ import annotations

import io
import os
import socket
from pathlib import Path

import pytest
import zstandard

from holdfast.bundles import packing
from holdfast.bundles.archive import Limits, Reader
from holdfast.errors import BundleRefused


def names(bundle: packing.Bundle) -> dict[str, bytes]:
    tar = io.BytesIO(zstandard.ZstdDecompressor().decompressobj().decompress(bundle.file.read_bytes()))
    reader = Reader(tar.read, files=1000, most_bytes=1 << 30)
    return {entry.path: b"".join(reader.content(entry)) for entry in reader.entries()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "code"
    for path, text in {
        "train.py": "print()",
        "pkg/a.py": "A",
        "pkg/__pycache__/a.pyc": "no",
        ".git/x": "no",
    }.items():
        (made / path).parent.mkdir(parents=True, exist_ok=True)
        (made / path).write_text(text)
    return made


def test_the_same_files_give_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    first = packing.pack(folder, tmp_path / "1")
    os.utime(folder / "train.py", (1, 1))
    (folder / "pkg/a.py").chmod(0o600)
    second = packing.pack(folder, tmp_path / "2")
    assert first.digest == second.digest
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()
    (folder / "pkg/a.py").chmod(0o755)
    assert packing.pack(folder, tmp_path / "3").digest != first.digest


def test_what_is_left_out_stays_behind_unless_it_is_named(folder: Path, tmp_path: Path) -> None:
    assert names(packing.pack(folder, tmp_path / "1")) == {"pkg": b"", "pkg/a.py": b"A", "train.py": b"print()"}
    (folder / ".holdfastignore").write_text("pkg/\n")
    (folder / ".gitignore").write_text("train.py\n")
    assert set(names(packing.pack(folder, tmp_path / "2"))) == {".gitignore", ".holdfastignore", "train.py"}
    kept = names(packing.pack(folder, tmp_path / "3", keep=["pkg/a.py"]))
    assert {"pkg", "pkg/a.py"} <= set(kept)


def test_what_lies_elsewhere_comes_along(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/m.py").write_text("M")
    (tmp_path / "w.whl").write_text("W")
    extra = [("lib", tmp_path / "lib"), (".holdfast/packages/w.whl", tmp_path / "w.whl")]
    found = names(packing.pack(folder, tmp_path / "1", extra=extra))
    assert found["lib/m.py"] == b"M"
    assert found[".holdfast/packages/w.whl"] == b"W"
    with pytest.raises(BundleRefused, match="twice"):
        packing.pack(folder, tmp_path / "2", extra=[("pkg", tmp_path / "lib")])


def test_links_within_are_kept_and_links_out_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "pkg/up").symlink_to("../train.py")
    assert "pkg/up" in names(packing.pack(folder, tmp_path / "1"))
    (folder / "data").symlink_to("/mnt/data")
    with pytest.raises(BundleRefused, match=r"data is a link that leads out.*holdfastignore"):
        packing.pack(folder, tmp_path / "2")
    (folder / ".holdfastignore").write_text("/data\n")
    packing.pack(folder, tmp_path / "3")


def test_what_is_no_file_is_refused(folder: Path, tmp_path: Path) -> None:
    os.mkfifo(folder / "pipe")
    with pytest.raises(BundleRefused, match="pipe is neither a file"):
        packing.pack(folder, tmp_path / "1")
    (folder / "pipe").unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "s"))
        with pytest.raises(BundleRefused, match="s is neither a file"):
            packing.pack(folder, tmp_path / "2")


def test_names_that_are_not_text_are_refused(folder: Path, tmp_path: Path) -> None:
    (folder / os.fsdecode(b"a\xff")).write_text("")
    with pytest.raises(BundleRefused, match="not UTF-8"):
        packing.pack(folder, tmp_path / "1")
    (folder / os.fsdecode(b"a\xff")).unlink()
    (folder / "link").symlink_to(os.fsdecode(b"a\xff"))
    with pytest.raises(BundleRefused, match="link is a link to a name that is not UTF-8") as refused:
        packing.pack(folder, tmp_path / "2")
    assert ".holdfastignore" in refused.value.fix


def test_a_mark_of_utf_8_before_the_first_pattern_is_no_part_of_it(folder: Path, tmp_path: Path) -> None:
    """Editors on Windows write one, and git leaves it out too."""
    (folder / ".holdfastignore").write_bytes(b"\xef\xbb\xbfpkg/\n")
    assert set(names(packing.pack(folder, tmp_path / "1"))) == {".holdfastignore", "train.py"}


def test_too_much_is_refused_before_it_is_read(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(BundleRefused, match=r"more than 2 files.*holdfastignore"):
        packing.pack(folder, tmp_path / "1", limits=Limits(files=2))
    with (folder / "big").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(BundleRefused, match="more than 4,096 MiB"):
        packing.pack(folder, tmp_path / "2")


@pytest.mark.parametrize("change", ["grow", "shrink", "rewrite", "add", "remove", "retarget"])
def test_a_folder_that_changes_while_it_is_packed_is_found_out(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    (folder / "l").symlink_to("train.py")
    real = packing._write
    victim = folder / "train.py"

    def meddling(write: object, found: packing.Found) -> None:
        real(write, found)  # type: ignore[arg-type]
        if found.entry.path != "pkg/a.py":
            return
        match change:
            case "grow":
                victim.write_text("print() # more")
            case "shrink":
                victim.write_text("")
            case "rewrite":
                (folder / "pkg/a.py").write_text("B")
                os.utime(folder / "pkg/a.py", (5, 5))
            case "add":
                (folder / "new.py").write_text("")
            case "remove":
                (folder / "pkg/a.py").unlink()
            case "retarget":
                (folder / "l").unlink()
                (folder / "l").symlink_to("pkg")

    monkeypatch.setattr(packing, "_write", meddling)
    with pytest.raises(BundleRefused, match=r"(changed|went away) while it was packed"):
        packing.pack(folder, tmp_path / "out")


def test_a_link_that_cannot_be_followed_stays_behind_if_it_is_left_out(folder: Path, tmp_path: Path) -> None:
    # A link into another user's home fails in the same way, but not for root.
    (folder / "data").symlink_to("x" * 300)
    (folder / ".holdfastignore").write_text("data\n")
    assert "data" not in names(packing.pack(folder, tmp_path / "1"))


def test_what_hosts_would_refuse_as_a_bomb_is_refused_at_once(folder: Path, tmp_path: Path) -> None:
    with (folder / "zeros").open("wb") as file:
        file.truncate(65 << 20)
    with pytest.raises(BundleRefused, match=r"unpacks to more than 200 times its size\..*/zeros"):
        packing.pack(folder, tmp_path / "1")
    with (folder / "zeros").open("wb") as file:
        file.truncate(60 << 20)
    assert packing.pack(folder, tmp_path / "2").unpacked_bytes > 60 << 20
