"""The debs as Debian's own checker reads them: what it objects to is mended, or has its reason among the overrides."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest


@pytest.mark.machines
@pytest.mark.require("lintian")
@pytest.mark.timeout(1200)
def test_lintian_objects_to_nothing_that_has_no_reason(packages: list[Path]) -> None:
    command = ["lintian", "--allow-root", "--no-cfg", "--fail-on=error,warning", *map(str, packages)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
