"""Reads from Python frames what a rank waits for, where its system call alone doesn't say.

Theory of operation. A main thread in a futex may wait for a lock, a collective, or a thread that talks to a service;
one that sleeps may ask for a lock again and again. The libraries between the user's innermost line and the call tell
which. They are read from the inside out: a queue or a condition only says LOCK until something outside of it says
more (a data loader's queue is filled by its children). Where the main thread waits for another thread of its own, the
threads that run the user's code are read in the same way, and the wait that may last longest by right decides. A main
thread that waits for an event or a thread's end, or sleeps, while a thread serves requests is a server's; one that
waits for a lock or a queue is not, since a training with a page of metrics serves, too.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence

from holdfast._base.dataclass import dataclass, replace
from holdfast.hang.evidence.evidence import ThreadStack
from holdfast.hang.evidence.frames import Frame, meeting, place, without_waiting
from holdfast.hang.pipeline.waits import A_SIGNAL, A_THREAD, FUTEX, LONG_SLEEP_S, NAP_S, TIME_LIMIT, Wait, WaitKind

# (Kind, the library's path, its functions): the first that fits a frame. No functions: all of them.
_TABLE: tuple[tuple[WaitKind, str, str], ...] = (
    (WaitKind.PERSON, r"pdb\.py|ipdb/|pdbpp|IPython/terminal/|code\.py|getpass\.py|prompt_toolkit/",
     r"interaction|_?cmdloop|interact|raw_input|_raw_input|unix_getpass|mainloop|prompt|run"),
    (WaitKind.PERSON, r"debugpy/|pydevd|_pydevd_bundle/|remote_pdb|rpdb|web_pdb|pudb/|click/termui\.py",
     r"wait_for_client|_?do_wait_suspend|wait_for_.*|__init__|set_trace|interaction|prompt|prompt_func|confirm"),
    (WaitKind.PERSON, r"ipykernel/|jupyter_client/|notebook/|jupyter_server/", r""),
    (WaitKind.FILE, r"torch/distributed/checkpoint/(filesystem|_fsspec)", r""),
    (WaitKind.PEER, r"torch/distributed/rendezvous\.py|torch/distributed/elastic/|torch/distributed/rpc/", r""),
    (WaitKind.PEER, r"torch/distributed/distributed_c10d\.py|torch/distributed/_functional_collectives", r""),
    (WaitKind.PEER, r"torch/nn/parallel/distributed\.py|torch/distributed/(fsdp|tensor|algorithms)/", r""),
    (WaitKind.PEER, r"torch/(autograd|cuda)/", r"backward|_?engine_run_backward|run_backward|synchronize"),
    (WaitKind.PEER, r"horovod/|mpi4py/|deepspeed/comm/|jax/_src/distributed|jax/experimental/multihost_utils", r""),
    (WaitKind.CHILD, r"subprocess\.py|multiprocess(ing)?/|concurrent/futures/process\.py|asyncio/subprocess\.py", r""),
    (WaitKind.CHILD, r"torch/utils/data/dataloader\.py", r"_try_get_data|_get_data|_shutdown_workers|_reset"),
    (WaitKind.CHILD, r"torch/multiprocessing/|torch/_inductor/|joblib/|loky/|pexpect/", r""),
    (WaitKind.FILE, r"filelock/|portalocker/|fasteners/|sqlite3/|diskcache/", r""),
    (WaitKind.FILE, r"torch/serialization\.py|safetensors/|h5py/|shutil\.py|tarfile\.py|zipfile\.py", r""),
    (WaitKind.REQUEST, r"socketserver\.py|grpc/_server\.py|grpc/aio/_server\.py|werkzeug/|wsgiref/",
     r"serve_forever|_?serve|wait_for_termination"),
    (WaitKind.REQUEST, r"uvicorn/|hypercorn/|gunicorn/|waitress/|cheroot/|aiohttp/web\.py|tornado/|twisted/",
     r"run|serve|_?main_loop|run_app|start|mainLoop"),
    (WaitKind.REQUEST, r"tensorflow/python/training/server_lib\.py", r"join"),
    (WaitKind.OUTSIDE, r"http/|urllib/|urllib3/|requests/|httpx/|httpcore/|aiohttp/|ssl\.py|socket\.py", r""),
    (WaitKind.LOCK, r"grpc/_common\.py", r"_?wait\w*"),
    (WaitKind.OUTSIDE, r"grpc/|websockets?/|paramiko/|ftplib\.py|smtplib\.py|redis/|pymongo/|psycopg2?/|kafka/", r""),
    (WaitKind.OUTSIDE, r"boto3/|botocore/|s3transfer/|s3fs/|gcsfs/|adlfs/|fsspec/|google/|azure/|smart_open/", r""),
    (WaitKind.OUTSIDE, r"mlflow/|wandb/|neptune/|comet_ml/|clearml/|huggingface_hub/|pyarrow/|tensorstore/", r""),
    (WaitKind.LOCK, r"threading\.py|queue\.py|concurrent/futures/|logging/|<frozen importlib", r""),
)  # fmt: skip
_RULES = tuple((kind, re.compile(path), re.compile(names) if names else None) for kind, path, names in _TABLE)
_GENTLEST_FIRST = (WaitKind.PERSON, WaitKind.OUTSIDE, WaitKind.FILE, WaitKind.CHILD, WaitKind.PEER)
"""Of several threads' waits the one that may last longest by right."""
# Threads that only accompany a training, whatever they wait for.
_COMPANIONS = re.compile(
    r"wandb/|tensorboard|tqdm/|prometheus_client/|opentelemetry/|sentry_sdk/|ipykernel/|grpc/|clearml/|neptune/"
    r"|multiprocess(ing)?/(queues|resource_sharer|managers)|torch/utils/data/_utils/pin_memory"
)
_FOR_THREADS = frozenset(
    {
        ("threading.py", "join"),
        *(("concurrent", name) for name in ("result", "wait", "as_completed", "result_iterator")),
    }
)
# Threads that run a pool's tasks, or wait for the processes of a pool or of an event loop.
_POOLS = re.compile(r"concurrent/futures/(thread|process)\.py|asyncio/unix_events\.py")
_LOCKS = re.compile(r"filelock/|portalocker/|fasteners/")
_IN_A_THREAD = "served by a thread"
_AT_EXIT = frozenset({"_shutdown", "_python_exit", "_run_exitfuncs", "_exit_function"})


@dataclass(frozen=True, slots=True)
class StackWait:
    """A rank's wait by its frames, read at ``at_s`` of the host's monotonic clock. ``kind`` None: they don't tell."""

    at_s: float
    kind: WaitKind | None
    what: str = ""
    place: str = ""
    # The innermost frame is the user's: what it waits in has no Python code, such as ``lock.acquire()``.
    own: bool = False
    # A thread serves requests.
    serves: bool = False
    # The main thread asks for a file lock, by a library that opens the file for each try alone.
    asks: bool = False
    # Threads of the training whose frames don't tell how long they may take: only their system calls do.
    unclear: tuple[int, ...] = ()


def read(threads: Sequence[ThreadStack], at_s: float) -> StackWait:
    """The wait that one process's threads show."""
    main = next((thread for thread in threads if thread.main and thread.frames), None)
    if main is None:
        return StackWait(at_s, None)
    kind, what = _kind(main.frames)
    own = not without_waiting(main.frames)[0].library
    unclear: list[int] = []
    if kind in (None, WaitKind.LOCK):
        working = [thread for thread in threads if not thread.main and _works(thread.frames)]
        others = [_kind(thread.frames) for thread in working]
        untold = (None, WaitKind.CHILD, WaitKind.LOCK)
        unclear = [thread.tid for thread, one in zip(working, others, strict=True) if one[0] in untold]
        found = [one for one in others if one[0] in _GENTLEST_FIRST]
        handed_over = any(_hands_over(frame) for frame in main.frames)
        if found and (kind is WaitKind.LOCK or own or handed_over):
            kind, what = min(found, key=lambda one: _GENTLEST_FIRST.index(one[0] or WaitKind.PEER))
            what = f"{what}, in {A_THREAD}" if what else f"in {A_THREAD}"
        elif handed_over and any(one[0] is None for one in others):
            # The thread that it waits for may compute, sleep or transfer something in C code.
            kind, what = WaitKind.UNKNOWN, A_THREAD
    serves = any(_kind(thread.frames)[0] is WaitKind.REQUEST for thread in threads if not thread.main)
    if kind is WaitKind.LOCK and serves and _waits_for_the_end(main.frames):
        kind, what = WaitKind.REQUEST, _IN_A_THREAD
    if not what and any(frame.function in _AT_EXIT for frame in main.frames):
        what = "a thread that keeps it from ending"
    asks = kind is WaitKind.FILE and any(_LOCKS.match(frame.module) for frame in main.frames)
    return StackWait(at_s, kind, what, place(main.frames), own, serves, asks, tuple(unclear))


def kind_of(frames: Sequence[Frame]) -> WaitKind | None:
    """The kind of wait that the frames of a main thread show; None where they don't."""
    return _kind(frames)[0]


def _kind(frames: Sequence[Frame]) -> tuple[WaitKind | None, str]:
    """The kind of wait that a stack shows, and the library or the collective that shows it."""
    # A collective may be the user's own function; what its frames do inside is their way to wait.
    met = meeting(frames)
    found: tuple[WaitKind | None, str] = (None, "")
    for frame in frames:
        if not frame.library or _is_task(frame):
            break
        kind = _kind_of(frame)
        if kind is not None and (found[0] is None or found[0] is WaitKind.LOCK):
            found = kind, frame.module.partition("/")[0].removesuffix(".py")
    if met is not None and found[0] is not WaitKind.PERSON:
        return WaitKind.PEER, frames[met].function
    return found if found[0] is not WaitKind.LOCK else (WaitKind.LOCK, "")


def _kind_of(frame: Frame) -> WaitKind | None:
    for kind, path, names in _RULES:
        if path.match(frame.module) and (names is None or names.fullmatch(frame.function)):
            return kind
    return None


def _hands_over(frame: Frame) -> bool:
    """Whether a main thread in this frame waits for a thread to finish what it does, or runs an event loop."""
    if frame.module.startswith(("asyncio/", "uvloop/")):
        return True
    return frame.library and (frame.module.partition("/")[0], frame.function) in _FOR_THREADS


def _waits_for_the_end(frames: Iterable[Frame]) -> bool:
    """Whether a stack waits for an event or for the end of a thread, as the main thread of a server does."""
    library = list(itertools.takewhile(lambda frame: frame.library, frames))
    names = [frame.function for frame in library if frame.module == "threading.py"]
    return len(names) == len(library) and (names.count("wait") > 1 or "join" in names)


def _works(frames: Iterable[Frame]) -> bool:
    """Whether a thread does something for the training: the user's code, a pool's or a timer's, or a process's wait."""
    frames = list(frames)
    if any(_COMPANIONS.match(frame.module) for frame in frames):
        return False
    return _is_timer(frames) or any(not frame.library or _is_task(frame) for frame in frames)


def _is_timer(frames: Sequence[Frame]) -> bool:
    """Whether a thread is a ``threading.Timer`` whose time has not come."""
    names = [frame.function for frame in frames if frame.module == "threading.py"]
    return ("wait", "run") in itertools.pairwise(names)


def _is_task(frame: Frame) -> bool:
    return frame.function in ("run", "_do_waitpid") and bool(_POOLS.match(frame.module))


BY_CALL = frozenset({WaitKind.LOCK, WaitKind.SLEEP, WaitKind.UNKNOWN, WaitKind.RUNNING})
"""Kinds that a system call suggests and frames may correct."""


_INSIDE = (WaitKind.CHILD, WaitKind.LOCK, WaitKind.UNKNOWN, None)


def merged(call: Wait | None, stack: StackWait | None) -> Wait | None:
    """The wait by the system call, corrected and placed by the frames; by the frames alone it has no ``since_s``.

    Frames that were read before this wait began say nothing of it.
    """
    if stack is None or (call is not None and call.since_s is not None and stack.at_s < call.since_s):
        return call
    if call is None:
        return Wait(stack.kind or WaitKind.RUNNING, stack.what, None, stack.place)
    placed = replace(call, place=stack.place)
    if stack.kind in (WaitKind.PERSON, WaitKind.PEER) and stack.kind is not call.kind:
        return replace(placed, kind=stack.kind, what=stack.what, polled=False)
    if call.polled and stack.kind in (WaitKind.CHILD, WaitKind.OUTSIDE, WaitKind.REQUEST):
        # It has a file open that a peer has locked, and sleeps for another reason.
        return replace(placed, kind=stack.kind, what=stack.what, polled=False)
    if call.kind is WaitKind.MEETING and stack.kind is WaitKind.REQUEST:
        return replace(placed, kind=stack.kind)
    slept = call.kind is WaitKind.SLEEP and call.what and call.what != A_SIGNAL
    if call.kind not in BY_CALL or (slept and stack.kind in _INSIDE):
        # A child or a thread that sleeps is what a wait for it shows, too.
        return placed
    if stack.kind in (WaitKind.CHILD, WaitKind.LOCK) and NAP_S < _length_s(call) <= LONG_SLEEP_S:
        return replace(placed, what=f"{stack.kind.value}{TIME_LIMIT}", until_s=None)
    if stack.serves and stack.kind is None and _length_s(call) > LONG_SLEEP_S:
        return replace(placed, kind=WaitKind.REQUEST, what=_IN_A_THREAD, until_s=None)
    if stack.kind is not None and stack.kind is not call.kind:
        return replace(placed, kind=stack.kind, what=stack.what)
    if stack.kind is None and stack.own and (call.kind, call.what) == (WaitKind.UNKNOWN, FUTEX):
        # The user's own line waits in a lock, or in C code that has threads of its own.
        return replace(placed, kind=WaitKind.LOCK, what="")
    return placed


def _length_s(call: Wait) -> float:
    """The length of a sleep, or of the first one of a loop; 0 where it isn't known."""
    if call.kind is not WaitKind.SLEEP or call.until_s is None or call.since_s is None:
        return 0.0
    return call.until_s - call.since_s
