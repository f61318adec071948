"""Frames of a stack, and the tables that say which of them only wait, only wrap, or meet other ranks.

One table for all that reads stacks: the groups and sentences of ``stacks``, and the waits of
``hang.pipeline.frame_waits``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from holdfast._base.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame, as py-spy or pystack names it."""

    function: str
    file: str
    line: int

    @property
    def base(self) -> str:
        return PurePosixPath(self.file).name

    @property
    def library(self) -> bool:
        """Whether this is no code of the user's."""
        return "site-packages" in self.file or "/lib/python" in self.file or self.file.startswith("<")

    @property
    def module(self) -> str:
        """The path below the library's folder: ``torch/distributed/rendezvous.py``; the file itself for the user's."""
        return _LIBRARY.sub("", self.file) if self.library else self.file

    @property
    def meets(self) -> bool:
        """Whether it is a library's function that ranks wait for each other in.

        Names that mean other things elsewhere (a pipe's ``recv``, asyncio's ``gather``) count in frameworks only.
        """
        if self.function not in MEETINGS or not self.library:
            return False
        return self.function not in _AMBIGUOUS or bool(_FRAMEWORKS.match(self.module))

    @property
    def waits(self) -> bool:
        """Whether it only waits; such frames are taken off the inner end, so that "where" is what called them."""
        return (self.base, self.function) in _WAITING

    @property
    def wraps(self) -> bool:
        """Whether it only passes a call on: a decorator's, a debugger's, a module's call. It is no place."""
        return self.library and (self.base in _WRAPPING_FILES or self.function in _WRAPPING)

    @property
    def interpreter(self) -> bool:
        """Whether it is the interpreter's own C code, which differs between two looks at one line of Python."""
        if self.file.endswith(".py"):
            return False
        return bool(_INTERPRETER_FILE.match(self.base) or _INTERPRETER.fullmatch(self.function))


_LIBRARY = re.compile(r".*?(/(site|dist)-packages/|/lib(64)?/python[\d.]+t?/(?!site-packages/|dist-packages/))")
_WAITING = frozenset(
    {
        ("threading.py", "wait"),
        ("threading.py", "acquire"),
        ("threading.py", "_wait_for_tstate_lock"),
        ("threading.py", "join"),
        ("selectors.py", "select"),
        ("connection.py", "wait"),
        ("connection.py", "poll"),
        ("connection.py", "_poll"),
        ("connection.py", "_recv"),
        ("connection.py", "_recv_bytes"),
        ("connection.py", "recv_bytes"),
        ("popen_fork.py", "poll"),
        ("subprocess.py", "_try_wait"),
        ("socket.py", "accept"),
    }
)
_WRAPPING_FILES = frozenset(
    {
        "c10d_logger.py", "bdb.py", "pdb.py", "cmd.py", "contextlib.py", "_contextlib.py", "functools.py",
        "eval_frame.py", "external_utils.py", "autocast_mode.py", "runpy.py", "wrapt", "decorators.py",
    }
)  # fmt: skip
_WRAPPING = frozenset(
    {
        "wrapper", "wrapped", "inner", "_wrapper", "decorated", "decorator", "_call_impl", "_wrapped_call_impl",
        "decorate_context", "decorate_autocast", "_call_with_frames_removed",
    }
)  # fmt: skip
_INTERPRETER_FILE = re.compile(r"(lib)?python[\d.]+(\.so[\d.]*)?$|ceval[\w]*\.[ch]$")
_INTERPRETER = re.compile(
    r"_?Py[A-Z_]\w*|cfunction_\w+|method_vectorcall\w*|slot_tp_\w+|vectorcall_\w+|type_call|object_vacall"
    r"|builtin_\w+|pymain_\w+|pyrun_\w+|run_mod|run_eval_code_obj|take_gil|drop_gil|eval_frame_handle_pending"
    r"|__libc_start\w*|_start|clone3?|start_thread|thread_run|pythread_wrapper"
)

MEETINGS = frozenset(
    {
        "all_reduce",
        "allreduce",
        "all_gather",
        "all_gather_into_tensor",
        "all_gather_object",
        "all_gather_coalesced",
        "reduce_scatter",
        "reduce_scatter_tensor",
        "broadcast",
        "broadcast_object_list",
        "scatter_object_list",
        "gather_object",
        "barrier",
        "monitored_barrier",
        "all_to_all",
        "all_to_all_single",
        "reduce",
        "gather",
        "scatter",
        "send",
        "recv",
        "isend",
        "irecv",
        "batch_isend_irecv",
        "synchronize",
        "backward",
        "run_backward",
        "_engine_run_backward",
        "block_until_ready",
        "sync_global_devices",
        "process_allgather",
        "init_process_group",
        "new_group",
    }
)
"""Functions that ranks wait for each other in. `backward` hides the collective that autograd waits in."""
_AMBIGUOUS = frozenset(
    {"send", "recv", "isend", "irecv", "reduce", "gather", "scatter", "broadcast", "synchronize", "backward"}
)
_FRAMEWORKS = re.compile(
    r"(torch|horovod|mpi4py|jax|jaxlib|flax|deepspeed|tensorflow|paddle|mindspore|cupy|apex|fairscale|megatron"
    r"|colossalai|accelerate|lightning|pytorch_lightning|lightning_fabric)[\w.]*/"
)
FOR_ALL = MEETINGS - {
    "send",
    "recv",
    "isend",
    "irecv",
    "batch_isend_irecv",
    "synchronize",
    "block_until_ready",
}
"""Of these, those that every rank of a group has to enter; a backward pass ends in one."""
COLLECTIVES = frozenset({"all_reduce", "allreduce", "all_gather", "reduce_scatter", "broadcast", "barrier"})
"""Of these, the names that mean nothing else in a program of the user's own either."""


def without_waiting(frames: Sequence[Frame]) -> Sequence[Frame]:
    """The frames without those at the inner end that only wait; all of them if all do."""
    for depth, frame in enumerate(frames):
        if not frame.waits:
            return frames[depth:]
    return frames


def meeting(frames: Sequence[Frame]) -> int | None:
    """The frame in which a rank waits for its peers, None where it is in none.

    The outermost frame of that kind before the user's code: a library's call in libraries, or a collective of the
    user's own as long as all of it is in one file. What else the user calls from a `backward` is no meeting.
    """
    found, own = None, ""
    for depth, frame in enumerate(frames):
        if frame.library and not own:
            found = depth if frame.meets else found
            continue
        if found is not None and not own:
            return found
        own = own or frame.file
        if frame.file != own:
            return found
        found = depth if frame.function in COLLECTIVES else found
    return found


def place(frames: Sequence[Frame]) -> str:
    """The place of a stack in few words: ``all_reduce``, or ``data_loader.py:212 `queue.get```.

    The user's innermost line and what it calls, wrappers left out.
    """
    met = meeting(frames)
    if met is not None:
        return frames[met].function
    inner = without_waiting(frames)
    for depth, frame in enumerate(inner):
        if not frame.library:
            called = next((one for one in reversed(inner[:depth]) if not one.wraps), None)
            name = f"{PurePosixPath(called.file).stem}.{called.function}" if called else frame.function
            return f"{frame.base}:{frame.line} `{name}`"
    first = next((frame for frame in inner if not frame.wraps), inner[0] if inner else None)
    return f"{first.base}:{first.line} `{first.function}`" if first else "no Python frame"
