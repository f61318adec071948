"""Evidence as people read it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.hang.evidence.evidence import (
    Dump,
    Evidence,
    GpuEvidence,
    Look,
    ProcessEvidence,
    RankEvidence,
    ThreadStack,
    Vector,
    dump,
)
from holdfast.hang.evidence.flight_recorder import FlightRecord, Operation, ProcessGroup
from holdfast.hang.evidence.frames import Frame
from holdfast.hang.evidence.render_evidence import render

TRAIN = (Frame("train", "/home/ada/train.py", 30), Frame("<module>", "/home/ada/train.py", 99))
GET = (Frame("wait", "/usr/lib/python3.11/threading.py", 327), Frame("get", "/usr/lib/python3.11/queue.py", 171))
LOADING = (*GET, Frame("next_batch", "/home/ada/data_loader.py", 212), *TRAIN)
REDUCE = (Frame("all_reduce", "/v/lib/python3.11/site-packages/torch/distributed/c10d.py", 2800), *TRAIN)
LOADER = (Frame("_fetch", "/home/ada/data_loader.py", 80),)
SLEEPS = Vector("S", "futex_wait_queue", "futex", main_switches=3, kernel_stack=("futex_wait_queue", "do_futex"))


def looks(*stacks: ThreadStack, vector: Vector = SLEEPS) -> tuple[Look, Look]:
    return (Look(0.0, vector, dump("py-spy", stacks)), Look(5.0, vector, dump("py-spy", stacks)))


def main(frames: tuple[Frame, ...]) -> ThreadStack:
    return ThreadStack(1, "MainThread", frames, main=True)


def peer(number: int) -> RankEvidence:
    return RankEvidence(number, ProcessEvidence(50 + number, "python train.py", looks(main(REDUCE))))


ODD = RankEvidence(
    5,
    ProcessEvidence(55, "python train.py", looks(main(LOADING), ThreadStack(2, "loader", LOADER, active=True))),
    suspect=True,
    stdout=("step=1 loss=2.0", "step=2 loss=1.9"),
    notes=("flight recorder: nobody reads its pipe",),
)
GPU = GpuEvidence("GPU-a", 0, "H100", 80 << 30, 3 << 30, (55,))
PARTS = [
    Evidence("j", "workerpool0-1", "host-1", 3, 0.0, 6.1, 5.0, (peer(4), ODD, peer(6)), (GPU,), "all is\nwell"),
    Evidence("j", "workerpool0-0", "host-0", 3, 0.0, 5.9, 5.0, tuple(peer(number) for number in range(4))),
]


def test_the_odd_one_comes_first_then_its_peers_then_each_worker() -> None:
    assert (
        render(PARTS, 80)
        == """\
workerpool0-1 rank 5 is in data_loader.py:212 `queue.get`; 6 ranks wait in
  all_reduce.

workerpool0-1 rank 5 (the same in both looks):
  wait        threading.py:327
  get         queue.py:171
  next_batch  /home/ada/data_loader.py:212
  train       /home/ada/train.py:30
  <module>    /home/ada/train.py:99

workerpool0-0 ranks 0-3 and workerpool0-1 ranks 4, 6 (the same in both looks):
  all_reduce  torch/distributed/c10d.py:2800
  train       /home/ada/train.py:30
  <module>    /home/ada/train.py:99

workerpool0-0 on host-0, generation 3, 1970-01-01 00:00:00 UTC, taken in 5.9 s
  rank 0: pid 50, sleeps in futex_wait_queue (futex), 0.00 cores, 0 switches
  rank 1: pid 51, sleeps in futex_wait_queue (futex), 0.00 cores, 0 switches
  rank 2: pid 52, sleeps in futex_wait_queue (futex), 0.00 cores, 0 switches
  rank 3: pid 53, sleeps in futex_wait_queue (futex), 0.00 cores, 0 switches

workerpool0-1 on host-1, generation 3, 1970-01-01 00:00:00 UTC, taken in 6.1 s
  rank 5, suspect: pid 55, sleeps in futex_wait_queue (futex), 0.00 cores, 0
    switches, `python train.py`
      flight recorder: nobody reads its pipe
      thread loader (runs):
        _fetch  /home/ada/data_loader.py:80
      in the kernel: futex_wait_queue < do_futex
      last lines of stdout:
        | step=1 loss=2.0
        | step=2 loss=1.9
  rank 4: pid 54, sleeps in futex_wait_queue (futex), 0.00 cores, 0 switches
  rank 6: pid 56, sleeps in futex_wait_queue (futex), 0.00 cores, 0 switches
  GPU 0 GPU-a, 3.0 of 80 GiB in use, pids 55
  NCCL says:
    | all is
    | well
"""
    )


def test_what_each_rank_waits_in_by_its_flight_recorder_is_said_of_it() -> None:
    def flight(number: int, open_at: int | None) -> FlightRecord:
        operation = Operation(number, "all_reduce", "started", 60.0)
        return FlightRecord("2.4", (ProcessGroup("0", "", ((4, 5),), number, open_at, (operation,)),), quiet_s=60.0)

    ranks = (replace(peer(4), flight=flight(9, 9)), replace(ODD, flight=flight(8, None), recorder="/tmp/dump_5"))
    text = render([replace(PARTS[0], ranks=ranks)], 200)
    assert (
        "rank 5 has not joined all_reduce #9 of process group 0, which rank 4 is in for 60 s"
        in text.splitlines()[0]
    )
    assert (
        "      flight recorder: /tmp/dump_5\n      collectives: last all_reduce #8 of process group 0, comp" in text
    )
    assert "      collectives: in all_reduce #9 of process group 0\n" in text
    broken = replace(peer(4), flight=FlightRecord(problem="its dump is larger than 32 MiB"))
    assert "collectives: its dump is larger than 32 MiB" in render([replace(PARTS[0], ranks=(broken,))])


def test_ranks_without_a_stack_say_why() -> None:
    ended = Look(0.0, Vector(problem="the process has ended"), Dump(problem="the process has ended"))
    static = Look(0.0, Vector("S"), Dump("py-spy", problem="not a Python program"))
    ranks = tuple(RankEvidence(n, ProcessEvidence(9, "", (item,))) for n, item in enumerate((ended, static)))
    text = render([replace(PARTS[0], ranks=(*ranks, RankEvidence(2, ProcessEvidence(0))))])
    assert text.startswith("No rank's stack could be read.\n\nNo stack:\n")
    assert "  workerpool0-1 rank 0: the process has ended\n" in text
    assert "  workerpool0-1 rank 1: not a Python program\n" in text
    assert "  workerpool0-1 rank 2: not looked at\n" in text


def test_a_stopped_rank_is_called_so() -> None:
    stopped = RankEvidence(0, ProcessEvidence(9, "", looks(main(TRAIN), vector=Vector("T"))))
    assert "workerpool0-1 rank 0 (stopped, the same in both looks):" in render(
        [replace(PARTS[0], ranks=(stopped,))]
    )


def test_recursion_is_folded_and_deep_stacks_are_cut_in_the_middle() -> None:
    same = tuple(Frame("walk", "/t.py", 8) for _ in range(12))
    different = tuple(Frame(f"f{line}", "/t.py", line) for line in range(100))
    for frames, expected in ((same, "  walk  /t.py:8 × 12\n"), (different, "… 76 more frames\n")):
        found = RankEvidence(0, ProcessEvidence(9, "", looks(main(frames))))
        assert expected in render([replace(PARTS[0], ranks=(found,))])


def test_natural_order_of_workers() -> None:
    parts = [replace(PARTS[1], worker=f"workerpool0-{number}") for number in (10, 9)]
    text = render(parts)
    assert text.index("workerpool0-9 on") < text.index("workerpool0-10 on")


def test_no_evidence_at_all() -> None:
    assert render([]) == "No evidence was taken.\n"


@pytest.mark.parametrize("width", [80, 100, 120])
def test_lines_keep_to_the_width(width: int) -> None:
    long = "/home/ada/" + "deeply/" * 30 + "train.py"
    frames = (Frame("f" * 120, long, 3), *TRAIN)
    child = ProcessEvidence(8, "python " + "--flag " * 40, looks(main(frames)))
    odd = replace(ODD, children=(child,), children_cut=3, stderr=("e" * 400,))
    text = render([replace(PARTS[0], ranks=(odd,), notes=("n " * 100,))], width, full=True)
    assert max(len(line) for line in text.splitlines()) <= width
