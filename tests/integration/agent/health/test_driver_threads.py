"""Kernel threads of the driver, from a /proc of files and from this host's."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_agent.core.health.engine import Engine
from holdfast_agent.core.health.rules import RULES
from holdfast_agent.shell.health.driver_threads import DriverThreads


def put(folder: Path, **files: str) -> None:
    """Write files below a folder; two underscores stand for a slash."""
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def kernel_threads(proc: Path, **threads: tuple[str, str]) -> Path:
    """A /proc whose kernel threads have these names and states, by pid."""
    put(proc / "2", comm="kthreadd", task__2__children=" ".join(pid[1:] for pid in threads))
    for pid, (name, state) in threads.items():
        put(proc / pid[1:], comm=name, stat=f"{pid[1:]} ({name}) {state} 2 0 0 0")
    return proc


def test_a_thread_of_the_driver_that_nothing_ends_is_read_and_no_other(tmp_path: Path) -> None:
    proc = kernel_threads(
        tmp_path,
        p7=("kworker/0:1", "D"),
        p8=("nvidia-modeset/", "S"),
        p9=("nv_queue", "D"),
        p10=("UVM global queue", "D"),
    )
    threads = DriverThreads(proc)

    found = {each.subject: each.value for each in threads.look()}
    assert found == {"nvidia-modeset/:8": 0.0, "nv_queue:9": 1.0, "UVM_global_queue:10": 1.0}

    kernel_threads(tmp_path, p8=("nvidia-modeset/", "D"), p9=("kworker/9:9", "D"), p10=("UVM global queue", "S"))
    (tmp_path / "9/stat").unlink()  # it has ended since the list was read
    assert {each.subject: each.value for each in threads.look()} == {
        "nvidia-modeset/:8": 1.0,
        "UVM_global_queue:10": 0.0,
    }


@pytest.mark.parametrize("comm", ["", "bash"])
def test_where_kernel_threads_cannot_be_seen_nothing_is_known(tmp_path: Path, comm: str) -> None:
    if comm:
        put(tmp_path / "2", comm=comm, task__2__children="3")
        put(tmp_path / "3", comm="nvidia", stat="3 (nvidia) D 2")

    assert DriverThreads(tmp_path).look() == []


def test_the_kernel_threads_of_this_host_are_read() -> None:
    assert all(each.rule == "gpu.driver_stuck" for each in DriverThreads(Path("/proc")).look())


def test_a_thread_that_waits_for_five_minutes_is_a_finding_and_one_that_goes_on_between_is_none(
    tmp_path: Path,
) -> None:
    threads, engine = (
        DriverThreads(kernel_threads(tmp_path, p9=("nv_queue", "D"), p10=("nvidia", "D"))),
        Engine(RULES),
    )

    for minute in range(7):
        kernel_threads(tmp_path, p9=("nv_queue", "D"), p10=("nvidia", "S" if minute == 3 else "D"))
        engine.take(threads.look(), 60.0 * minute)

    assert [each.check for each in engine.findings()] == ["gpu.driver_stuck/nv_queue:9"]
