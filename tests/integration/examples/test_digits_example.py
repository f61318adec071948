"""The digits example as its users run it: several processes, real sockets, real crashes."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.digits_modules import DIGITS, allreduce
from tests.support.rank_gang import Ended, free_port, run_gang

TRAIN = DIGITS / "train.py"


def train(directory: Path, *arguments: str, world_size: int = 2, **env: str) -> list[Ended]:
    """Four epochs, 176 steps, a checkpoint each 50."""
    options = ("--epochs", "4", "--checkpoint-every", "50", "--checkpoint-dir", str(directory))
    return run_gang(TRAIN, *options, *arguments, world_size=world_size, env=env)


def final_weights(directory: Path, step: int = 176) -> Any:
    with np.load(directory / f"step-{step:08d}.npz") as file:
        return file["parameters"]


def test_two_ranks_learn_to_read_digits(tmp_path: Path) -> None:
    ranks = run_gang(
        TRAIN, "--epochs", "40", "--report-every", "10", "--checkpoint-dir", str(tmp_path), world_size=2
    )
    assert [rank.code for rank in ranks] == [0, 0], ranks
    first, *reports, last = ranks[0].out.splitlines()
    assert first == "rank=0 world_size=2 local_rank=0 starting from scratch"
    assert [line.split()[:2] for line in reports] == [
        [f"step={44 * epoch}", f"epoch={epoch}/40"] for epoch in (10, 20, 30, 40)
    ]
    assert last.startswith("done step=1760 ")
    assert float(last.split("accuracy=")[1].split()[0]) >= 0.95
    assert ranks[1].out == "rank=1 world_size=2 local_rank=1 starting from scratch\n"


@pytest.mark.parametrize(
    ("fault", "code"),
    [(["--crash-rank", "1"], 1), (["--crash-rank", "0"], 1), (["--crash-rank", "1", "--crash-signal", "11"], -11)],
)
def test_a_run_that_crashed_and_resumed_ends_with_the_weights_of_an_unbroken_one(
    tmp_path: Path, fault: list[str], code: int
) -> None:
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    assert [rank.code for rank in train(unbroken)] == [0, 0]

    fault = [*fault, "--crash-step", "117"]
    crasher = int(fault[1])
    ranks = train(broken, *fault)
    assert ranks[crasher].code == code
    assert code < 0 or f"RuntimeError: rank {crasher} was told to crash at step 117" in ranks[crasher].err
    assert ranks[1 - crasher].code == 1
    assert f"ConnectionError: lost rank {crasher}" in ranks[1 - crasher].err.splitlines()[-1]

    ranks = train(broken, *fault, HOLDFAST_RESTART_COUNT="1", HOLDFAST_GENERATION="2")
    assert [rank.code for rank in ranks] == [0, 0], ranks
    assert [rank.out.splitlines()[0] for rank in ranks] == [
        f"rank={rank} world_size=2 local_rank={rank} generation=2 resumed from step 100" for rank in (0, 1)
    ]
    assert np.array_equal(final_weights(unbroken), final_weights(broken))


def test_the_world_size_changes_the_weights_by_rounding_only(tmp_path: Path) -> None:
    for world_size in (1, 3):
        assert {rank.code for rank in train(tmp_path / str(world_size), world_size=world_size)} == {0}
    np.testing.assert_allclose(final_weights(tmp_path / "1"), final_weights(tmp_path / "3"), atol=1e-2)


def test_a_finished_run_started_again_only_says_how_good_it_is(tmp_path: Path) -> None:
    first, second = (train(tmp_path, world_size=1)[0] for _ in range(2))
    assert second.code == 0
    assert second.out.splitlines() == [
        "rank=0 world_size=1 local_rank=0 resumed from step 176",
        first.out.splitlines()[-1],
    ]


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    train(tmp_path, world_size=1)
    (refused,) = train(tmp_path, "--seed", "1", world_size=1)
    assert refused.code == 1
    assert "Name another --checkpoint-dir, or remove that one." in refused.err


def test_a_missing_rank_is_named_after_the_connect_timeout() -> None:
    with pytest.raises(ConnectionError, match=r"ranks \[1, 2\] of 3 did not come"):
        allreduce.join(0, 3, "127.0.0.1", free_port(), timeout_s=0.2)


def test_a_missing_rank_0_is_reported_after_the_connect_timeout() -> None:
    with pytest.raises(ConnectionError, match="rank 0 was not there at 127"):
        allreduce.join(1, 3, "127.0.0.1", free_port(), timeout_s=0.2)


def join_in_the_background(pool: ThreadPoolExecutor, world_size: int, port: int) -> Future[Any]:
    """Rank 0, waiting for the others."""
    return pool.submit(allreduce.join, 0, world_size, "127.0.0.1", port, 30)


def test_strangers_at_the_port_are_sent_away() -> None:
    port = free_port()
    with ThreadPoolExecutor() as pool:
        root = join_in_the_background(pool, 2, port)
        for words in (b"", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"):
            with allreduce._reach("127.0.0.1", port, deadline=time.monotonic() + 30) as stranger:
                stranger.sendall(words)
        with allreduce.join(1, 2, "127.0.0.1", port, 30) as other, root.result(30) as group:
            vector = np.ones(3, np.float32)
            sums = pool.submit(group.all_reduce, np.ones(3, np.float32))
            other.all_reduce(vector)
            sums.result(30)
    assert vector.tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("callers", "complaint"),
    [
        ([(1, 5)], "a peer says rank 1 of 5, but the world size here is 3"),
        ([(3, 3)], "a peer says rank 3 of 3"),
        ([(1, 3), (1, 3)], "two processes call themselves rank 1; the second is at 127"),
    ],
)
def test_ranks_that_disagree_about_the_gang_are_told(callers: list[tuple[int, int]], complaint: str) -> None:
    port = free_port()
    with ThreadPoolExecutor() as pool:
        root = join_in_the_background(pool, 3, port)
        groups = [allreduce.join(rank, world_size, "127.0.0.1", port, 30) for rank, world_size in callers]
        with pytest.raises(ConnectionError, match=complaint):
            root.result(30)
        for group in groups:
            group.close()
