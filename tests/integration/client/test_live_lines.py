"""Bars of several ranks on a real terminal: drawn in place, and nothing of the output is lost or doubled."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

SHOW = """
import random, sys
from holdfast.cli.pages.rank_output import RankOutput
from holdfast.cli.kit.console import Console
from holdfast.v1 import job_pb2
rng, now = random.Random(int(sys.argv[1])), [0.0]
console = Console()
output = RankOutput(console, many=True, clock=lambda: now[0])
left = {}
for rank in range(12):
    left[rank, 1] = b"start\\ndone\\n"
    left[rank, 2] = b"".join(b"\\rbar %d %d/9" % (rank, step) for step in range(10)) + b"\\n"
while left:
    key = rng.choice(sorted(left))
    size = rng.randint(1, 40)
    piece, left[key] = left[key][:size], left[key][size:]
    if not left[key]:
        del left[key]
    chunk = job_pb2.StreamLogsResponse(worker="w", rank=key[0], generation=1, stream=key[1], data=piece)
    chunk.offset = output.shown_to(chunk)
    output.show(chunk)
    if rng.random() < 0.2:
        console.note("note")
    now[0] += rng.random() * 0.2
    output._bars.show(now[0])
output.finish()
"""


@pytest.mark.parametrize("seed", range(5))
def test_lines_that_are_drawn_in_place_leave_the_output_whole(seed: int) -> None:
    ours, its = os.openpty()
    command = [sys.executable, "-c", SHOW, str(seed)]
    with subprocess.Popen(command, stdout=its, stderr=its, env=os.environ | {"TERM": "xterm"}) as process:
        os.close(its)
        drawn = read_all(ours)
    assert process.returncode == 0
    assert "… and " in drawn, "more bars than lines"
    rows = [row for row in screen(drawn) if row and row != "holdfast: note"]
    texts = [(rank, text) for rank in range(12) for text in ("start", "done", f"bar {rank} 9/9")]
    assert sorted(rows) == sorted(f"[w r{rank}] {text}" for rank, text in texts)


def read_all(terminal: int) -> str:
    data = b""
    try:
        while piece := os.read(terminal, 65536):
            data += piece
    except OSError:  # what a terminal answers whose other side is closed
        pass
    os.close(terminal)
    return data.decode()


def screen(drawn: str) -> list[str]:
    """The rows that a terminal of endless height shows in the end."""
    rows, y, x = [""], 0, 0
    for sequence, letter in re.findall(r"(\x1b\[[0-9;]*([A-Za-z])|.|\n|\r)", drawn):
        if letter == "A":
            y -= 1
        elif letter == "K":
            rows[y] = rows[y][:x]
        elif sequence == "\n":
            y += 1
            rows += [""] * (y + 1 - len(rows))
        elif sequence == "\r":
            x = 0
        elif not letter:
            rows[y] = rows[y][:x].ljust(x) + sequence + rows[y][x + 1 :]
            x += 1
    return rows
