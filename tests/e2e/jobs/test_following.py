"""Following a job's output and history on real daemons: through restarts of the gang, and of the controller."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.e2e.cli_cluster import DevCluster, until

FAILS_THREE_TIMES = """
import os, sys
generation = int(os.environ["HOLDFAST_GENERATION"])
for step in range(3):
    print(f"generation {generation} step {step}", flush=True)
sys.exit(generation if generation < 4 else 0)
"""

COUNTS = """
import time
for step in range(80):
    print(f"step {step}", flush=True)
    time.sleep(0.05)
"""


def test_the_output_of_every_generation_is_shown_once(cluster: DevCluster) -> None:
    result = cluster.holdfast("run", "--", sys.executable, "-c", FAILS_THREE_TIMES)
    expected = [f"generation {generation} step {step}" for generation in range(1, 5) for step in range(3)]
    assert sorted(result.stdout.splitlines()) == expected
    assert result.stderr.count("restarting in place") == 3
    assert "succeeded after" in result.stderr


def test_the_code_of_the_last_generation_comes_out(cluster: DevCluster) -> None:
    failing = FAILS_THREE_TIMES.replace("else 0", "else 44")
    result = cluster.holdfast("run", "--max-restarts", "1", "--", sys.executable, "-c", failing, check=False)
    assert result.returncode == 2
    result = cluster.holdfast("run", "--", sys.executable, "-c", failing, check=False)
    assert result.returncode == 44


def test_a_program_that_is_not_there_is_named_and_has_no_code(cluster: DevCluster) -> None:
    result = cluster.holdfast("run", "--", "no-such-program", check=False)
    assert result.returncode == 125
    assert "no-such-program" in result.stderr
    assert "no output" not in result.stderr


def test_words_arrive_at_the_rank_as_typed(cluster: DevCluster, tmp_path: Path) -> None:
    words = ["$(date)", "$$", "a b", "$HOME", "", "$(PATH)", "--gpus", "ünï"]
    show = "import os, sys; print(sys.argv[1:], os.environ['X'], os.getcwd())"
    result = cluster.holdfast("run", "--env", "X=$(Y) $$", "--", sys.executable, "-c", show, *words, cwd=tmp_path)
    assert result.stdout == f"{words} $(Y) $$ {tmp_path}\n"


def test_output_is_whole_though_the_controller_was_killed(cluster: DevCluster) -> None:
    with cluster.typing("run", "--", sys.executable, "-c", COUNTS) as typed:
        until(lambda: b"step 10\n" in typed.out.read_bytes(), what="for the first steps")
        cluster.kill_controller()
        until(lambda: b"waiting for the controller" in typed.err.read_bytes(), what="for the outage to be said")
        cluster.restart()
        assert typed.process.wait(60) == 0
        assert typed.out.read_text().splitlines() == [f"step {step}" for step in range(80)]
        assert typed.err.read_text().count("the controller is back") == 1
