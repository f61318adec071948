"""Each Python from 3.8 on that programs here may run in starts warm as it starts cold.

``WARM_PYTHON=/path/to/python3.9 pytest tests/integration/shim -k warm`` runs all tests of warm starts in one of them.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from tests.integration.shim.warm.test_warm_imports import NAMED, READS
from tests.integration.shim.warm.test_warm_start import ENDS, FACTS, forms, plain
from tests.integration.shim.warm.warm_jobs import HOLD, Job, Shim, package

PROGRAM = HOLD + FACTS + "print(sys.version_info[:2])\n"


@pytest.fixture(params=[f"3.{minor}" for minor in range(8, 15) if minor != sys.version_info.minor])
def python(request: pytest.FixtureRequest) -> str:
    """The path of another Python than the one that runs the tests; the test is skipped where there is none."""
    name = f"python{request.param}"
    try:
        found = subprocess.run([name, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip(f"there is no {name} that runs")
    if found.returncode:  # a version manager's stand-in for one that isn't installed or chosen
        pytest.skip(f"there is no {name} that runs")
    return found.stdout.strip()


@pytest.fixture
def job(hasty: Callable[..., Shim], python: str) -> Callable[..., Job]:
    """A job whose program runs in that Python."""

    def made(*argv: str, **more: object) -> Job:
        each = Job(hasty(), *argv, **more)  # type: ignore[arg-type]
        each.python = python
        return each

    return made


@pytest.mark.parametrize("form", ["script", "module", "command"])
def test_program_sees_the_same(job: Callable[..., Job], form: str) -> None:
    started = job()
    started.argv = tuple(forms(started.shim.out, PROGRAM)[form])
    started.env["PYTHONHASHSEED"] = "7"
    warm, cold = started.both()
    assert plain(warm[0][1]) == plain(cold[0][1])
    assert (warm[0][0], warm[0][2]) == (cold[0][0], cold[0][2])
    assert "(3, " in warm[0][1]


@pytest.mark.parametrize("end", ["words", "exception", "crash", "atexit", "thread", "pool"])
def test_program_ends_the_same(job: Callable[..., Job], end: str) -> None:
    started = job(PYTHONFAULTHANDLER="1")
    program = started.shim.out / "prog.py"
    program.write_text(HOLD + ENDS[end])
    started.argv = (str(program),)
    warm, cold = started.both()
    assert plain(warm[0][2]) == plain(cold[0][2])
    assert warm[0][:2] == cold[0][:2]


@pytest.mark.parametrize("how", ["LAST_END", "bytes", "all", "dict", "names"])
def test_a_package_that_reads_what_is_known_at_the_launch_alone_is_left_out(
    job: Callable[..., Job], how: str
) -> None:
    started = job("-c", "import risky\n" + HOLD, MASTER_PORT="7")
    started.env["PYTHONPATH"] = package(started.shim, "risky", READS[how])
    assert f"left out: risky reads {NAMED[how]} while it is imported" in started.park()["message"]
