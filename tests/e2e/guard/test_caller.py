"""What ``holdfast guard`` takes over of the process that has started it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.e2e.guard.guarding import GUARD, PATIENCE_S, WAITS, environment, nothing_is_left, wait_for


def test_what_the_caller_has_it_ignore_ends_nothing_and_the_ranks_have_the_callers_umask(tmp_path: Path) -> None:
    env = environment(tmp_path)
    shell = 'trap "" HUP INT; umask 077; exec "$@"'  # as nohup does, and a script's & with INT
    process = subprocess.Popen(
        ["sh", "-c", shell, "sh", *GUARD, "--", sys.executable, "-c", WAITS], cwd=tmp_path, env=env
    )
    try:
        wait_for((tmp_path / "up-0").exists, "the rank runs")
        assert (tmp_path / "up-0").stat().st_mode & 0o777 == 0o600
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGUSR1)
        wait_for(lambda: (tmp_path / "caught-0").read_text() == "USR1\n", "the rank gets USR1")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.wait()

    nothing_is_left(env)
