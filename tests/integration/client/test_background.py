"""The loop behind the synchronous client: one thread for all, ended with the last; no call waits for itself."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from holdfast._api.background import Background
from holdfast.errors import NotFound, WrongState

NAME = "holdfast-client"


def loops() -> int:
    return sum(thread.name == NAME for thread in threading.enumerate())


async def nothing() -> None:
    return None


async def name_of_thread() -> str:
    return threading.current_thread().name


def test_clients_share_a_thread_that_ends_with_the_last() -> None:
    first, second = Background(), Background()
    assert loops() == 0
    assert first.run(name_of_thread()) == second.run(name_of_thread()) == NAME
    assert loops() == 1
    first.close(nothing)
    first.close(nothing)
    assert second.run(name_of_thread()) == NAME
    second.close(nothing)
    assert loops() == 0
    with pytest.raises(WrongState, match="The client is closed"):
        first.run(nothing())
    third = Background()
    assert third.run(name_of_thread()) == NAME
    third.close(nothing)
    assert loops() == 0


def test_one_that_was_never_used_has_nothing_to_close() -> None:
    Background().close(nothing)
    assert loops() == 0


def test_the_loop_ends_also_where_closing_fails() -> None:
    async def fails() -> None:
        raise NotFound("gone")

    background = Background()
    background.run(nothing())
    with pytest.raises(NotFound):
        background.close(fails)
    assert loops() == 0


def test_an_error_of_ours_comes_without_the_way_through_the_thread() -> None:
    async def fails() -> None:
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise NotFound("no such job") from error

    background = Background()
    with pytest.raises(NotFound) as raised:
        background.run(fails())
    background.close(nothing)
    assert raised.value.__cause__ is raised.value.__context__ is None
    assert "fails" not in [entry.name for entry in raised.traceback]


def test_a_call_from_the_loop_itself_is_refused_and_does_not_wait_for_ever() -> None:
    background = Background()

    async def callback() -> None:
        background.run(nothing())

    with pytest.raises(WrongState, match="A callback of the client can't make calls"):
        background.run(callback())
    background.close(nothing)


@pytest.mark.parametrize("of_another", [False, True])
def test_closing_from_the_loop_itself_is_refused_and_leaves_the_client_open(of_another: bool) -> None:
    background, closed = Background(), Background()
    background.run(nothing())
    closed.run(nothing())
    work = nothing()

    async def callback() -> None:
        # Without the refusal the loop would wait for itself here, and the test with it.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio, "run_coroutine_threadsafe", unreachable)
            with pytest.raises(WrongState, match="can't close it"):
                (closed if of_another else background).close(lambda: work)

    def unreachable(*_: object) -> None:
        raise AssertionError("it waits for itself")

    try:
        background.run(callback())
        assert background.run(name_of_thread()) == closed.run(name_of_thread()) == NAME
    finally:
        work.close()
        background.close(nothing)
        closed.close(nothing)
    assert loops() == 0


def reader(background: Background, ended: threading.Event) -> AsyncGenerator[list[int]]:
    async def numbers() -> AsyncGenerator[list[int]]:
        try:
            for number in range(1000):
                yield [number, number]
        finally:
            ended.set()

    return numbers()


def test_a_reader_that_leaves_ends_the_stream() -> None:
    background, ended = Background(), threading.Event()
    found = []
    for number in background.iterate(lambda: reader(background, ended)):
        found.append(number)
        if number == 2:
            break
    assert found == [0, 0, 1, 1, 2] and ended.wait(20)
    background.close(nothing)


def test_a_reader_that_is_collected_on_the_loop_ends_the_stream_too() -> None:
    background, ended = Background(), threading.Event()
    kept = [background.iterate(lambda: reader(background, ended))]
    assert next(kept[0]) == 0

    async def drops() -> None:
        kept.clear()
        gc.collect()

    background.run(drops())
    assert ended.wait(20)
    background.close(nothing)


def test_a_reader_that_is_collected_amid_another_call_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    background, ended = Background(), threading.Event()
    left = background.iterate(lambda: reader(background, ended))
    assert next(left) == 0
    kept: list[object] = [left]
    kept.append(kept)
    start = asyncio.run_coroutine_threadsafe

    def collects(*call: Any) -> Any:
        monkeypatch.undo()
        gc.collect()
        return start(*call)

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", collects)
    gc.disable()
    try:
        del left, kept
        calling = threading.Thread(target=lambda: background.run(nothing()), daemon=True)
        calling.start()
        calling.join(20)
    finally:
        gc.enable()
    assert not calling.is_alive() and ended.is_set()
    background.close(nothing)


def test_closing_gives_up_what_other_threads_wait_for() -> None:
    background, begun = Background(), threading.Event()
    errors: list[BaseException] = []

    async def waits() -> None:
        begun.set()
        await asyncio.sleep(3600)

    def call() -> None:
        try:
            background.run(waits())
        except WrongState as error:
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    assert begun.wait(20)
    background.close(nothing)
    thread.join(20)
    assert len(errors) == 1 and loops() == 0


def test_a_forked_process_is_told_to_make_its_own() -> None:
    background = Background()
    background.run(nothing())
    child = os.fork()
    if child == 0:
        try:
            background.run(nothing())
        except WrongState:
            background.close(nothing)
            own = Background()
            own.run(nothing())
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    background.close(nothing)
