"""Waits for a child: for what it waits for itself, seen from outside: real processes."""

from __future__ import annotations

import time

import pytest
from tests.integration.sampling.conftest import Stage, silent_server, waits

from holdfast.hang.pipeline.waits import WaitKind


@pytest.mark.parametrize(
    "code",
    [
        "subprocess.run([sys.executable, '-c', child], stdout=subprocess.PIPE)",
        "import multiprocessing as m; a, b = m.Pipe(); m.Process(target=exec, args=(child,)).start(); a.recv()",
        "import multiprocessing as m; q = m.Queue(); m.Process(target=exec, args=(child,)).start(); q.get()",
    ],
    ids=["output", "socketpair", "queue"],
)
async def test_a_child(stage: Stage, code: str) -> None:
    stage.start(f"child = 'import threading; threading.Event().wait()'\n{code}")
    await stage.up()
    found = await waits(stage, WaitKind.CHILD)
    assert found.what.startswith("pid ")
    assert "stopped" not in found.what


DOWNLOADS = "import socket; socket.create_connection(('127.0.0.1', {port})).recv(1)"


@pytest.mark.parametrize(
    "code",
    [
        "subprocess.run([sys.executable, '-c', child])",
        "subprocess.run([sys.executable, '-c', child], stdout=subprocess.PIPE)",
        "subprocess.run(['bash', '-c', f'{sys.executable} -c \"$0\" & wait', child])",
        "inside = 'def go():\\n ' + child + '\\nimport threading as t; a = t.Thread(target=go); a.start(); a.join()'\n"
        "subprocess.run([sys.executable, '-c', inside])",
        "import multiprocessing as m; a, b = m.Pipe(); m.Process(target=exec, args=(child,)).start(); a.recv()",
    ],
    ids=["wait", "output", "grandchild", "thread", "socketpair"],
)
async def test_a_child_that_waits_for_a_service_outside(stage: Stage, code: str) -> None:
    with silent_server() as port:
        stage.start(f"child = {DOWNLOADS.replace('{port}', str(port))!r}\n{code}")
        await stage.up()
        sample = await stage.sampled(
            lambda one: (wait := one.ranks[0].wait) is not None and str(port) in wait.what, "it"
        )
    found = sample.ranks[0].wait
    assert found is not None and found.kind is WaitKind.OUTSIDE
    assert found.what.startswith("pid ") and found.what.endswith(f": 127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("subprocess.run(['sleep', '600'])", " `sleep`"),
        ("subprocess.run(['sleep', '600'], stdout=subprocess.PIPE)", " `sleep`"),
        ("subprocess.run(['sleep', '600'], capture_output=True)", " `sleep`"),
        (
            "import multiprocessing as m; q = m.Queue()\n"
            "for n in (600, 9000): m.Process(target=time.sleep, args=(n,)).start()\n"
            "q.get()",
            "2 processes below it",
        ),
    ],
    ids=["wait", "output", "both outputs", "actors"],
)
async def test_a_child_that_sleeps_ends_when_it_wakes(stage: Stage, code: str, what: str) -> None:
    began_s = time.monotonic()
    stage.start(code)
    await stage.up()
    found = await waits(stage, WaitKind.SLEEP)
    assert found.what.endswith(what)
    assert found.until_s is not None and 590 < found.until_s - began_s < 660


async def test_a_child_whose_own_wait_cannot_be_told_may_work_on_something_outside(stage: Stage) -> None:
    child = "import threading; threading.Event().wait()"
    stage.start(f"subprocess.run([sys.executable, '-c', {child!r}])")
    await stage.up()
    sample = await stage.sampled(lambda one: bool(one.ranks[0].wait and "can't be" in one.ranks[0].wait.what), "it")
    found = sample.ranks[0].wait
    assert found is not None and found.kind is WaitKind.OUTSIDE


async def test_of_several_children_the_stopped_one_is_named(stage: Stage) -> None:
    stage.start(
        "import multiprocessing as m; q = m.Queue()\n"
        "a, b = [m.Process(target=time.sleep, args=(600,)) for _ in range(2)]\n"
        "a.start(); b.start(); os.kill(b.pid, signal.SIGSTOP); q.get()"
    )
    await stage.up()
    found = await waits(stage, WaitKind.CHILD)
    assert found.what.endswith(", stopped")


async def test_a_stopped_child_is_shown_as_stopped(stage: Stage) -> None:
    stage.start("p = subprocess.Popen(['sleep', '600']); os.kill(p.pid, signal.SIGSTOP); p.wait()")
    await stage.up()
    found = await waits(stage, WaitKind.CHILD)
    assert (found.kind, found.what.endswith(" `sleep`, stopped")) == (WaitKind.CHILD, True)
