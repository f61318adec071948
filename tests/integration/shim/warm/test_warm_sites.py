"""What a site does in each Python, by a sitecustomize or a .pth file, is the same in a warm start."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.shim.warm.warm_jobs import HOLD, PYTHON, Job, Shim

SHOWN = "print([os.environ.get(name) for name in ('SITE_SET', 'LR', 'PTH_SET', 'GONE', 'RANK')])\n"
SITE = """\
import os
os.environ["SITE_SET"] = "yes"
os.environ["LR"] += "+site"
os.environ.pop("GONE", None)
"""


@pytest.mark.parametrize("by", ["sitecustomize", "pth"])
def test_what_a_site_does_to_the_environment_counts(hasty: Callable[..., Shim], tmp_path: Path, by: str) -> None:
    shim = hasty()
    if by == "sitecustomize":
        (tmp_path / "site").mkdir()
        (tmp_path / "site/sitecustomize.py").write_text(SITE)
        job = Job(shim, "-c", HOLD + SHOWN, ranks=2, LR="1", GONE="x", PYTHONPATH=str(tmp_path / "site"))
    else:
        subprocess.run([PYTHON, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True, timeout=180)
        (site,) = (tmp_path / "venv/lib").glob("python3*/site-packages")
        lines = ("LR'] += '+site'", "PTH_SET'] = 'pth'")
        (site / "site.pth").write_text("".join(f"import os; os.environ['{line}\n" for line in lines))
        job = Job(shim, "-c", HOLD + SHOWN, ranks=2, LR="1", GONE="x")
        job.python = str(tmp_path / "venv/bin/python")
    warm, cold = job.both()
    assert {rank: out for rank, (_, out, _) in warm.items()} == {rank: out for rank, (_, out, _) in cold.items()}
    assert "1+site" in warm[0][1] and "'0'" in warm[0][1] and "'1'" in warm[1][1]


def test_a_sitecustomize_that_reads_what_differs_for_each_rank_is_not_run_ahead(
    hasty: Callable[..., Shim], tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os\nos.environ['MINE'] = os.environ.get('RANK', 'none')\n")
    said = Job(hasty(), "-c", HOLD, ranks=2, PYTHONPATH=str(tmp_path)).park()
    assert said["ranks"] == 0 and "sitecustomize reads RANK while it is imported" in said["message"]
