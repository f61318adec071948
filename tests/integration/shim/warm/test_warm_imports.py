"""Modules that are imported ahead: what they see, set and read, and what they leave, hold or never end."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from tests.integration.shim.warm.warm_jobs import HOLD, Job, Shim, children, gone, launched, package

Eventually = Callable[[Callable[[], bool]], None]

# -- the environment


def test_variables_that_imports_set_are_kept_and_those_of_the_launch_are_new(hasty: Callable[..., Shim]) -> None:
    shim = hasty()
    path = package(
        shim,
        "tuned",
        "import os\nos.environ['TUNED'] = 'yes'\nos.environ.setdefault('LR', '9')\nos.environ.pop('GONE', None)",
    )
    program = "import tuned\n" + HOLD + "print(sorted(os.environ.items()))"
    warm, cold = Job(shim, "-c", program, PYTHONPATH=path, LR="1", GONE="x").both()
    told = [line.replace("'3'", "'2'") for line in (warm[0][1], cold[0][1])]
    assert told[0] == told[1]
    assert "('TUNED', 'yes')" in told[0]
    assert "GONE" not in told[0]


def test_proc_shows_the_variables_of_the_launch(hasty: Callable[..., Shim]) -> None:
    shim = hasty()
    program = HOLD + "import sys; sys.stdout.write(open('/proc/self/environ').read())"
    job = Job(shim, "-c", program, ranks=2, MASTER_PORT="1")
    assert job.park()["ranks"] == 2
    job.env["MASTER_PORT"] = "29503"
    warm, _ = launched(job)
    assert warm == ["started warm"]
    for rank in (0, 1):
        shown = shim.output(rank, 2).split("\0")
        values = [each for each in shown if each.startswith(("RANK=", "MASTER_PORT=", "HOLDFAST_GENERATION="))]
        assert sorted(values) == ["HOLDFAST_GENERATION=2", "MASTER_PORT=29503", f"RANK={rank}"]


READS = {
    "LAST_END": "import os\nwhy = os.environ.get('HOLDFAST_LAST_END')",
    "bytes": "import os\nport = os.environb.get(b'MASTER_PORT')",
    "all": "import os\nkept = {n: v for n, v in os.environ.items() if n.startswith('NCCL_')}",
    "copy": "import os\nkept, why = os.environ.copy(), 'a text'",
    "dict": "import os\nkept = dict(os.environ)",
    "parts": "import os\nkept = {**os.environ}",
    "names": "import os\nkept = [n for n in os.environ if n.lower().startswith('master_')]",
    "secret": "import os\ntoken = os.getenv('TOKEN')",
}
NAMED = {
    "LAST_END": "HOLDFAST_LAST_END",
    "bytes": "MASTER_PORT",
    "all": "the whole environment",
    "copy": "the whole environment",
    "dict": "the whole environment",
    "parts": "the whole environment",
    "names": "the whole environment",
    "secret": "TOKEN",
}


@pytest.mark.parametrize("how", READS)
def test_a_package_that_reads_what_is_known_at_the_launch_alone_is_left_out(
    hasty: Callable[..., Shim], how: str
) -> None:
    shim = hasty()
    path = package(shim, "risky", READS[how])
    secret = shim.out / "token"
    secret.write_text("s3cret")
    job = Job(shim, "-c", "import risky\n" + HOLD, PYTHONPATH=path, MASTER_PORT="7")
    job.fields = {"secret_files": {"TOKEN": str(secret)}} if how == "secret" else {}
    said = job.park()
    assert f"left out: risky reads {NAMED[how]} while it is imported" in said["message"]


def test_a_package_that_looks_for_variables_of_its_own_is_imported_ahead(hasty: Callable[..., Shim]) -> None:
    shim = hasty()
    code = "import os\nkept = {n: v for n, v in os.environ.items() if n.startswith('SOUND_')}"
    path = package(shim, "sound", code)
    said = Job(shim, "-c", "import sound\n" + HOLD, PYTHONPATH=path, SOUND_LEVEL="7").park()
    assert said["ranks"] == 1
    assert "left out" not in said["message"]


def test_what_watches_imports_is_gone_when_the_program_begins(hasty: Callable[..., Shim]) -> None:
    shim = hasty()
    path = package(shim, "sound", "from os import getpid, environ")
    program = (
        "import sound, os, posix\n"
        + HOLD
        + "print(sound.getpid is os.getpid is posix.getpid, type(os.environ) is type(os.environb), type(os.environ))"
    )
    warm, cold = Job(shim, "-c", program, PYTHONPATH=path).both()
    assert warm[0][1] == cold[0][1] == "True True <class 'os._Environ'>\n"


# -- what imports leave, take, and never end


def test_a_daemon_that_an_import_leaves_is_found_and_ended(hasty: Callable[..., Shim]) -> None:
    shim = hasty()
    code = (
        "import os, traceback\n"
        "if any(f.f_code.co_name == '_park' for f, _ in traceback.walk_stack(None)):\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n"
        "        if os.fork() == 0:\n"
        f"            open({str(shim.out / 'daemon')!r}, 'w').write(str(os.getpid()))\n"
        "            os.execvp('sleep', ['sleep', '600'])\n"
        "        os._exit(0)\n"
        "    os.waitpid(pid, 0)\n"
    )
    job = Job(shim, "-c", "import risky\n" + HOLD, PYTHONPATH=package(shim, "risky", code))
    said = job.park()
    assert said["message"] == "the next start is cold: not all processes that it has left are parked ranks"
    assert gone([int((shim.out / "daemon").read_text())])


def test_imports_that_never_end_are_ended(hasty: Callable[..., Shim], eventually: Eventually) -> None:
    shim = hasty("warm_starts.PREPARED_S = 0.6")
    code = "import os, time\nif 'HOLDFAST_RUN' not in os.environ: time.sleep(600)"
    path = package(shim, "slow", code)
    job = Job(shim, "-c", "import slow\n" + HOLD, PYTHONPATH=path, HOLDFAST_RUN="1")
    job.launch(1, warm={})
    assert shim.until("warm")[-1]["message"] == "the next start is cold: its imports take longer than 0.01 minutes"
    eventually(lambda: len(children(shim.process.pid)) == 1)


@pytest.mark.parametrize("when", ["growing", "parked"])
def test_imports_that_hold_too_much_are_ended(
    hasty: Callable[..., Shim], eventually: Eventually, when: str
) -> None:
    shim = hasty("parked_ranks.WORKER_SHARE = 1")
    code = "import os, time\nkept = bytearray(os.urandom(64 << 20))\n"
    if when == "growing":
        code += "if 'HOLDFAST_RUN' not in os.environ: time.sleep(600)"
    job = Job(shim, "-c", "import large\n" + HOLD, PYTHONPATH=package(shim, "large", code), HOLDFAST_RUN="1")
    said = job.park(memory_bytes=48 << 20)
    assert "above the 48 MiB that they may" in said["message"]
    eventually(lambda: len(children(shim.process.pid)) == 1)


def test_a_python_without_sitecustomize_is_named(hasty: Callable[..., Shim]) -> None:
    shim = hasty("warm_starts.HOOKED_S = 1.0")
    wrapper = shim.out / "python3"
    wrapper.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    wrapper.chmod(0o755)
    shim.launch(1, shim.rank(str(wrapper), "-c", "import time; time.sleep(600)"), warm={})
    assert shim.until("warm")[-1]["message"] == "the next start is cold: its Python runs no sitecustomize"
