"""What stays behind by ``.gitignore`` is what git itself leaves out."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

from holdfast.bundles import ignore

NAMES = ("a", "b", "ab", "x.bin", "keep.bin", "data", "c d", "[z]", "a-b")
PARTS = (
    *NAMES,
    "*",
    "**",
    "***",
    "?",
    "[ab]",
    "[!a]",
    "[^a]",
    "[a-b]",
    "[]a]",
    "*.bin",
    "a*",
    "*b",
    "a**b",
    "c\\ d",
)


def some_files(draw: random.Random) -> set[str]:
    files: set[str] = set()
    for _ in range(25):
        path = "/".join(draw.choices(NAMES, k=draw.choice((1, 2, 3))))
        clashes = any(f.startswith(path + "/") or path.startswith(f + "/") for f in files)
        files |= set() if clashes else {path}
    return files


def some_pattern(draw: random.Random) -> str:
    text = "/".join(draw.choices(PARTS, k=draw.choice((1, 1, 2, 3))))
    before = draw.choices(("", "/", "!"), (6, 2, 2))[0]
    return before + text + draw.choices(("", "/", " "), (7, 2, 1))[0]


def left_out(rules: ignore.Ignore, files: set[str]) -> set[str]:
    gone: set[str] = set()
    for folder in sorted({str(parent) for file in files for parent in Path(file).parents} - {"."}):
        if os.path.dirname(folder) in gone or rules.leaves_out(folder, is_directory=True):
            gone.add(folder)
    return {f for f in files if os.path.dirname(f) in gone or rules.leaves_out(f, is_directory=False)}


@pytest.mark.require("git")
@pytest.mark.parametrize("seed", range(40))
def test_patterns_leave_out_what_git_leaves_out(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    files = some_files(draw)
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    lines = [some_pattern(draw) for _ in range(draw.choice((1, 2, 4)))]
    (tmp_path / ".gitignore").write_text("\n".join(lines) + "\n")
    subprocess.run(("git", "init", "-q", tmp_path), check=True)
    asked = ("git", "-C", tmp_path, "check-ignore", "-z", "--stdin")
    found = subprocess.run(asked, input="\0".join(files), capture_output=True, text=True)
    assert left_out(ignore.read(lines, defaults=False), files) == {*found.stdout.split("\0")} - {""}, lines
