"""Patterns of files that stay behind."""

from __future__ import annotations

import pytest

from holdfast.bundles import ignore


@pytest.mark.parametrize(
    ("lines", "path", "out"),
    [
        ([], "train.py", False),
        ([], "pkg/__pycache__", True),
        ([], "pkg/train.pyc", True),
        (["*.bin"], "data/x.bin", True),
        (["/x.bin"], "data/x.bin", False),
        (["/x.bin"], "x.bin", True),
        (["data/*.bin"], "data/x.bin", True),
        (["data/*.bin"], "a/data/x.bin", False),
        (["data/**/x"], "data/a/b/x", True),
        (["data/**/x"], "data/x", True),
        (["**/x"], "a/b/x", True),
        (["data/**"], "data/x", True),
        (["*.bin", "!keep.bin"], "keep.bin", False),
        (["!.venv/"], ".venv", False),
        (["# no", "", "  "], "# no", False),
        ([r"\#yes"], "#yes", True),
        (["[ab].txt"], "a.txt", True),
        (["[!ab].txt"], "a.txt", False),
        (["[!ab].txt"], "c.txt", True),
        (["a?c"], "abc", True),
        (["a?c"], "a/c", False),
        (["[z-a]"], "z-a", False),
        (["name "], "name", True),
    ],
)
def test_patterns_match_as_gits_do(lines: list[str], path: str, out: bool) -> None:
    is_directory = path.endswith(("__pycache__", ".venv"))
    assert ignore.read(lines).leaves_out(path, is_directory=is_directory) is out


def test_a_slash_at_the_end_means_directories() -> None:
    rules = ignore.read(["out/"])
    assert rules.leaves_out("out", is_directory=True)
    assert not rules.leaves_out("out", is_directory=False)
