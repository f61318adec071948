"""Packages that ask how they are imported, and code of .pth files: alike in a warm start, left out, or cold."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.shim.warm.warm_jobs import HOLD, PYTHON, Job, Shim, package

# -- what they can't tell

ALIKE = {
    "forked": "import os\nforks = []\n"
    "os.register_at_fork(before=lambda: forks.append(1), after_in_child=lambda: forks.append(2))",
    "first": "import sys\nfirst, has_here = sys.path[0], '' in sys.path\nsys.path.insert(1, '/nowhere')",
    "lazy": "import importlib.util as util, sys\nspec = util.find_spec('lazied')\n"
    "spec.loader = util.LazyLoader(spec.loader)\nmodule = util.module_from_spec(spec)\n"
    "sys.modules['lazied'] = module\nspec.loader.exec_module(module)",
    "lazied": "import os\nrank = os.environ.get('RANK')",
    "named": "with open('/proc/self/comm', 'w') as file: file.write('named')",
    "final": "from multiprocessing.util import Finalize\nkept = Finalize(None, print, ['finalized'], exitpriority=1)",
    "broken": "print('tried')\nraise ImportError('no')",
    "fallback": "try:\n    import broken\nexcept ImportError: pass",
    "masked": "import os\nmask = os.umask(0o27)",
    "opened": "import io\nis_plain = open is io.open\nwith open(__file__) as file: text = file.read()",
}
SHOWN = """
import multiprocessing, pathlib, posix, subprocess, tokenize
print(forked.forks, first.first == sys.path[0], first.has_here, sys.path[:3], list(os.environ)[-2:])
print(open("/proc/self/comm").read(), oct(os.umask(0)), masked.mask, opened.is_plain, open is tokenize._builtin_open)
print("rank" in object.__getattribute__(sys.modules["lazied"], "__dict__"), sys.modules["lazied"].rank)
print(os.getppid is posix.getppid, os.register_at_fork is posix.register_at_fork)
print([getattr(each, "__name__", type(each)) for each in sys.meta_path])
for how in ("fork", "spawn", "forkserver"):
    with multiprocessing.get_context(how).Pool(1) as pool:
        print(how, pool.map(abs, [-1]), len(forked.forks))
print(subprocess.run([sys.executable, "-c", "import sys; print(sys.path, sys.flags)"], stdout=-1, text=True).stdout)
"""


@pytest.mark.parametrize("form", ["script", "command", "folder", "link"])
def test_packages_find_what_they_would_in_a_cold_start(hasty: Callable[..., Shim], form: str) -> None:
    shim = hasty()
    path = next(iter({package(shim, name, code) for name, code in ALIKE.items()}))
    imports = f"import sys, {', '.join(name for name in ALIKE if name not in ('lazied', 'broken'))}\n"
    program = "if __name__ == '__main__':\n"
    program += "".join(f"    {line}\n" for line in (imports + HOLD + SHOWN).splitlines())
    (shim.out / "app").mkdir()
    (shim.out / "app/__main__.py").write_text(program)
    (shim.out / "link.py").symlink_to("app/__main__.py")
    argv = {"script": ["app/__main__.py"], "command": ["-c", program], "folder": ["app"], "link": ["link.py"]}[form]
    job = Job(shim, *argv, ranks=2, PYTHONPATH=path, LANG="C")
    said = job.park()
    assert said["ranks"] == 2 and "left out" not in said["message"], said
    job.stop(1, another=True)
    warm, cold = job.run(2, warm={}), job.run(3, warm=None)
    for rank in (0, 1):
        assert warm[rank][1].splitlines() == cold[rank][1].splitlines()
    assert warm == cold
    assert all("finalized" in out and out.count("tried") == 1 for _, out, _ in warm.values())


# -- what is left out

LEFT_OUT = [
    {
        "asks for its parent's pid": "import os\nparent = os.getppid()",
        "asks for its pid": "from posix import getpid\npid = getpid()",
        "asks for its thread's number": "import threading\nnumber = threading.get_native_id()",
    },
    {
        "asks for its process group": "import os\ngroup = os.getpgrp()",
        "asks for its priority": "import os\nnice = os.getpriority(os.PRIO_PROCESS, 0)",
        "changes its priority": "import os\nos.nice(1)",
    },
    {
        "reads the whole environment": "import os\ntext = repr(os.environ)",
        "warns of the line that imports it": "import warnings\nwarnings.warn('old', FutureWarning, stacklevel=2)",
        "changes sys.argv": "import sys\nsys.argv.append('--more')",
    },
    {
        "changes its standard streams": "import os\nos.dup2(0, 2)",
        "leaves /dev/ptmx open": "import os\nkept = os.openpty()",
        "changes what torch draws": "import torch\ntorch.default_generator.seen = 5",
    },
    {
        "prints something and fails": "print('tried')\nraise ImportError('no')",
        "reads the whole environment while": "import os\nkept = dict(os.environ._data)",
        "changes what numpy.random draws": "import numpy.random\nnumpy.random.drawn = b'seeded'",
    },
]
TORCH = (
    "import os\nclass Generator:\n    seen = os.urandom(8)\n    def initial_seed(self): return self.seen\n"
    "    def seed(self): self.seen = os.urandom(8)\ndefault_generator = Generator()"
)
RANDOM = """
import os
drawn = b""
def seed():
    global drawn
    drawn = os.urandom(8)
def get_state():
    class Key:
        def tobytes(self): return drawn
    return "MT19937", Key(), 1
"""


@pytest.mark.parametrize("number", range(len(LEFT_OUT)))
def test_packages_that_ask_for_what_each_rank_has_are_left_out(hasty: Callable[..., Shim], number: int) -> None:
    shim = hasty()
    names = {f"each{at}": why for at, why in enumerate(LEFT_OUT[number])}
    path = next(iter({package(shim, name, LEFT_OUT[number][why]) for name, why in names.items()}))
    package(shim, "torch", TORCH)
    (Path(path) / "numpy").mkdir()
    (Path(path) / "numpy/__init__.py").write_text("")
    (Path(path) / "numpy/random.py").write_text(RANDOM)
    program = "import json\n" + "".join(f"try: import {name}\nexcept ImportError: pass\n" for name in names)
    said = Job(shim, "-c", program + HOLD, PYTHONPATH=path).park()
    assert said["ranks"] == 1
    assert [f"left out: {name} {why}" in said["message"] for name, why in names.items()] == [True] * len(names), (
        said
    )


def test_what_was_left_out_before_the_program_had_imported_it_all_is_tried_again(
    hasty: Callable[..., Shim],
) -> None:
    shim = hasty()
    path = package(shim, "slow", "import colorsys, time\ntime.sleep(1.5)\nimport after")
    package(shim, "after", "import html")
    job = Job(shim, "-c", "import slow\n" + HOLD, PYTHONPATH=path)
    said = job.park()
    assert "left out: slow imports after, which the program has not imported" in said["message"]
    said = shim.until("warm")[-1]
    assert said["ranks"] == 1 and "left out" not in said["message"], said


# -- the program, and what it reads


def test_a_package_that_imports_what_a_command_runs_is_left_out(hasty: Callable[..., Shim]) -> None:
    shim = hasty()
    tool = Path(package(shim, "unused", "")) / "tool"
    tool.mkdir()
    (tool / "__init__.py").write_text("")
    (tool / "model.py").write_text("from tool.train import f")
    body = "".join(f"    {line}\n" for line in ("import tool.model\n" + HOLD + "print(__spec__.name)").splitlines())
    (tool / "train.py").write_text("def f(): pass\nif __name__ == '__main__':\n" + body)
    job = Job(shim, "-m", "tool.train", PYTHONPATH=str(tool.parent))
    assert "left out: tool imports tool.train, which the command runs" in job.park()["message"]
    job.stop(1, another=True)
    assert job.run(2, warm={}) == {0: (0, "tool.train\n", "")}  # runpy warns otherwise


def test_a_file_that_a_package_has_read_is_named_once_it_has_changed(hasty: Callable[..., Shim]) -> None:
    shim = hasty()
    (shim.out / "settings").write_text("old")
    path = package(shim, "settings", "import pathlib\nvalue = pathlib.Path('settings').read_text()")
    job = Job(shim, "-c", "import settings\n" + HOLD + "print(settings.value)", PYTHONPATH=path)
    assert job.park()["ranks"] == 1
    (shim.out / "settings").write_text("new")
    job.stop(1, another=True)
    job.launch(2, warm={})
    messages = [each["message"] for each in shim.until("exited") if each["ev"] == "warm"]
    assert messages == [f"started cold: {shim.out}/settings has changed since"]
    assert shim.output(generation=2) == "new\n"


def test_a_script_in_pythons_place_is_named(hasty: Callable[..., Shim]) -> None:
    shim = hasty()
    wrapper = shim.out / "python3"
    wrapper.write_text(f'#!/bin/sh\nexport DEVICE=$RANK\nexec {PYTHON} "$@"\n')
    wrapper.chmod(0o755)
    job = Job(shim, "-c", HOLD, ranks=2)
    job.python = str(wrapper)
    assert job.park()["message"] == "the next start is cold: its Python is started by another program of that name"


# -- .pth files

READS = "import os; os.environ['MINE'] = os.environ.get('RANK', 'none')"
PTH = {
    "reads RANK": READS,
    "asks for its pid": "import of_a_site",
    "changes what random draws": "import random; random.seed(0)",
    "ends the process": "import os, sys; len(sys.meta_path) > 3 and os._exit(3)",  # just where it is looked at
    "": "import os, atexit, other; os.environ['MINE'] = 'site'; atexit.register(print, 'last')\nimport nothing_there",
}


@pytest.mark.parametrize("why", PTH)
def test_code_in_pth_files_is_looked_at(hasty: Callable[..., Shim], tmp_path: Path, why: str) -> None:
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True, timeout=180)
    (site,) = (tmp_path / "venv/lib").glob("python3*/site-packages")
    (site / "site.pth").write_text(PTH[why] + "\n")
    (site / "of_a_site.py").write_text("import os\npid = os.getpid()")
    (site / "other.py").write_text("loads = []\nloads.append(1)\nprint('other')")
    job = Job(
        hasty(), "-c", "import random, sys\n" + HOLD + "print(sys.modules['other'].loads, os.environ['MINE'])"
    )
    job.python = str(tmp_path / "venv/bin/python")
    if why:
        said = job.park()
        assert said["message"].startswith(f"the next start is cold: a .pth file {why} ")
        return
    warm, cold = job.both()
    assert warm == cold
    assert warm[0][1].startswith("other\n[1] site\nlast\n")


def test_a_sitecustomize_that_seeds_is_not_run_ahead(hasty: Callable[..., Shim]) -> None:
    shim = hasty()
    path = package(shim, "sitecustomize", "import random\nrandom.seed(0)")
    said = Job(shim, "-c", "import random\n" + HOLD, PYTHONPATH=path).park()
    assert "sitecustomize changes what random draws" in said["message"]
