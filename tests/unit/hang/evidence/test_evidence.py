"""What evidence says, how it is kept within bounds, and how it travels."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from holdfast._sdk import json_view
from holdfast._session.hang_wire import WorkerEvidence
from holdfast.hang.evidence.evidence import (
    MAX_FRAMES,
    MAX_THREADS,
    OUTER_FRAMES,
    Dump,
    Evidence,
    GpuEvidence,
    Look,
    Movement,
    ProcessEvidence,
    RankEvidence,
    ThreadStack,
    Vector,
    clipped,
    diagnosis,
    dump,
)
from holdfast.hang.evidence.evidence_json import MAX_BYTES, decode, encode
from holdfast.hang.evidence.flight_recorder import FlightRecord
from holdfast.hang.evidence.frames import Frame

TRAIN = Frame("train", "/home/ada/train.py", 30)
GET = (Frame("wait", "/usr/lib/python3.11/threading.py", 327), Frame("get", "/usr/lib/python3.11/queue.py", 171))
LOADING = (*GET, Frame("next_batch", "/home/ada/data_loader.py", 212), TRAIN)
REDUCE = (Frame("all_reduce", "/x/site-packages/torch/distributed/distributed_c10d.py", 2800), TRAIN)
BACKWARD = (Frame("matmul", "/home/ada/model.py", 7), TRAIN)


def look(at_s: float, frames: tuple[Frame, ...], *, native: tuple[Frame, ...] = (), cpu_s: float = 0.0) -> Look:
    python = dump("py-spy", [ThreadStack(1, "MainThread", frames, main=True)])
    c_frames = dump("pystack", [ThreadStack(1, "", native, main=True)]) if native else None
    return Look(at_s, Vector("S", cpu_s=cpu_s, main_switches=int(at_s)), python, c_frames)


def rank(number: int, *looks: Look, **changes: Any) -> RankEvidence:
    return replace(RankEvidence(number, ProcessEvidence(100 + number, "python train.py", looks)), **changes)


def part(*ranks: RankEvidence, worker: str = "workerpool0-0") -> Evidence:
    return Evidence("job-1", worker, "host-0", 3, 1_700_000_000.0, ranks=ranks)


def test_the_odd_one_out_is_named_with_its_place_and_its_peers_with_what_they_wait_in() -> None:
    peers = [rank(number, look(0, REDUCE), look(5, REDUCE)) for number in (0, 1, 2)]
    odd = rank(3, look(0, LOADING), look(5, LOADING))
    found = diagnosis([part(*peers), part(odd, worker="workerpool0-1")], at_s=9.0)
    assert found.words == "workerpool0-1 rank 3 is in data_loader.py:212 `queue.get`; 3 ranks wait in all_reduce"
    assert (found.at_s, found.same, found.changed) == (9.0, True, frozenset())


def test_ranks_in_different_lines_of_the_same_collective_wait_together() -> None:
    own = "/home/ada/collectives.py"
    root = (Frame("_receive", own, 9), Frame("all_reduce", own, 20), TRAIN)
    others = (Frame("_receive", own, 9), Frame("broadcast", own, 30), Frame("all_reduce", own, 25), TRAIN)
    found = diagnosis([part(rank(0, look(0, root)), rank(1, look(0, others)), rank(2, look(0, others)))], 0.0)
    assert found.words == "3 ranks wait in all_reduce"


def test_what_the_users_own_backward_calls_is_no_meeting() -> None:
    stuck = (Frame("lookup", "/home/ada/cache.py", 4), Frame("backward", "/home/ada/model.py", 8), TRAIN)
    assert diagnosis([part(rank(0, look(0, stuck)))], 0.0).words.endswith("is in cache.py:4 `lookup`")


@pytest.mark.parametrize(
    ("before", "after", "movement"),
    [
        (look(0, LOADING), look(5, LOADING), Movement.SAME),
        (look(0, LOADING), look(5, LOADING[1:]), Movement.SAME),  # woke up in the poll loop
        (look(0, LOADING), look(5, BACKWARD), Movement.MOVING),
        (look(0, LOADING), look(5, ()), Movement.UNKNOWN),
        (look(0, LOADING, native=BACKWARD), look(5, LOADING, native=REDUCE), Movement.MOVING),
        (look(0, LOADING, native=BACKWARD), look(5, LOADING, native=BACKWARD), Movement.SAME),
    ],
)
def test_same_or_moving(before: Look, after: Look, movement: Movement) -> None:
    found = rank(0, before, after)
    assert found.process.movement is movement
    expected = {Movement.SAME: True, Movement.MOVING: False, Movement.UNKNOWN: None}[movement]
    assert diagnosis([part(found)], 0.0).same is expected


def test_equal_python_frames_of_a_rank_that_burns_cpu_prove_nothing_without_native_ones() -> None:
    burning = look(0, BACKWARD), look(5, BACKWARD, cpu_s=4.9)
    assert diagnosis([part(rank(0, *burning))], 0.0).same is None
    seen = [replace(item, native=item.python) for item in burning]
    assert diagnosis([part(rank(0, *seen))], 0.0).same is True
    assert rank(0, *burning).process.cores == pytest.approx(0.98)
    assert rank(0, *burning).process.switches == 5


def test_a_rank_on_the_cpu_in_one_line_of_python_neither_stands_still_nor_moves_for_certain() -> None:
    evaluates = Frame("_PyEval_EvalFrameDefault", "Python/ceval.c", 3), Frame("PyLong_Add", "Objects/long.c", 4)
    spins = [(evaluates[n], *LOADING[1:]) for n in (0, 1)]
    found = rank(0, look(0, LOADING, native=spins[0]), look(5, LOADING, native=spins[1], cpu_s=4.9))
    assert found.process.movement is Movement.UNKNOWN
    assert diagnosis([part(found)], 0.0).same is None
    still = rank(0, look(0, LOADING, native=spins[0]), look(5, LOADING, native=spins[1]))
    assert still.process.movement is Movement.SAME


def test_a_rank_that_ended_between_the_looks_keeps_its_first_stack() -> None:
    ended = Look(5, Vector(problem="the process has ended"), Dump(problem="the process has ended"))
    found = part(rank(0, look(0, LOADING), ended))
    assert diagnosis([found], 0.0).words.startswith("workerpool0-0 rank 0 is in data_loader.py")
    assert found.stacks(1)[0].problem == "the process has ended"
    assert diagnosis([part(rank(0))], 0.0).words == ""
    assert part(rank(0)).stacks(0)[0].problem == "not looked at"


# -- Bounds ------------------------------------------------------------------------------------------------------


def test_a_deep_stack_keeps_its_inner_end_and_a_little_of_its_outer() -> None:
    frames = tuple(Frame("f", "/f.py", line) for line in range(5000))
    (thread,) = dump("py-spy", [ThreadStack(1, frames=frames)]).threads
    assert len(thread.frames) == MAX_FRAMES
    assert thread.frames_cut == 5000 - MAX_FRAMES
    assert thread.frames[0].line == 0
    assert [frame.line for frame in thread.frames[-OUTER_FRAMES:]] == list(range(5000 - OUTER_FRAMES, 5000))


def test_of_many_threads_the_main_one_comes_first_and_busy_ones_next() -> None:
    threads = [ThreadStack(number) for number in range(200)]
    threads[150] = ThreadStack(150, main=True)
    threads[160] = ThreadStack(160, active=True)
    threads[170] = ThreadStack(170, holds_gil=True)
    found = dump("py-spy", threads)
    assert [thread.tid for thread in found.threads[:4]] == [150, 170, 160, 0]
    assert (len(found.threads), found.threads_cut) == (MAX_THREADS, 200 - MAX_THREADS)


def test_texts_are_one_printable_line_of_bounded_length() -> None:
    assert clipped("a\tb\x1b[31m\n" + "c" * 1000, 20) == "a       b?[31m cccc…"


# -- JSON --------------------------------------------------------------------------------------------------------


def full() -> Evidence:
    child = ProcessEvidence(7, "worker", (look(0, BACKWARD),))
    one = rank(
        0,
        look(0, LOADING, native=REDUCE),
        look(5.25, BACKWARD),
        suspect=True,
        children=(child,),
        children_cut=2,
        stdout=("step=1", "ü€😀"),
        stderr=("",),
        recorder="/tmp/nccl_trace_rank_0",
        notes=("late",),
    )
    gpus = (GpuEvidence("GPU-a", 1, "H100", 80 << 30, 5, (1, 2)), GpuEvidence("GPU-b", problem="gone"))
    return replace(part(one, rank(1)), took_s=6.5, interval_s=5.0, gpus=gpus, ras="OK\nall good", notes=("x",))


def test_evidence_survives_the_way_through_json() -> None:
    assert decode(encode(full())) == full()
    assert decode(encode(part())) == part()


def test_each_frame_is_written_once() -> None:
    text = encode(part(*(rank(number, look(0, LOADING), look(5, LOADING)) for number in range(50))))
    assert text.count("next_batch") == 1
    assert json.loads(text)["frames"][2] == ["next_batch", "/home/ada/data_loader.py", 212]


def test_keys_of_a_newer_version_are_passed_over() -> None:
    data = json.loads(encode(full()))
    data["novel"] = data["ranks"][0]["novel"] = {"a": 1}
    assert decode(json.dumps(data)) == full()


DAMAGES: list[dict[str, object]] = [
    {"job": 5},
    {"frames": []},
    {"ranks": "no"},
    {"ranks": [{"rank": "0", "process": {"pid": 1}}]},
    {"ranks": [{"rank": 0}]},
    {"gpus": [{"uuid": "a", "pids": 5}]},
]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"version": 2}', '{"version": 1}', '{"version": 1, "frames": [[1]]}', "[" * 100_000]
    + [json.dumps({**json.loads(encode(full())), **damage}) for damage in DAMAGES],
)
def test_what_is_no_evidence_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        decode(text)


def test_evidence_of_a_monstrous_worker_stays_within_bounds_and_says_so() -> None:
    def stack(rank_number: int, thread: int) -> ThreadStack:
        frames = tuple(Frame(f"f{rank_number}_{thread}_{i}", "/" + "x" * 300 + f"/{i}.py", i) for i in range(64))
        return ThreadStack(thread, "t" * 80, frames, main=thread == 0)

    def monster(number: int, most: int) -> RankEvidence:
        looks = tuple(
            Look(
                at,
                Vector("S", kernel_stack=("k" * 80,) * 12),
                dump("py-spy", [stack(number, t) for t in range(most)]),
            )
            for at in (0.0, 5.0)
        )
        return rank(number, *looks, suspect=number == 11, stdout=("o" * 400,) * 20, stderr=("é" * 400,) * 20)

    for ranks, threads in ((1, 64), (16, 20), (400, 1)):
        whole = part(*(monster(number, threads) for number in range(ranks)))
        text = encode(whole)
        assert len(text.encode()) <= MAX_BYTES
        kept = decode(text)
        assert kept.notes == ("some of it was left out, to keep within bounds",)
        assert all(item.process.looks[1].python.main is not None for item in kept.ranks)
        assert ranks < 12 or any(item.suspect for item in kept.ranks)
        assert len(kept.ranks) == ranks or ranks == 400
    with pytest.raises(ValueError, match="more than 50 bytes"):
        encode(whole, max_bytes=50)


def test_text_that_utf8_cannot_hold_is_replaced() -> None:
    assert decode(encode(part(rank(0, stdout=("\udcff",))))).ranks[0].stdout == ("?",)


def test_the_printed_evidence_says_who_is_where_and_what_the_flight_recorder_says() -> None:
    peers = [rank(number, look(0, REDUCE), look(5, REDUCE)) for number in (0, 1)]
    odd = rank(2, look(0, LOADING), flight=FlightRecord(problem="it was not on"))
    blind = rank(3, Look(0, Vector("S"), Dump(problem="py-spy is not installed")))
    printed = json_view.evidence(WorkerEvidence("workerpool0-0", "host-0", part(*peers, odd, blind)))
    first, second, third, fourth = printed["stacks"]
    assert first["group"] == second["group"] != third["group"]
    assert (first["place"], first["waits"], first["moving"]) == ("all_reduce", True, "same")
    assert (third["place"], third["waits"], third["collective"]) == (
        "data_loader.py:212 `queue.get`",
        False,
        "it was not on",
    )
    assert (fourth["group"], fourth["problem"]) == ("", "py-spy is not installed")
    assert json_view.evidence(WorkerEvidence("workerpool0-0", "", problem="nothing came"))["stacks"] == []
