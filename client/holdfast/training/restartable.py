"""Lets a training go on in its own process when its gang is restarted in place: ``@holdfast.restartable``.

Theory of operation. A job with ``warm: {mode: IN_PROCESS}`` finds a socket's name in ``HOLDFAST_IN_PROCESS``.
While the decorated function runs, a thread waits there for the word that the generation ends. Then it interrupts the
main thread by a signal, whose handler raises ``Unwound``, and aborts what a collective waits for. Once the function has
been left, and with it its process groups, child processes and threads, the process says so and waits. It is given what
is new in its environment and the next generation's output, and the function is called again, with the same arguments.

Whatever can't be left in time ends, and its rank is started as any other: nothing here is trusted with more than its
own process. Outside Holdfast, and in a job that doesn't ask for it, the function is just called.

Standard library only, Python 3.8 and later: it is imported into the user's own process.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn, TypeVar, overload

from holdfast.training import first_rank, progress_calls

__all__ = ["Unwound", "restartable"]

VARIABLE = "HOLDFAST_IN_PROCESS"
"""Environment variable with the socket's name; unset where the job doesn't ask for it."""
SIGNAL = signal.SIGRTMAX - 2 if hasattr(signal, "SIGRTMAX") else 0
"""Interrupts the main thread."""
WITHIN_S = 5.0
ABORT_S = 0.1
"""For a main thread that does not wait in a collective, before process groups are aborted."""
AGAIN_S = 0.5
"""From one interruption to the next, for a function that catches them."""
WORD_S = 10.0
"""After an error that a lost peer explains: for the word that the generation ends."""
CONNECT_S = 5.0
MEET = "HOLDFAST_MEET"
"""Given to a rank that is to begin once the gang's first one listens: who is refused tries again much later."""
LOST_PEER = (
    "closed by peer",
    "reset by peer",
    "connection refused",
    "connection reset",
    "connection was closed",
    "broken pipe",
    "socket closed",
    "socket timeout",
    "gloo",
)
"""In the text of an error, in small letters."""
LOST_PEER_CLASSES = ("DistBackendError", "DistNetworkError", "DistStoreError")

Function = TypeVar("Function", bound=Callable[..., Any])


class Unwound(BaseException):
    """Raised in a rank whose generation ends, so that the function is left. Let it pass."""


@overload
def restartable(function: Function) -> Function: ...


@overload
def restartable(
    *,
    abort: Callable[[], object] | None = None,
    within_s: float = WITHIN_S,
    lost_peer: Callable[[BaseException], bool] | None = None,
) -> Callable[[Function], Function]: ...


def restartable(
    function: Callable[..., Any] | None = None,
    *,
    abort: Callable[[], object] | None = None,
    within_s: float = WITHIN_S,
    lost_peer: Callable[[BaseException], bool] | None = None,
) -> Any:
    """Decorate a function that trains from start to end, and may be called again in the same process.

    ``abort`` ends the waiting of a collective; it is called in another thread while the main one waits, and again when
    the function has been left. By default it aborts and destroys the process groups of ``torch.distributed``. Within
    ``within_s`` seconds the function has to be left, or the process ends. ``lost_peer`` says of an error whether it
    comes of a peer's end, as those of sockets, gloo and NCCL do: such a rank waits for the word before it fails.
    """
    if function is None:
        return functools.partial(restartable, abort=abort, within_s=within_s, lost_peer=lost_peer)
    parts = abort or abort_torch, lost_peer or tells_of_a_lost_peer

    @functools.wraps(function)
    def call(*args: object, **kwargs: object) -> Any:
        name = os.environ.get(VARIABLE, "")
        if not name or threading.current_thread() is not threading.main_thread():
            return function(*args, **kwargs)
        run = functools.partial(function, *args, **kwargs)
        while (link := _connect(name, within_s)) is not None:
            turn = _Turn(link, within_s, *parts)
            if turn.ends(run):
                return turn.result
            turn.stand_by()
        return run()

    return call


def abort_torch() -> None:
    """Abort and destroy all process groups of torch, if the program has any, and end their connections.

    Gloo's can't be aborted, and one that DistributedDataParallel has used outlives its destruction: peers would wait.
    """
    found = sys.modules.get("torch.distributed")
    if found is None or not found.is_available():
        return
    if found.is_initialized():
        found.distributed_c10d._abort_process_group()
        if found.is_initialized():
            found.destroy_process_group()
    new = _sockets() - _known_sockets
    own = {each.fileno() for each in gc.get_objects() if issubclass(type(each), socket.socket)} if new else set()
    for name in new:
        if name[0] in own:
            continue  # Python has made it: it is no library's
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(name[0])) as each:
            if each.family != socket.AF_UNIX and each.getpeername():
                each.shutdown(socket.SHUT_RDWR)


_known_sockets: set[tuple[int, str]] = set()
"""Sockets that were open when the function was called, by descriptor and name."""


def _sockets() -> set[tuple[int, str]]:
    """All sockets of this process."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            place = os.readlink(f"/proc/self/fd/{name}")
            if place.startswith("socket:"):
                found.add((int(name), place))
    return found


def tells_of_a_lost_peer(error: BaseException) -> bool:
    """Whether an error, or one that it comes of, is what the end of a peer causes."""
    seen: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in seen:
        seen.append(at)
        text = str(at).lower()
        if isinstance(at, (ConnectionError, EOFError)) or type(at).__name__ in LOST_PEER_CLASSES:
            return True
        if isinstance(at, RuntimeError) and any(words in text for words in LOST_PEER):
            return True
        at = at.__cause__ or at.__context__
    return False


def _connect(name: str, within_s: float) -> socket.socket | None:
    """The shim's socket; None where there is none any more, or another process has its name."""
    link = socket.socket(socket.AF_UNIX)
    try:
        link.settimeout(CONNECT_S)
        link.connect("\0" + name[1:])
        pid = int.from_bytes(link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 4), sys.byteorder)
        if pid == os.getppid():
            link.settimeout(None)
            link.sendall(b"within %.3f\n" % within_s)
            return link
    except OSError:
        pass
    link.close()
    return None


class _Turn:
    """One call of the function, from its begin to its end or to the next generation."""

    def __init__(
        self,
        link: socket.socket,
        within_s: float,
        abort: Callable[[], object],
        lost_peer: Callable[[BaseException], bool],
    ) -> None:
        self.result: Any = None
        self._link, self._abort, self._within_s, self._lost_peer = link, abort, within_s, lost_peer
        self._pid = os.getpid()
        self._asked, self._left = threading.Event(), threading.Event()
        self._raised_at = 0.0
        self._deadline = 0.0
        self._threads = set(threading.enumerate())
        self._watcher = threading.Thread(target=self._watch, name="holdfast-restartable", daemon=True)
        self._aborter = threading.Thread(target=self._try_to_abort, name="holdfast-abort", daemon=True)

    # -- in the main thread

    def ends(self, function: Callable[[], Any]) -> bool:
        """Whether the function has ended by itself, with ``result``; raises what it raises, unless it was unwound."""
        finished = False
        gc.freeze()  # so that looking through the function's own objects takes no time when it is left
        _known_sockets.clear()
        _known_sockets.update(_sockets())
        signal.signal(SIGNAL, self._interrupt)  # for good: one that is on its way must find it
        try:
            self._watcher.start()
            try:
                self.result = function()
                finished = True
            finally:
                self._left.set()
        except BaseException as error:
            self._left.set()
            if not finished and not self._is_unwound(error):
                raise
            if not finished:
                _forget(error)
        if finished:
            with contextlib.suppress(OSError):
                self._link.shutdown(socket.SHUT_RDWR)  # which ends the watcher, too
            self._link.close()
        return finished

    def _is_unwound(self, error: BaseException) -> bool:
        """Whether the generation ends and this process may go on; an error that a lost peer explains waits for that."""
        if os.getpid() != self._pid or not isinstance(error, (Exception, Unwound)):
            return False
        if not self._asked.is_set() and isinstance(error, Exception) and self._lost_peer(error):
            _say(f"{_in_words(error)}; waiting for what becomes of the gang")
            self._asked.wait(WORD_S)
        if self._asked.is_set() and not isinstance(error, Unwound):
            _say(f"left upon {_in_words(error)}")
        return self._asked.is_set()

    def stand_by(self) -> None:
        """Leave what belongs to the old generation, wait for the next one, and take what it gives."""
        self._watcher.join()
        try:
            self._abort()
            problem = self._leave()
        except Exception as error:  # noqa: BLE001 - whatever it is: the rank is started as any other
            problem = _in_words(error)
        if problem:
            with contextlib.suppress(OSError):
                self._link.sendall(b"no " + os.fsencode(problem) + b"\n")
            raise Unwound(f"this process can't go on: {problem}")
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        try:
            self._link.sendall(b"unwound\n")
            _take_order(self._link)
        except OSError:
            _no_longer_needed()
        if os.environ.pop(MEET, ""):
            first_rank.await_listening()
        progress_calls.begin_again()

    def _leave(self) -> str:
        """End child processes and wait for threads of the function: what is left of them, if anything."""
        gc.collect()
        for child in multiprocessing.active_children():
            child.terminate()
            child.join(max(0.0, self._deadline - time.monotonic()))
        _end_helpers()
        while True:
            threads = [
                each.name
                for each in threading.enumerate()
                if each not in self._threads and each.is_alive() and not each.daemon
            ]
            if threads and time.monotonic() < self._deadline:
                time.sleep(0.005)
                continue
            if threads:
                return f"its thread {threads[0]} goes on"
            if self._aborter.is_alive():
                self._aborter.join(max(0.0, self._deadline - time.monotonic()))
                if self._aborter.is_alive():
                    return "aborting its process groups takes too long"
            return ""

    # -- in the other threads

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """The signal's handler, so in the main thread. It leaves half a second to get out of the function."""
        now = time.monotonic()
        if self._asked.is_set() and not self._left.is_set() and now - self._raised_at >= AGAIN_S * 0.8:
            self._raised_at = now
            raise Unwound

    def _watch(self) -> None:
        """Wait for the word, then have the main thread leave the function."""
        try:
            word = self._link.recv(1)
        except OSError:
            return
        if word != b"u":
            return
        self._deadline = time.monotonic() + self._within_s
        self._asked.set()
        main = threading.main_thread().ident
        while not self._left.is_set() and main is not None:
            signal.pthread_kill(main, SIGNAL)
            if self._aborter.ident is None and not self._left.wait(ABORT_S):
                self._aborter.start()
            self._left.wait(AGAIN_S)

    def _try_to_abort(self) -> None:
        try:
            self._abort()
        except Exception:  # noqa: BLE001 - whatever it is: the main thread is left to the shim
            traceback.print_exc()


def _say(words: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(f"holdfast: {words}\n")
        sys.stderr.flush()


def _in_words(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(type(error), error)).strip().splitlines()[0][:500]


def _forget(error: BaseException) -> None:
    """Let go of what the frames of an error, and of those that it comes of, hold."""
    seen: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in seen:
        seen.append(at)
        if at.__traceback__ is not None:
            traceback.clear_frames(at.__traceback__)
        at.__traceback__, at = None, at.__cause__ or at.__context__


def _end_helpers() -> None:
    """End what multiprocessing keeps for processes that it spawns: its fork server and its tracker of resources."""
    for name in ("forkserver", "resource_tracker"):
        helper = getattr(sys.modules.get(f"multiprocessing.{name}"), f"_{name}", None)
        with contextlib.suppress(Exception):
            helper._stop()  # type: ignore[union-attr]


def _take_order(link: socket.socket) -> None:
    """Wait for environment, directory and descriptors of the next generation, and take them."""
    head, fds = _receive_head(link)
    left, data = int.from_bytes(head, "big"), b""
    while len(data) < left:
        more = link.recv(left - len(data))
        if not more:
            _no_longer_needed()
        data += more
    for target, fd in enumerate(fds[:3]):
        os.dup2(fd, target)
        os.close(fd)
    os.fchdir(fds[3])
    os.close(fds[3])
    for each in data.split(b"\0")[:-1]:
        name, given, value = each.partition(b"=")
        if given:
            os.environb[name] = value
        else:
            os.environb.pop(name, None)
    link.send(b"1")
    if link.recv(1) not in (b"g", b"e"):
        _no_longer_needed()
    link.close()


def _receive_head(link: socket.socket) -> tuple[bytes, list[int]]:
    head, ancillary, _, _ = link.recvmsg(8, socket.CMSG_SPACE(16))
    if len(head) < 8 or not ancillary:
        _no_longer_needed()
    data = ancillary[0][2]
    return head, [int.from_bytes(data[at : at + 4], sys.byteorder) for at in range(0, 16, 4)]


def _no_longer_needed() -> NoReturn:
    """Its shim is gone, or starts this rank in another process: nothing of the program may run any more."""
    os._exit(0)
