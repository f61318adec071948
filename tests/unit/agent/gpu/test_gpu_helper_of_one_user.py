"""The GPU helper starts where Holdfast is installed for its user alone, as it mostly is for a guard."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import holdfast
import holdfast_agent

START = (
    "import subprocess, sys; from holdfast_agent.gpu.child import COMMAND;"
    "sys.exit(subprocess.run(COMMAND, stdin=subprocess.DEVNULL).returncode)"
)


def test_helper_is_found_in_the_user_s_own_site_packages(tmp_path: Path) -> None:
    python = getattr(sys, "_base_executable", sys.executable)
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    env |= {"PYTHONUSERBASE": str(tmp_path)}
    ask = "import site; print(site.getusersitepackages() if site.ENABLE_USER_SITE else '')"
    own = subprocess.run([python, "-c", ask], env=env, capture_output=True, text=True).stdout.strip()
    if not own:
        pytest.skip("this Python has no site-packages of a user's own")
    roots = [Path(module.__path__[0]).parent for module in (holdfast, holdfast_agent)]
    Path(own).mkdir(parents=True)
    lines = [*map(str, roots), sysconfig.get_path("purelib")]
    (Path(own) / "holdfast.pth").write_text("".join(f"{line}\n" for line in lines))
    done = subprocess.run([python, "-c", START], env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, '{"ready": true}\n'), done.stderr
