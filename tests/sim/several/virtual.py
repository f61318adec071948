"""Blocking code, and code of asyncio, in virtual time: a strand and an event loop that run when the engine lets them.

A strand is what a thread is to the code in it, but a greenlet: it runs until it waits. So what happens is decided by
the heap of the engine alone, though the code is what the controller runs: it sleeps, waits for locks and for answers,
and hands work from its event loop to its store's thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import greenlet
from tests.sim.cluster.clock import Clock
from tests.sim.engine import Engine, Life


class Gone(BaseException):
    """The process of this strand is dead. No ``Exception``: nothing may go on after it."""


class _Now:
    clock: Clock | None = None
    strand: Strand | None = None


NOW = _Now()
"""Of the machine and the strand whose code runs."""


class Time:
    """What ``time`` is to the controller's modules: the clock of the machine that they run on."""

    @staticmethod
    def monotonic() -> float:
        """Seconds of the machine's monotonic clock."""
        assert NOW.clock is not None
        return NOW.clock.mono()

    perf_counter = monotonic

    @staticmethod
    def time() -> float:
        """Seconds of its wall clock."""
        assert NOW.clock is not None
        return NOW.clock.wall()

    @staticmethod
    def sleep(seconds: float) -> None:
        """Have the strand wait."""
        assert NOW.clock is not None and NOW.strand is not None
        NOW.strand.wait(NOW.clock.true_s(seconds))


class PausedClock(Clock):
    """Of a virtual machine: its pauses are no time to it."""

    name: str = ""

    def pause(self, true_s: float) -> None:
        """It has stood still for so long."""
        self.origin -= self.rate * true_s


class Machine:
    """What ``socket`` is to the controller's modules."""

    @staticmethod
    def gethostname() -> str:
        """Name of the machine whose code runs."""
        return getattr(NOW.clock, "name", "nowhere")


@contextmanager
def of_machine(clock: Clock, strand: Strand | None = None) -> Iterator[None]:
    """Within it the code of that machine runs."""
    before = NOW.clock, NOW.strand
    NOW.clock, NOW.strand = clock, strand
    try:
        yield
    finally:
        NOW.clock, NOW.strand = before


class Strand:
    """The one thread of a process's store: an executor, as ``Store.thread`` is."""

    def __init__(self, engine: Engine, clock: Clock, life: Life, died: Callable[[], None]) -> None:
        self._engine, self._clock, self._life, self._died = engine, clock, life, died
        self._work: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._busy = self._over = False
        self._broken: BaseException | None = None
        self._code = greenlet.greenlet(self._run)

    def submit(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        """Do ``work`` after all that was handed in before."""
        future: Future[Any] = Future()
        self._work.append((future, partial(work, *args, **kwargs)))
        if not self._busy and len(self._work) == 1:
            self.wake()
        return future

    def shutdown(self, wait: bool = True) -> None:
        """The process ends its store on this very thread."""

    def wake(self, after_s: float = 0.0) -> None:
        """Let it go on after a while."""
        self._engine.after(after_s, self._let_go, self._life, self._died)

    def wait(self, for_s: float) -> None:
        """In the strand: let others run for a while."""
        self.wake(for_s)
        self.park()

    def park(self) -> None:
        """In the strand: let others run until one of them wakes it."""
        if not self._over and self._code.parent is not None:
            self._code.parent.switch()
        if self._over:
            raise Gone

    def end(self) -> None:
        """The process is dead: unwind whatever the strand does."""
        self._over = True
        if self._code:
            self._switch()

    def _let_go(self) -> None:
        if self._over:
            return
        with of_machine(self._clock, self):
            self._switch()
        broken, self._broken = self._broken, None
        if broken is not None:
            raise broken

    def _switch(self) -> None:
        """Run the strand's code until it waits or ends."""
        self._code.parent = greenlet.getcurrent()
        self._code.switch()

    def _run(self) -> None:
        try:
            while True:
                while self._work:
                    self._busy = True
                    future, work = self._work.popleft()
                    if not future.set_running_or_notify_cancel():
                        continue
                    try:
                        future.set_result(work())
                    except Exception as error:  # noqa: BLE001 - as an executor does
                        future.set_exception(error)
                self._busy = False
                self.park()
        except Gone:
            pass
        except BaseException as error:  # noqa: BLE001 - what an oracle says, or a crash
            self._broken = error
        self._over = True


class Loop(asyncio.AbstractEventLoop):
    """The event loop of one process."""

    def __init__(self, engine: Engine, clock: Clock, life: Life, died: Callable[[], None]) -> None:
        self._engine, self._clock, self._life, self._died = engine, clock, life, died
        self._coroutines: list[Any] = []
        self.broken: BaseException | None = None
        """What no task has caught: it goes to whoever runs the world."""

    def time(self) -> float:
        return self._clock.mono()

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        handle = asyncio.Handle(callback, args, self, context)
        self._engine.after(0.0, lambda: self._run(handle), self._life, self._died)
        return handle

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        return self.call_soon(callback, *args, context=context)

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:  # type: ignore[override]
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:  # type: ignore[override]
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._arm(handle)
        return handle

    def _arm(self, handle: asyncio.TimerHandle) -> None:
        late_s = self._clock.true_s(handle.when() - self.time()) + 1e-6
        self._engine.after(late_s, lambda: self._ring(handle), self._life, self._died)

    def _ring(self, handle: asyncio.TimerHandle) -> None:
        if self.time() < handle.when() - 1e-6 and not handle.cancelled():
            self._arm(handle)  # the machine's clock stood still meanwhile
        else:
            self._run(handle)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def _run(self, handle: asyncio.Handle) -> None:
        if not handle.cancelled():
            self.inside(handle._run)

    def inside(self, work: Callable[[], Any]) -> Any:
        """Run a piece of the process's code, as a callback of its loop."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            with of_machine(self._clock):
                return work()
        finally:
            asyncio._set_running_loop(before)
            broken, self.broken = self.broken, None
            if broken is not None:
                raise broken

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None) -> asyncio.Task[Any]:
        self._coroutines.append(coro)
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        task.add_done_callback(lambda _: self._coroutines.remove(coro))
        return task

    def end(self) -> None:
        """The process is dead: what waits goes on no more."""
        for coroutine in list(self._coroutines):
            with suppress(RuntimeError, ValueError):  # it is what runs now
                coroutine.close()

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - as an executor does
            done.set_exception(error)
        return done

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.broken = context.get("exception") or RuntimeError(context.get("message"))

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False
