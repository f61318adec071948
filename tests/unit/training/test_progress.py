"""What a training loop says of itself reaches the agent, costs little, and never harms it."""

from __future__ import annotations

import ast
import importlib.util
import math
import os
import shutil
import subprocess
import sys
import threading
import time
import tomllib
import warnings
from pathlib import Path
from types import ModuleType

import pytest

from holdfast.training import progress_calls, progress_file
from holdfast.training.rank_progress import RankProgress

SOURCE = Path(progress_calls.__file__)
DISTRIBUTION = Path(__file__).parents[3] / "deploy/progress"


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(progress_calls, "_map", None)
    monkeypatch.setattr(progress_calls, "_looked", False)
    monkeypatch.setenv(progress_file.DIRECTORY, str(tmp_path))
    monkeypatch.setenv("RANK", "3")
    return tmp_path


def read(folder: Path) -> RankProgress:
    found = progress_file.read(progress_file.path_for(str(folder), "3"), 3)
    assert found is not None
    return found


def copied(folder: Path) -> Path:
    """The one file, in a folder of its own, as a user copies it."""
    folder.mkdir()
    return Path(shutil.copy(SOURCE, folder / "holdfast_progress.py"))


def loaded(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("holdfast_progress", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(code: str, folder: Path, *options: str, **env: str) -> str:
    """Output of a program beside the copied file, in a Python that has nothing but its standard library."""
    program = folder / "train.py"
    program.write_text(f"import sys; sys.path.insert(0, {str(folder)!r})\n{code}")
    command = [sys.executable, "-I", "-S", *options, str(program)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=180)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_reported_step_can_be_read(fresh: Path) -> None:
    progress_calls.progress(step=41)
    progress_calls.progress(step=42)
    said = read(fresh)
    assert (said.rank, said.reports, said.step, said.idle_reason) == (3, 2, 42, None)
    assert 0 <= time.clock_gettime(time.CLOCK_BOOTTIME) - said.at_s < 60


def test_a_parameter_server_reports_under_the_number_of_its_logs(
    fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RANK")
    monkeypatch.setenv("HOLDFAST_RANK", "3")
    progress_calls.progress(7)
    assert read(fresh).step == 7


def test_a_report_without_a_step_is_one_of_life_and_keeps_the_step(fresh: Path) -> None:
    progress_calls.progress()
    assert (read(fresh).reports, read(fresh).step) == (1, None)
    progress_calls.progress(5)
    progress_calls.progress()
    assert (read(fresh).reports, read(fresh).step) == (3, 5)


def test_a_declared_pause_shows_its_reason_until_the_outermost_block_ends(fresh: Path) -> None:
    with progress_calls.idle("waits for the data set"):
        with progress_calls.idle("é" * 300):
            inner = read(fresh)
        outer = read(fresh)
    assert inner.idle_reason is not None and inner.idle_reason.startswith("éé")
    assert outer.idle_reason is not None
    assert read(fresh).idle_reason is None


def test_a_pause_ends_with_its_block_also_by_an_exception(fresh: Path) -> None:
    with pytest.raises(KeyError), progress_calls.idle("x"):
        raise KeyError
    assert read(fresh).idle_reason is None


def test_outside_holdfast_nothing_happens(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(progress_file.DIRECTORY)
    progress_calls.progress(step=1)
    with progress_calls.idle("x"):
        pass
    assert list(fresh.iterdir()) == []


def test_a_total_is_kept_once_it_was_told(fresh: Path) -> None:
    progress_calls.progress(1)
    assert read(fresh).total is None
    progress_calls.progress(2, total=100)
    progress_calls.progress(3)
    assert (read(fresh).step, read(fresh).total) == (3, 100)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1, "many", 1 << 80, [1]], ids=repr)
def test_a_number_that_cannot_be_one_is_unknown_and_the_report_counts(fresh: Path, bad: object) -> None:
    progress_calls.progress(5, total=100)
    progress_calls.progress(bad, total=bad)  # type: ignore[arg-type]
    progress_calls.saved(bad)  # type: ignore[arg-type]
    progress_calls.resumed(bad)  # type: ignore[arg-type]
    said = read(fresh)
    assert (said.reports, said.step, said.total, said.saved, said.resumed) == (2, None, None, None, None)


def test_a_save_is_known_while_it_goes_on_and_counts_when_it_ends_well(fresh: Path) -> None:
    progress_calls.progress(40)
    with progress_calls.saving():
        progress_calls.progress(41)  # an asynchronous save goes on beside the loop
        assert (read(fresh).saves, read(fresh).saved) == (True, None)
    assert (read(fresh).saves, read(fresh).saved) == (False, 40)
    with pytest.raises(OSError, match="full"), progress_calls.saving(50):
        raise OSError("full")
    assert (read(fresh).saves, read(fresh).saved) == (False, 40)
    progress_calls.saved(60)
    assert read(fresh).saved == 60
    progress_calls.saved()
    assert read(fresh).saved == 41


def test_phases_nest_and_end_with_their_blocks(fresh: Path) -> None:
    with progress_calls.phase("evaluate"):
        with progress_calls.phase("train"), progress_calls.phase("save"):
            assert (read(fresh).evaluates, read(fresh).saves) == (True, True)
        with pytest.raises(KeyError), progress_calls.phase("evaluate"):
            raise KeyError
        assert (read(fresh).evaluates, read(fresh).saves) == (True, False)
    assert not read(fresh).evaluates
    assert read(fresh).reports == 0, "marks alone are no reports of progress"


def test_an_unknown_phase_warns_and_never_raises(fresh: Path) -> None:
    with pytest.warns(UserWarning, match="'eval'; there are evaluate, save, train"), progress_calls.phase("eval"):
        pass
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with progress_calls.phase("eval"), progress_calls.phase(Rude()):  # type: ignore[arg-type]
            pass


def test_a_resumption_sets_the_step_and_is_no_report(fresh: Path) -> None:
    progress_calls.resumed(100)
    assert (read(fresh).reports, read(fresh).step, read(fresh).resumed, read(fresh).resumes) == (0, 100, 100, 1)
    progress_calls.progress(101)
    progress_calls.resumed(100)
    assert (read(fresh).reports, read(fresh).step, read(fresh).resumes) == (1, 100, 2)


def test_marks_do_nothing_outside_holdfast(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(progress_file.DIRECTORY)
    with progress_calls.saving(3), progress_calls.phase("evaluate"):
        progress_calls.saved(3)
        progress_calls.resumed(3)
    assert list(fresh.iterdir()) == []


def test_an_earlier_writers_long_reason_is_whole_and_makes_no_marks(fresh: Path) -> None:
    progress_calls.progress(7, total=100)
    progress_calls.saved(5)
    path = Path(progress_file.path_for(str(fresh), "3"))
    data = bytearray(path.read_bytes())
    data[progress_calls.REASON_AT :] = b"x" * 192
    progress_calls.NUMBER.pack_into(data, progress_calls.PAUSES_AT, 1)
    path.write_bytes(data)
    said = read(fresh)
    assert (said.step, said.total, said.saved, said.idle_reason) == (7, None, None, "x" * 192)
    path.write_bytes(data)  # the map sees it: marks begin again
    progress_calls.saved(6)
    assert (read(fresh).total, read(fresh).saved, read(fresh).idle_reason) == (None, 6, "x" * 128)


def test_what_another_writer_left_is_no_mark(fresh: Path) -> None:
    progress_calls.progress(7, total=100)
    path = Path(progress_file.path_for(str(fresh), "3"))
    data = bytearray(path.read_bytes())
    progress_calls.WRITER.pack_into(data, progress_calls.WRITER_AT, os.getpid(), 1)
    path.write_bytes(data)
    assert (read(fresh).step, read(fresh).total) == (7, None)


def test_a_program_without_marks_writes_what_it_always_wrote(fresh: Path) -> None:
    progress_calls.progress(7)
    with progress_calls.idle("waits"):
        data = Path(progress_file.path_for(str(fresh), "3")).read_bytes()
    assert len(data) == 256 and data[64:] == b"waits".ljust(192, b"\0")


def test_a_living_writer_without_marks_is_joined(fresh: Path) -> None:
    data = bytearray(progress_calls.SIZE)
    data[:8] = progress_calls.MAGIC
    writer = (os.getpid(), progress_calls._started(os.getpid()))
    progress_calls.WRITER.pack_into(data, progress_calls.WRITER_AT, *writer)
    progress_calls.REPORT.pack_into(data, progress_calls.REPORT_AT, 3, 6, 1.0)
    Path(progress_file.path_for(str(fresh), "3")).write_bytes(data)
    progress_calls.progress(7, total=9)
    assert (read(fresh).reports, read(fresh).step, read(fresh).total, read(fresh).saved) == (4, 7, 9, None)


class Rude:
    def __int__(self) -> int:
        raise RuntimeError("a tensor of two elements")

    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    "step", [1.5, float("nan"), "x", "7", 1 << 80, -1, Rude(), [1]], ids=lambda step: type(step).__name__
)
def test_no_step_ends_a_training(fresh: Path, step: object) -> None:
    progress_calls.progress(step)  # type: ignore[arg-type]
    with progress_calls.idle(step):  # type: ignore[arg-type]
        pass
    progress_calls.progress(step=9)
    assert read(fresh).step == 9


@pytest.mark.parametrize("what", ["missing", "file", "pipe", "link", "directory"])
def test_whatever_lies_there_a_training_goes_on(
    fresh: Path, monkeypatch: pytest.MonkeyPatch, what: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = fresh / "r3.progress"
    other = tmp_path_factory.mktemp("other") / "precious"
    other.write_text("precious")
    if what == "missing":
        monkeypatch.setenv(progress_file.DIRECTORY, str(fresh / "nowhere"))
    elif what == "file":
        monkeypatch.setenv(progress_file.DIRECTORY, str(other))
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "link":
        path.symlink_to(other)
    else:
        path.mkdir()
    progress_calls.progress(step=1)
    with progress_calls.idle("x"):
        pass
    assert other.read_text() == "precious"


@pytest.mark.require("mount")
def test_a_full_disk_does_not_end_a_training(tmp_path: Path) -> None:
    copied(tmp_path / "code")
    full = tmp_path / "full"
    full.mkdir()
    code = "import holdfast_progress\nfor step in range(9): holdfast_progress.progress(step)\nprint('done')"
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(full)], check=True)
    try:
        with pytest.raises(OSError, match="No space"):
            (full / "hog").write_bytes(b"x" * (1 << 20))
        assert run(code, tmp_path / "code", HOLDFAST_PROGRESS_DIR=str(full)) == "done\n"
    finally:
        subprocess.run(["umount", str(full)], check=True)


def test_a_forked_helper_does_not_speak_for_its_rank(fresh: Path) -> None:
    progress_calls.progress(step=7)
    child = os.fork()
    if child == 0:
        progress_calls.progress(step=99)
        os._exit(0)
    os.waitpid(child, 0)
    assert read(fresh).step == 7


def test_a_rank_that_is_forked_speaks_for_itself(fresh: Path) -> None:
    child = os.fork()
    if child == 0:
        os.environ["RANK"] = "3"
        progress_calls.progress(step=8)
        os._exit(0)
    os.waitpid(child, 0)
    assert read(fresh).step == 8


def test_a_fork_while_another_thread_opens_the_file_does_not_lock_the_child(fresh: Path) -> None:
    with progress_calls._lock:
        child = os.fork()
        if child == 0:
            progress_calls.progress(step=4)
            os._exit(0)
    deadline = time.monotonic() + 60
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        assert time.monotonic() < deadline, "it waits for a lock that no thread of its own holds"
        time.sleep(0.01)
    assert read(fresh).step == 4


def test_threads_report_together(fresh: Path) -> None:
    def reports() -> None:
        for step in range(2_000):
            progress_calls.progress(step)
            with progress_calls.idle("x"):
                pass

    threads = [threading.Thread(target=reports) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    said = read(fresh)
    assert said.reports >= 2_000 and said.idle_reason is None
    progress_calls.progress(5)
    assert read(fresh).reports > said.reports


def test_a_program_of_the_rank_adds_to_its_reports_and_a_dead_one_leaves_no_pause(fresh: Path) -> None:
    copied(fresh / "code")
    env = {"HOLDFAST_PROGRESS_DIR": str(fresh), "RANK": "3"}
    code = "import os, holdfast_progress as h\nh.progress(1)\npause = h.idle('x')\npause.__enter__()\nos._exit(0)"
    run(code, fresh / "code", **env)
    assert read(fresh).idle_reason == "x"
    progress_calls.progress(step=10)
    assert (read(fresh).reports, read(fresh).idle_reason) == (1, None)
    data = Path(progress_file.path_for(str(fresh), "3")).read_bytes()
    assert progress_calls.WRITER.unpack_from(data, progress_calls.WRITER_AT)[0] == os.getpid()
    run("import holdfast_progress as h\nh.progress(11)", fresh / "code", **env)
    assert (read(fresh).reports, read(fresh).step) == (2, 11)
    progress_calls.progress(step=12)
    assert (read(fresh).reports, read(fresh).step) == (3, 12)


def test_the_copied_file_and_the_package_share_one_file_in_a_process(fresh: Path) -> None:
    copy = loaded(copied(fresh / "code"))
    progress_calls.progress(step=1)
    copy.progress(step=2)
    progress_calls.progress(step=3)
    assert (read(fresh).reports, read(fresh).step) == (3, 3)


def test_the_file_alone_works_in_a_python_without_packages(fresh: Path) -> None:
    copied(fresh / "code")
    code = "import holdfast_progress as h\nh.progress(step=5)\nwith h.idle('x'): print('in it')\n"
    code += "print(sorted(name for name in sys.modules if name.startswith('holdfast')))"
    assert run(code, fresh / "code") == "in it\n['holdfast_progress']\n"
    assert not (fresh / "r0.progress").exists()
    run(code, fresh / "code", HOLDFAST_PROGRESS_DIR=str(fresh), RANK="3")
    assert read(fresh).step == 5


def test_it_does_nothing_on_a_system_that_is_no_linux(fresh: Path) -> None:
    copied(fresh / "code")
    code = """
import mmap, os, time
for module, name in ((os, "register_at_fork"), (os, "posix_fallocate"), (os, "O_NOFOLLOW"), (time, "CLOCK_BOOTTIME")):
    delattr(module, name)
import holdfast_progress as h
h.progress(1)
with h.idle("x"): print("done")
"""
    assert run(code, fresh / "code", HOLDFAST_PROGRESS_DIR=str(fresh)) == "done\n"


def test_it_is_one_file_for_python_3_7_without_dependencies() -> None:
    tree = ast.parse(SOURCE.read_text(), feature_version=(3, 7))
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else alias.name) or "."
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert {name.split(".")[0] for name in imported} <= sys.stdlib_module_names
    described = tomllib.loads((DISTRIBUTION / "pyproject.toml").read_text())
    assert "dependencies" not in described["project"]
    assert described["project"]["requires-python"] == ">=3.7"
    (taken,) = described["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"].items()
    assert (DISTRIBUTION / taken[0]).resolve() == SOURCE.resolve() and taken[1] == "holdfast_progress.py"
    assert (DISTRIBUTION / described["tool"]["hatch"]["version"]["path"]).is_file()
