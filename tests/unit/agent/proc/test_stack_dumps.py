"""What the stack dump tools print, and what is read in it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.hang.evidence.frames import Frame
from holdfast_agent.core.proc.stack_dumps import complaint, py_spy, pystack


def thread(tid: int | None, name: str | None, *frames: tuple[str, str, int], **changes: Any) -> dict[str, Any]:
    rows = [{"name": n, "filename": f, "module": None, "short_filename": f, "line": i} for n, f, i in frames]
    basic = {"pid": 7, "thread_id": 1, "thread_name": name, "os_thread_id": tid, "active": False, "owns_gil": False}
    return {**basic, "frames": rows, **changes}


def test_functions_lose_their_class_so_that_dumps_of_all_interpreters_compare() -> None:
    text = json.dumps(
        [
            thread(8, "loader", ("Thread.run", "/lib/threading.py", 982), active=True),
            thread(
                7,
                "MainThread",
                ("Queue.get", "/lib/queue.py", 171),
                ("outer.<locals>.<lambda>", "/t.py", 3),
                ("<module>", "/t.py", 9),
                owns_gil=True,
            ),
        ]
    )
    main, loader = py_spy(text, 7).threads
    assert main.frames == (
        Frame("get", "/lib/queue.py", 171),
        Frame("<lambda>", "/t.py", 3),
        Frame("<module>", "/t.py", 9),
    )
    assert (main.main, main.holds_gil, main.active, main.name) == (True, True, False, "MainThread")
    assert (loader.main, loader.active, loader.name, loader.tid) == (False, True, "loader", 8)


def test_without_native_thread_ids_the_name_tells_the_main_thread() -> None:
    found = py_spy(json.dumps([thread(None, None), thread(None, "MainThread")]), 7)
    assert [item.main for item in found.threads] == [True, False]


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "5", "[5]", '[{"frames": [{}]}]', '[{"frames": 5}]', '{"a": 1}', "[" * 100_000),
        '[{"frames": [], "os_thread_id": Infinity}]',
    ],
)
def test_unknown_output_of_py_spy_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        py_spy(text, 7)


PYSTACK = """
Traceback for thread 8 (python) [] (most recent call last):
    (C) File "???", line 0, in __clone3 (/usr/lib/libc.so.6)
    (Python) File "/t.py", line 4, in w
        time.sleep(1000)

Traceback for thread 7 (python3 (x)) [Has the GIL] (most recent call last):
    (Python) File "/a b/t.py", line 10, in <module>
        File "looks like one", line 3, in q
    (C) File "./Modules/timemodule.c", line 2159, in pysleep (inlined) (/usr/lib/libpython3.11.so.1.0)
    (C) File "???", line 0, in c10d::Store::wait(std::string (*)(int)) (/x/libtorch_cpu.so)
"""


def test_pystack_is_read_from_the_inside_out() -> None:
    main, other = pystack(PYSTACK, 7).threads
    assert main.main
    assert main.holds_gil
    assert main.frames == (
        Frame("c10d::Store::wait(std::string (*)(int))", "/x/libtorch_cpu.so", 0),
        Frame("pysleep", "./Modules/timemodule.c", 2159),
        Frame("<module>", "/a b/t.py", 10),
    )
    assert other.frames == (Frame("w", "/t.py", 4), Frame("__clone3", "/usr/lib/libc.so.6", 0))
    assert not other.holds_gil


@pytest.mark.parametrize("text", ["", "Engine error: no", "\x00"])
def test_unknown_output_of_pystack_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        pystack(text, 7)


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        ("Error: Failed to find python version\n\nStack backtrace:\n 0: x", "Failed to find python version"),
        ("\n💀 Engine error: Operation not permitted 💀\n", "Engine error: Operation not permitted"),
        ("Traceback:\n  File x\nImportError: no module", "ImportError: no module"),
        ("strange", "strange"),
        ("", ""),
    ],
)
def test_one_line_says_what_is_wrong(errors: str, said: str) -> None:
    assert complaint(errors) == said
