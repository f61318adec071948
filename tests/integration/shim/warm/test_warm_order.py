"""Imports are done ahead of the program's first line: what it, or a package, changes counts as in a cold start."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.shim.warm.warm_jobs import HOLD, Job, Shim, package

BESIDE = "import os, sys\nsys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/vendor')\n"


def job(shim: Shim, program: str, packages: dict[str, str], **files: str) -> Job:
    """A program with installed packages, and with files beside it by their names without .py."""
    path = [package(shim, name, code) for name, code in packages.items()]
    for name, code in {"prog": program, **files}.items():
        file = shim.out / f"{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(code)
    return Job(shim, str(shim.out / "prog.py"), ranks=2, **({"PYTHONPATH": path[0]} if path else {}))


# -- another module of the same name


@pytest.mark.parametrize("where", ["beside", "inserted", "as the standard library"])
def test_a_module_that_hides_an_installed_one_is_the_one_that_runs(hasty: Callable[..., Shim], where: str) -> None:
    name = "colorsys" if where == "as the standard library" else "shade"
    code = f"import {name}\n{HOLD}print({name}.WHO)"
    files = {"vendor/shade" if where == "inserted" else name: "WHO = 'mine'"}
    warm, cold = job(hasty(), BESIDE + code, {"shade": "WHO = 'installed'"}, **files).both()
    assert warm == cold and "mine" in warm[0][1]


def test_a_package_that_imports_what_the_program_hides_is_left_out(hasty: Callable[..., Shim]) -> None:
    packages = {"shade": "WHO = 'installed'", "user": "import shade\nWHO = shade.WHO"}
    each = job(hasty(), "import user\n" + HOLD, packages, shade="WHO = 'mine'")
    assert "left out: user imports shade, of which the program has another" in each.park()["message"]


STANDS_IN = {
    "nothing": ("import sys\nsys.modules['shade'] = None\n", "None"),
    "another": ("import sys, other\nsys.modules['shade'] = other\n", "other"),
}


@pytest.mark.parametrize("what", STANDS_IN)
def test_a_package_that_imports_what_the_program_has_something_in_place_of_is_left_out(
    hasty: Callable[..., Shim], what: str
) -> None:
    first, found = STANDS_IN[what]
    packages = {"shade": "WHO = 'installed'", "other": "WHO = 'other'"}
    packages["user"] = "try:\n    from shade import WHO\nexcept ImportError:\n    WHO = None"
    each = job(hasty(), first + "import user\n" + HOLD + "print(user.WHO)", packages)
    assert "left out: user imports shade, which the program has not imported" in each.park()["message"]
    each.stop(1, another=True)
    assert [out for _, out, _ in each.run(2, warm={}).values()] == [f"{found}\n"] * 2


def test_what_the_job_names_may_import_more_than_the_program_has_yet(hasty: Callable[..., Shim]) -> None:
    each = job(hasty(), HOLD, {"shade": ""}, later="import shade")
    said = each.park({"preload": ["later"]})
    assert said["ranks"] == 2 and "left out" not in said["message"], said


# -- what the program runs, and what it only looks for


@pytest.mark.parametrize("module", ["tool", "tool.train"])
def test_what_a_command_runs_by_m_is_not_imported_ahead(hasty: Callable[..., Shim], module: str) -> None:
    shim = hasty()
    each = job(shim, "", {"unused": ""})
    tool = shim.out / "lib/site-packages/tool"
    tool.mkdir()
    (tool / "__init__.py").write_text("")
    run = "import colorsys, os, time\nopen('ran', 'a').write(str(os.getppid()) + '\\n')\n"
    for name in ("__main__", "train"):
        (tool / f"{name}.py").write_text(run + "time.sleep(600)\n")
    each.argv = ("-m", module)
    said = each.park()
    assert said["ranks"] == 2 and "left out" not in said["message"], said
    assert Path(each.cwd, "ran").read_text() == 2 * f"{shim.process.pid}\n"


def test_what_a_program_only_looks_for_is_not_imported_ahead(hasty: Callable[..., Shim]) -> None:
    program = "import colorsys, importlib.util, sys\nfound = importlib.util.find_spec('big')\n"
    warm, cold = job(hasty(), program + HOLD + "print(bool(found), 'big' in sys.modules)", {"big": ""}).both()
    assert warm == cold and "True False" in warm[0][1]


# -- what the program has set before an import


def test_a_package_that_reads_what_the_program_sets_first_is_left_out(hasty: Callable[..., Shim]) -> None:
    program = "import os\nos.environ['BACKEND'] = 'jax'\nimport backend\n" + HOLD + "print(backend.IT)"
    packages = {"backend": "import os\nIT = os.environ.get('BACKEND', 'none')"}
    each = job(hasty(), program, packages)
    assert "left out: backend reads BACKEND while it is imported" in each.park()["message"]
    each.stop(1, another=True)
    assert [out for _, out, _ in each.run(2, warm={}).values()] == ["jax\n", "jax\n"]


def test_a_library_that_may_read_what_the_program_sets_first_is_left_out(hasty: Callable[..., Shim]) -> None:
    program = "import os\nos.environ['OMP_NUM_THREADS'] = '1'\nimport native\n" + HOLD
    loads = "import ctypes.util\nlibrary = ctypes.CDLL('libresolv.so.2')"
    said = job(hasty(), program, {"native": loads}).park()
    assert "left out: native may read OMP_NUM_THREADS, which the program sets before" in said["message"]


def test_a_variable_that_a_package_sets_for_itself_is_not_the_programs(hasty: Callable[..., Shim]) -> None:
    packages = {"tuned": "import os\nos.environ.setdefault('TUNED', 'yes')\nimport colorsys"}
    packages["reader"] = "import os\nTUNED = os.environ['TUNED']"
    said = job(hasty(), "import tuned, reader\n" + HOLD, packages).park()
    assert said["ranks"] == 2 and "left out" not in said["message"], said


# -- what an import changes in its process

CHANGES = {
    "leaves /": "kept = open(__file__)",
    "changes its directory": "import os\nos.chdir('/')",
    "changes what random draws": "import random\nrandom.seed(0)",
    "shares memory": "import multiprocessing\nlock = multiprocessing.Lock()",
    "leaves a temporary": "import tempfile\nfolder = tempfile.TemporaryDirectory()",
    "changes a timer": "import signal\nsignal.signal(signal.SIGALRM, signal.SIG_DFL)\nsignal.alarm(500)",
    "changes what a signal does": "import signal\nsignal.signal(signal.SIGTERM, print)",
    "changes sys.path": "import sys\nsys.path.insert(0, '/nowhere')",
    "changes the root logger": "import logging\nlogging.basicConfig()",
    "looks for __file__ of the program": "import __main__\nBATCH = hasattr(__main__, '__file__')",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_package_that_changes_what_a_release_would_not_keep_is_left_out(
    hasty: Callable[..., Shim], change: str
) -> None:
    packages = {"other": CHANGES[change]}
    said = job(hasty(), "import logging, random, other\n" + HOLD, packages).park()
    assert said["ranks"] == 2 and f"left out: other {change}" in said["message"]


def test_a_file_that_changes_while_it_is_imported_is_named(hasty: Callable[..., Shim]) -> None:
    shim = hasty()
    each = job(shim, "import edited\n" + HOLD, {"edited": "import os\nos.utime(__file__)"})
    assert each.park()["ranks"] == 2
    each.stop(1, another=True)
    each.launch(2, warm={})
    messages = shim.until("exited")
    said = [message["message"] for message in messages if message["ev"] == "warm"]
    assert any("edited.py has changed since" in words for words in said), said


# -- at the release


def test_a_records_age_counts_from_the_programs_start(hasty: Callable[..., Shim]) -> None:
    each = job(hasty(), "import logging\n" + HOLD, {})
    assert each.park()["ranks"] == 2
    began = time.time()
    each.stop(1, another=True)
    scale = "1e9 if isinstance(logging._startTime, int) else 1"
    words = f"import logging\nscale = {scale}\nprint(logging._startTime / scale > {began})"
    Path(each.cwd, "prog.py").write_text(words)
    assert [out for _, out, _ in each.run(2, warm={}).values()] == ["True\n", "True\n"]


def test_ranks_draw_different_numbers_from_torch(hasty: Callable[..., Shim]) -> None:
    torch = (
        "import os\nclass Generator:\n    seen = None\n    def seed(self): self.seen = os.urandom(8)\n"
        "    def initial_seed(self): return self.seen\ndefault_generator = Generator()\ndefault_generator.seed()"
    )
    program = "import torch\n" + HOLD + "print(torch.default_generator.initial_seed())"
    warm, _ = job(hasty(), program, {"torch": torch}).both()
    assert warm[0][0] == 0 and warm[0][1] != warm[1][1]
