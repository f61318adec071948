"""Following a job's output and history on real daemons: through restarts of the gang, and of the controller."""

from __future__ import annotations

import re
import subprocess
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


def test_lines_with_a_text_are_found_on_the_hosts_in_all_of_the_output(cluster: DevCluster) -> None:
    code = "import os\nfor n in range(50_000): print(f'Step {n} of rank', os.environ['RANK'])"
    job_id = cluster.detach("--processes-per-worker", "2", "--", sys.executable, "-c", code)
    cluster.reach(job_id, "SUCCEEDED")
    found = cluster.holdfast("logs", job_id, "--grep", "step 4999", "-i")
    steps = (4999, *range(49990, 50000))
    lines = [f"[workerpool0-0 r{rank}] Step {n} of rank {rank}" for n in steps for rank in (0, 1)]
    assert sorted(found.stdout.splitlines()) == sorted(lines)
    assert not found.stderr
    assert cluster.holdfast("logs", job_id, "--grep", "step 4999").stdout == ""


def test_a_text_that_is_in_every_short_line_is_found_to_the_end(cluster: DevCluster) -> None:
    job_id = cluster.detach("--", "sh", "-c", "yes a | head -c 1000000; echo a last one")
    cluster.reach(job_id, "SUCCEEDED")
    found = cluster.holdfast("logs", job_id, "--grep", "a")
    assert not found.stderr
    assert found.stdout == "a\n" * 500_000 + "a last one\n"


def test_output_is_whole_though_the_controller_was_killed(cluster: DevCluster) -> None:
    with cluster.typing("run", "--", sys.executable, "-c", COUNTS) as typed:
        until(lambda: b"step 10\n" in typed.out.read_bytes(), what="for the first steps")
        cluster.kill_controller()
        until(lambda: b"waiting for the controller" in typed.err.read_bytes(), what="for the outage to be said")
        cluster.restart()
        assert typed.process.wait(60) == 0
        assert typed.out.read_text().splitlines() == [f"step {step}" for step in range(80)]
        assert typed.err.read_text().count("the controller is back") == 1


def test_a_rank_out_of_view_that_fails_says_why_before_its_exit_and_little_else(cluster: DevCluster) -> None:
    code = (
        "import os, sys, time\n"
        "for step in range(68): print('step', step, flush=True)\n"
        "if os.environ['RANK'] == '1': raise ValueError('no such shard')\n"
        "time.sleep(600)\n"
    )
    args = ("--gpus", "2", "--max-restarts", "0", "--", sys.executable, "-c", code)
    result = cluster.holdfast("run", *args, check=False)
    of_rank_1 = [line for line in result.stdout.splitlines() if "r1]" in line]
    assert of_rank_1 == [f"[workerpool0-0 r1] step {step}" for step in range(58, 68)]
    said = result.stderr.splitlines()
    end = said.index("holdfast: workerpool0-0 rank 1 exited with code 1; it raised ValueError: no such shard")
    assert said.index("[workerpool0-0 r1] ValueError: no such shard") < end
    assert any(re.search(r"more of it: +holdfast logs \S+ --rank 1 --generation 1", line) for line in said[:end])
    assert any("failed after" in line and "ValueError: no such shard" in line for line in said[end:])
    job = cluster.ask(lambda client: client.newest_jobs(1))[0]
    page = cluster.holdfast("job", "show", job.id).stdout
    assert "exited with code 1; it raised ValueError: no such shard" in page
    assert "Termination reason: Error. ValueError: no such shard" in " ".join(page.split())


def test_what_a_rank_in_view_printed_comes_before_its_exit(cluster: DevCluster, tmp_path: Path) -> None:
    both = tmp_path / "both"
    code = "import sys; sys.stderr.write('x' * 500_000 + '\\nlast words\\n'); sys.exit(3)"
    command = [sys.executable, "-m", "holdfast", "run", "--max-restarts", "0", "--", sys.executable, "-c", code]
    with both.open("wb") as file:
        done = subprocess.run(command, env=cluster.env, stdout=file, stderr=file, timeout=180)
    assert done.returncode == 3
    lines = both.read_text().splitlines()
    assert lines.index("last words") < lines.index("holdfast: workerpool0-0 rank 0 exited with code 3")


BAR = """
import sys, time
for step in range(300):
    sys.stderr.write(f"\\r{step:4d}/300|####")
    sys.stderr.flush()
    time.sleep(0.05)
sys.stderr.write("\\r 300/300|####\\n")
"""


def test_bars_of_several_ranks_are_seen_while_they_go_on(cluster: DevCluster) -> None:
    with cluster.typing("run", "--gpus", "2", "--all", "--", sys.executable, "-c", BAR) as typed:
        until(lambda: typed.err.read_bytes().count(b"/300|####\n") >= 2, what="for the first state of both bars")
        assert b"300/300" not in typed.err.read_bytes()
        assert typed.process.wait(60) == 0
    bars = [line for line in typed.err.read_text().splitlines() if "|####" in line]
    assert len(bars) < 20
    assert {line for line in bars if "300/300" in line} == {
        f"[workerpool0-0 r{rank}]  300/300|####" for rank in (0, 1)
    }
    job = cluster.ask(lambda client: client.newest_jobs(1))[0]
    last = cluster.holdfast("logs", "--rank", "0", "--tail", "1", job.id)
    assert (last.stdout, last.stderr) == ("", " 300/300|####\n")
