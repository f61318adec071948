"""Kinds of waits by stacks, and what frames add to a system call."""

from __future__ import annotations

import math

import pytest

from holdfast.hang.evidence.evidence import ThreadStack
from holdfast.hang.evidence.frames import Frame, place
from holdfast.hang.pipeline.frame_waits import StackWait, merged, read
from holdfast.hang.pipeline.waits import FUTEX, Wait, WaitKind

LIB = "/usr/lib/python3.11/"
SITE = LIB + "site-packages/"
USER = Frame("main", "/home/ada/train.py", 88)


def stack(*frames: str, user: Frame = USER) -> tuple[Frame, ...]:
    """Library frames as "path function", innermost first, called by the user's."""
    made = []
    for text in frames:
        path, _, function = text.partition(" ")
        root = LIB if "/" not in path or path.startswith(("concurrent/", "multiprocessing/", "http/")) else SITE
        made.append(Frame(function, root + path, 7))
    return (*made, user)


def main(*frames: str) -> tuple[ThreadStack, ...]:
    return (ThreadStack(1, frames=stack(*frames), main=True),)


CONDITION = ("threading.py wait", "threading.py wait")
CASES = {
    "pdb": (WaitKind.PERSON, ("cmd.py cmdloop", "pdb.py _cmdloop", "pdb.py interaction", "bdb.py trace_dispatch")),
    "debugpy": (WaitKind.PERSON, (*CONDITION, "debugpy/public_api.py wait_for_client")),
    "jupyter": (WaitKind.PERSON, ("selectors.py select", "ipykernel/kernelapp.py start")),
    "store": (WaitKind.PEER, ("torch/distributed/rendezvous.py _create_c10d_store",)),
    "barrier": (
        WaitKind.PEER,
        ("torch/distributed/distributed_c10d.py barrier", "torch/distributed/c10d_logger.py wrapper"),
    ),
    "backward": (WaitKind.PEER, ("torch/autograd/graph.py _engine_run_backward", "torch/_tensor.py backward")),
    "loader": (
        WaitKind.CHILD,
        ("selectors.py select", "multiprocessing/connection.py wait", "multiprocessing/queues.py get",
         "torch/utils/data/dataloader.py _try_get_data"),
    ),
    "pinned loader": (WaitKind.CHILD, (*CONDITION, "queue.py get", "torch/utils/data/dataloader.py _get_data")),
    "subprocess": (WaitKind.CHILD, ("subprocess.py _wait", "subprocess.py wait")),
    "process pool": (
        WaitKind.CHILD,
        (*CONDITION, "concurrent/futures/_base.py result", "concurrent/futures/process.py map"),
    ),
    "datasets' pool": (WaitKind.CHILD, (*CONDITION, "multiprocess/pool.py get", "multiprocess/pool.py map")),
    "pipe": (WaitKind.CHILD, ("multiprocessing/connection.py _recv", "multiprocessing/connection.py recv")),
    "boto3": (WaitKind.OUTSIDE, (*CONDITION, "s3transfer/futures.py result", "boto3/s3/inject.py upload_file")),
    "requests": (WaitKind.OUTSIDE, ("socket.py readinto", "http/client.py begin", "requests/api.py get")),
    "mlflow": (WaitKind.OUTSIDE, ("mlflow/utils/rest_utils.py http_request",)),
    "filelock": (WaitKind.FILE, ("filelock/_api.py acquire",)),
    "save": (WaitKind.FILE, ("torch/serialization.py save",)),
    "gRPC server": (
        WaitKind.REQUEST,
        (*CONDITION, "grpc/_common.py _wait_once", "grpc/_common.py wait", "grpc/_server.py wait_for_termination"),
    ),
    "gRPC call": (
        WaitKind.OUTSIDE,
        (*CONDITION, "grpc/_common.py _wait_once", "grpc/_common.py wait", "grpc/_channel.py result"),
    ),
    "web server": (WaitKind.REQUEST, ("selectors.py select", "socketserver.py serve_forever")),
    "parameter server": (WaitKind.REQUEST, ("tensorflow/python/training/server_lib.py join",)),
    "queue": (WaitKind.LOCK, (*CONDITION, "queue.py get")),
    "future": (WaitKind.LOCK, (*CONDITION, "concurrent/futures/_base.py result")),
    "import": (WaitKind.LOCK, ("<frozen importlib._bootstrap> acquire",)),
    "own line": (None, ()),
    "unknown library": (None, ("tensorflow/python/eager/execute.py quick_execute",)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_libraries_between_the_users_line_and_the_call_tell_the_kind(case: str) -> None:
    kind, frames = CASES[case]
    if case == "import":
        found = read(
            [ThreadStack(1, frames=(Frame("acquire", "<frozen importlib._bootstrap>", 3), USER), main=True)], 1.0
        )
    else:
        found = read(main(*frames), 1.0)
    assert found.kind is kind
    assert found.own is (case == "own line")


def test_a_debugger_that_runs_the_program_is_no_person() -> None:
    running = (*stack("queue.py get"), Frame("run", LIB + "bdb.py", 5), Frame("_run", LIB + "pdb.py", 5))
    assert read([ThreadStack(1, frames=running, main=True)], 1.0).kind is WaitKind.LOCK


def test_a_collective_of_the_users_own_is_a_peers() -> None:
    own = Frame("all_reduce", "/home/ada/ring.py", 5)
    found = read([ThreadStack(1, frames=stack("socket.py recv", user=own), main=True)], 1.0)
    assert (found.kind, found.place) == (WaitKind.PEER, "all_reduce")


ASK, RUN = Frame("ask", "/home/ada/train.py", 9), Frame("run", LIB + "threading.py", 1)
POOL = ("concurrent/futures/thread.py run", "concurrent/futures/thread.py _worker", "threading.py run")


@pytest.mark.parametrize(
    ("other", "kind"),
    [
        (stack("socket.py readinto", "http/client.py begin", user=ASK), WaitKind.OUTSIDE),
        (stack("s3transfer/tasks.py _main", *POOL)[:-1], WaitKind.OUTSIDE),
        (stack("subprocess.py wait", user=ASK), WaitKind.CHILD),
        (stack("http/client.py begin", "wandb/sdk/internal.py loop", user=RUN), WaitKind.LOCK),
        (stack("grpc/_channel.py channel_spin", user=RUN), WaitKind.LOCK),
        (stack("queue.py get", user=ASK), WaitKind.LOCK),
    ],
)  # fmt: skip
def test_a_main_thread_that_waits_for_another_waits_for_what_that_waits_for(
    other: tuple[Frame, ...], kind: WaitKind
) -> None:
    threads = (*main(*CONDITION, "threading.py join"), ThreadStack(2, frames=other))
    assert read(threads, 1.0).kind is kind


SLEEPS = ThreadStack(2, frames=stack(user=ASK))


@pytest.mark.parametrize(
    ("frames", "kind"),
    [
        ((*CONDITION, "threading.py join"), WaitKind.UNKNOWN),
        ((*CONDITION, "concurrent/futures/_base.py result"), WaitKind.UNKNOWN),
        (("selectors.py select", "asyncio/base_events.py run_forever"), WaitKind.UNKNOWN),
        ((*CONDITION, "queue.py get"), WaitKind.LOCK),
    ],
)
def test_a_wait_for_a_thread_whose_own_wait_does_not_show_is_no_lock(
    frames: tuple[str, ...], kind: WaitKind
) -> None:
    assert read((*main(*frames), SLEEPS), 1.0).kind is kind
    assert read(main(*frames), 1.0).kind is (None if "asyncio" in frames[-1] else WaitKind.LOCK)


@pytest.mark.parametrize(
    ("other", "unclear"),
    [
        (stack(user=ASK), True),
        (stack("subprocess.py wait", user=ASK), True),
        (stack("concurrent/futures/thread.py run", "threading.py run")[:-1], True),
        (stack("multiprocessing/connection.py wait", "concurrent/futures/process.py run")[:-1], True),
        (stack("asyncio/unix_events.py _do_waitpid", "threading.py run")[:-1], True),
        (stack(*CONDITION, user=ASK), True),
        (stack(*CONDITION, "threading.py run", "threading.py _bootstrap_inner")[:-1], True),
        (stack(*CONDITION, "tqdm/_monitor.py run", "threading.py _bootstrap_inner")[:-1], False),
        (stack("concurrent/futures/thread.py _worker", "threading.py run")[:-1], False),
    ],
)  # fmt: skip
def test_threads_of_the_training_whose_frames_do_not_tell_are_left_to_their_calls(
    other: tuple[Frame, ...], unclear: bool
) -> None:
    threads = (*main(*CONDITION, "queue.py get"), ThreadStack(2, frames=other))
    assert read(threads, 1.0).unclear == ((2,) if unclear else ())


SERVING = stack("selectors.py select", "socketserver.py serve_forever", "threading.py run")[:-1]


@pytest.mark.parametrize(
    ("frames", "kind"),
    [
        (CONDITION, WaitKind.REQUEST),
        (("threading.py _wait_for_tstate_lock", "threading.py join"), WaitKind.REQUEST),
        (("threading.py wait", "queue.py get"), WaitKind.LOCK),
        (("threading.py wait",), WaitKind.LOCK),
    ],
)  # fmt: skip
def test_a_main_thread_that_waits_for_the_end_beside_a_serving_thread_is_a_servers(
    frames: tuple[str, ...], kind: WaitKind
) -> None:
    assert read((*main(*frames), ThreadStack(2, frames=SERVING)), 1.0).kind is kind


@pytest.mark.parametrize(
    ("until_s", "kind"), [(math.inf, WaitKind.REQUEST), (86400.0, WaitKind.REQUEST), (60.0, WaitKind.SLEEP)]
)
def test_a_main_thread_that_sleeps_for_long_beside_a_serving_thread_is_a_servers(
    until_s: float, kind: WaitKind
) -> None:
    found = merged(Wait(WaitKind.SLEEP, since_s=1.0, until_s=until_s), StackWait(5.0, None, own=True, serves=True))
    assert found is not None
    assert found.kind is kind


@pytest.mark.parametrize(
    ("call", "stack_wait", "expected"),
    [
        (Wait(WaitKind.UNKNOWN, FUTEX), StackWait(5.0, WaitKind.LOCK, place="p"), (WaitKind.LOCK, "")),
        (Wait(WaitKind.UNKNOWN, FUTEX), StackWait(5.0, None, place="p", own=True), (WaitKind.LOCK, "")),
        (Wait(WaitKind.UNKNOWN, FUTEX), StackWait(5.0, None, place="p"), (WaitKind.UNKNOWN, FUTEX)),
        (Wait(WaitKind.UNKNOWN, "/dev/x"), StackWait(5.0, None, place="p", own=True), (WaitKind.UNKNOWN, "/dev/x")),
        (Wait(WaitKind.SLEEP), StackWait(5.0, WaitKind.FILE, "filelock", "p"), (WaitKind.FILE, "filelock")),
        (Wait(WaitKind.SLEEP), StackWait(5.0, None, place="p", own=True), (WaitKind.SLEEP, "")),
        (Wait(WaitKind.OUTSIDE, "h:1"), StackWait(5.0, WaitKind.LOCK, place="p"), (WaitKind.OUTSIDE, "h:1")),
        (Wait(WaitKind.OUTSIDE, "h:1"), StackWait(5.0, WaitKind.PEER, "barrier", "p"), (WaitKind.PEER, "barrier")),
        (Wait(WaitKind.PEER, "h:1"), StackWait(5.0, WaitKind.PEER, "barrier", "p"), (WaitKind.PEER, "h:1")),
        (Wait(WaitKind.LOCK), StackWait(5.0, WaitKind.PERSON, "pdb", "p"), (WaitKind.PERSON, "pdb")),
        (Wait(WaitKind.MEETING, "h:1"), StackWait(5.0, WaitKind.REQUEST, "x", "p"), (WaitKind.REQUEST, "h:1")),
        (Wait(WaitKind.MEETING, "h:1"), StackWait(5.0, WaitKind.OUTSIDE, "socket", "p"), (WaitKind.MEETING, "h:1")),
        (None, StackWait(5.0, None, place="p"), (WaitKind.RUNNING, "")),
        (None, StackWait(5.0, WaitKind.PEER, "barrier", "p"), (WaitKind.PEER, "barrier")),
    ],
)  # fmt: skip
def test_frames_correct_what_a_call_only_suggests(
    call: Wait | None, stack_wait: StackWait, expected: tuple[WaitKind, str]
) -> None:
    found = merged(call, stack_wait)
    assert found is not None
    assert (found.kind, found.what, found.place) == (*expected, "p")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (None, (WaitKind.PEER, True)),
        (WaitKind.FILE, (WaitKind.PEER, True)),
        (WaitKind.LOCK, (WaitKind.PEER, True)),
        (WaitKind.OUTSIDE, (WaitKind.OUTSIDE, False)),
        (WaitKind.CHILD, (WaitKind.CHILD, False)),
    ],
)
def test_a_lock_that_a_peer_holds_is_no_reason_where_the_frames_show_another(
    kind: WaitKind | None, expected: tuple[WaitKind, bool]
) -> None:
    """It sleeps, and has a file open that a peer has locked: it may do so for another reason."""
    polls = Wait(WaitKind.PEER, "/x.db, locked by rank 0", since_s=1.0, polled=True)
    found = merged(polls, StackWait(5.0, kind, "library", "p", own=kind is None))
    assert found is not None
    assert (found.kind, found.polled) == expected


def test_frames_read_before_the_wait_began_say_nothing_of_it() -> None:
    call = Wait(WaitKind.UNKNOWN, FUTEX, since_s=6.0)
    assert merged(call, StackWait(5.0, WaitKind.LOCK, place="p")) is call
    assert merged(call, None) is call
    assert merged(None, None) is None


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        (stack("torch/distributed/c10d_logger.py wrapper"), "train.py:88 `main`"),
        (stack("torch/x.py load", "torch/distributed/c10d_logger.py wrapper"), "train.py:88 `x.load`"),
        (stack(*CASES["pdb"][1]), "train.py:88 `main`"),
        (stack("torch/nn/linear.py forward", "torch/nn/modules/module.py _call_impl"), "train.py:88 `linear.forward`"),
        (stack("torch/distributed/rendezvous.py _create", "torch/distributed/distributed_c10d.py init_process_group"),
         "init_process_group"),
    ],
)  # fmt: skip
def test_wrappers_are_no_place(frames: tuple[Frame, ...], expected: str) -> None:
    assert place(frames) == expected


def test_the_interpreters_own_frames_are_known() -> None:
    assert Frame("_PyEval_EvalFrameDefault", "Python/ceval.c", 1).interpreter
    assert Frame("PyObject_Call", "/usr/bin/python3.11", 0).interpreter
    assert not Frame("clone", "/home/ada/x.py", 1).interpreter
    assert not Frame("at::native::mm", "libtorch_cpu.so", 0).interpreter


@pytest.mark.parametrize(("until_s", "limited"), [(6.0, False), (121.0, True), (9000.0, False)])
def test_a_wait_with_a_time_limit_is_told_from_a_poll_and_from_one_without_an_end(
    until_s: float, limited: bool
) -> None:
    call = Wait(WaitKind.SLEEP, since_s=1.0, until_s=until_s)
    found = merged(call, StackWait(5.0, WaitKind.CHILD, "multiprocessing", "p"))
    assert found is not None
    assert (found.kind is WaitKind.SLEEP) is limited
    assert ("with a time limit" in found.what, found.until_s is None) == (limited, limited)
