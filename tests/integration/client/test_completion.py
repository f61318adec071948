"""Completion as people use it: a shell, the script that the command prints, and Tab."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.typist import typing

HOLDFAST = Path(sys.executable).with_name("holdfast")
SHELLS = {
    "bash": (
        ("--norc", "--noprofile", "-i"),
        'bind "set enable-bracketed-paste off"; eval "$(holdfast completion bash)"',
    ),
    "zsh": (("-f", "-i"), 'autoload -Uz compinit; compinit -u -D; eval "$(holdfast completion zsh)"'),
}


def environment(home: Path) -> dict[str, str]:
    return {"PATH": f"{HOLDFAST.parent}:{os.environ['PATH']}", "HOME": str(home), "TERM": "dumb", "PS1": "$ "}


@pytest.mark.parametrize("shell", ["bash", pytest.param("zsh", marks=pytest.mark.require("zsh"))])
def test_tab_completes_a_command(tmp_path: Path, shell: str) -> None:
    options, script = SHELLS[shell]
    start = "import os, sys; os.execvp(sys.argv[1], sys.argv[1:])"
    with typing(["-c", start, shell, *options], env=environment(tmp_path)) as typist:
        typist.types(f"{script}; echo it is re''ady\r")
        typist.sees("it is ready")
        typist.types("holdfast job rer\t")
        typist.sees("rerun")
        typist.types("--proc\t")
        typist.sees("--processes-per-worker")


@pytest.mark.require("fish")
def test_fish_shows_what_follows_a_comma(tmp_path: Path) -> None:
    line = 'holdfast completion fish | source; complete -C "holdfast job rer"'
    done = subprocess.run(
        ["fish", "--no-config", "-c", line],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=180,
        check=True,
    )
    assert done.stdout == "rerun\tSubmit a job again, with the changes that...\n"
