"""The parts of the digits example: the sum over ranks, checkpoints, faults, data and gradients."""

from __future__ import annotations

import argparse
import socket
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from google.protobuf import json_format
from tests.support.digits_modules import DIGITS, allreduce, checkpoint, faults, network

from holdfast.v1 import job_pb2


def star(world_size: int) -> list[Any]:
    """A connected group of each rank, over socket pairs."""
    pairs = [socket.socketpair() for _ in range(1, world_size)]
    root = allreduce.Group(0, [(rank, ours) for rank, (ours, _) in enumerate(pairs, start=1)])
    return [root, *(allreduce.Group(rank, [(0, theirs)]) for rank, (_, theirs) in enumerate(pairs, start=1))]


def on_each(groups: list[Any], operation: str, vectors: list[Any]) -> None:
    """Calls the operation on every rank at once."""
    calls = [(getattr(group, operation), vector) for group, vector in zip(groups, vectors, strict=True)]
    threads = [threading.Thread(target=call, args=(vector,)) for call, vector in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for group in groups:
        group.close()


@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
def test_all_reduce_leaves_the_same_sum_on_every_rank(world_size: int) -> None:
    rng = np.random.default_rng(world_size)
    vectors = [rng.normal(size=50_000).astype(np.float32) for _ in range(world_size)]
    expected = np.sum(vectors, axis=0, dtype=np.float64)
    on_each(star(world_size), "all_reduce", vectors)
    np.testing.assert_allclose(vectors[0], expected, rtol=1e-4, atol=1e-5)
    assert all(vector.tobytes() == vectors[0].tobytes() for vector in vectors)


def test_broadcast_gives_everyone_rank_0s_values_of_any_type() -> None:
    vectors = [np.array([rank, 2**40 + rank], np.int64) for rank in range(3)]
    on_each(star(3), "broadcast", vectors)
    assert [vector.tolist() for vector in vectors] == [[0, 2**40]] * 3


@pytest.mark.parametrize("bytes_before_the_end", [b"", b"\x00\x00", b"\x00\x00\x00\x00\x00\x00\x00\x10half"])
def test_a_peer_that_goes_is_named_in_a_connection_error(bytes_before_the_end: bytes) -> None:
    ours, theirs = socket.socketpair()
    theirs.sendall(bytes_before_the_end)
    theirs.close()
    with (
        allreduce.Group(0, [(3, ours)]) as group,
        pytest.raises(ConnectionError, match="lost rank 3: the connection was closed"),
    ):
        group.all_reduce(np.zeros(4, np.float32))


def test_a_peer_gone_before_the_send_is_a_connection_error() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    with (
        allreduce.Group(2, [(0, ours)]) as group,
        pytest.raises(ConnectionError, match="lost rank 0 while sending"),
    ):
        group.all_reduce(np.zeros(4, np.float32))


def test_a_vector_of_another_length_is_refused() -> None:
    ours, theirs = socket.socketpair()
    with theirs, allreduce.Group(2, [(1, theirs)]) as sender:
        sender.rank = 0
        sender.broadcast(np.zeros(8, np.float32))
        with allreduce.Group(1, [(0, ours)]) as group, pytest.raises(ConnectionError, match="32 bytes where 16"):
            group.broadcast(np.zeros(4, np.float32))


def some_checkpoint(step: int) -> Any:
    values = np.random.default_rng(step).normal(size=100).astype(np.float32)
    return checkpoint.Checkpoint(step, values, -values, '{"seed": 0}')


def test_a_checkpoint_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    saved = some_checkpoint(123)
    checkpoint.save(tmp_path / "new" / "directory", saved)
    found = checkpoint.newest(tmp_path / "new" / "directory")
    assert (found.step, found.settings) == (123, '{"seed": 0}')
    assert np.array_equal(found.parameters, saved.parameters)
    assert np.array_equal(found.velocity, saved.velocity)


def test_no_directory_means_no_checkpoint(tmp_path: Path) -> None:
    assert checkpoint.newest(tmp_path / "nowhere") is None


def test_the_newest_two_checkpoints_are_kept(tmp_path: Path) -> None:
    for step in (5, 10, 100):
        checkpoint.save(tmp_path, some_checkpoint(step))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000010.npz", "step-00000100.npz"]
    assert checkpoint.newest(tmp_path).step == 100


def test_a_checkpoint_cut_short_is_never_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint.save(tmp_path, some_checkpoint(10))

    def torn(file: Any, **_: Any) -> None:
        file.write(b"PK\x03\x04")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", torn)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(tmp_path, some_checkpoint(20))
    assert checkpoint.newest(tmp_path).step == 10


def test_the_data_is_whole_and_every_digit_is_on_both_sides() -> None:
    digits = network.load_digits()
    assert digits.images.shape == (1438, 64) and digits.held_out_images.shape == (359, 64)
    assert digits.images.min() == 0 and digits.images.max() == 1
    counts = np.bincount(digits.labels, minlength=10) + np.bincount(digits.held_out_labels, minlength=10)
    assert counts.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert set(digits.held_out_labels) == set(digits.labels) == set(range(10))


def test_shifted_images_move_by_at_most_a_pixel() -> None:
    digits = network.load_digits()
    samples = np.arange(200)
    moved = digits.shifted(samples, np.random.default_rng(0)).reshape(-1, 8, 8)
    framed = np.pad(digits.images[samples].reshape(-1, 8, 8), ((0, 0), (1, 1), (1, 1)))
    for image, frame in zip(moved, framed, strict=True):
        assert any(
            np.array_equal(image, frame[down : down + 8, right : right + 8])
            for down in range(3)
            for right in range(3)
        )


def test_the_gradient_is_that_of_the_loss() -> None:
    rng = np.random.default_rng(1)
    net = network.Network(0, (64, 8, 10))
    net.parameters[:] = rng.normal(0, 0.3, net.parameters.size)
    images, labels = rng.random((5, 64)).astype(np.float32), rng.integers(0, 10, 5)
    net.backward(net.forward(images), labels, lambda: None)
    gradient, at, width = net.gradient.copy(), net.parameters.copy(), 1e-2
    for index in rng.choice(gradient.size, 20, replace=False):
        losses = []
        for offset in (width, -width):
            net.parameters[:] = at
            net.parameters[index] += offset
            losses.append(net.backward(net.forward(images), labels, lambda: None))
        assert gradient[index] == pytest.approx((losses[0] - losses[1]) / (2 * width), abs=2e-2)


def test_gradients_of_shares_add_up_to_that_of_the_batch() -> None:
    digits, net = network.load_digits(), network.Network(0)

    def gradient(part: slice) -> Any:
        net.backward(net.forward(digits.images[part]), digits.labels[part], lambda: None)
        return net.gradient.copy()

    shares = [gradient(slice(rank, 32, 3)) for rank in range(3)]
    np.testing.assert_allclose(sum(shares), gradient(slice(0, 32)), rtol=1e-3, atol=1e-4)


def test_a_rank_without_a_share_adds_nothing() -> None:
    net = network.Network(0)
    nobody = np.zeros((0, 64), np.float32)
    assert net.backward(net.forward(nobody), np.zeros(0, np.int64), lambda: None) == 0
    assert not net.gradient.any()


def fault_for(arguments: list[str], **environ: str) -> Any:
    parser = argparse.ArgumentParser()
    faults.add_options(parser)
    return faults.ordered(parser, parser.parse_args(arguments), environ)


def test_a_fault_strikes_at_its_rank_and_step_only() -> None:
    fault = fault_for(["--crash-rank", "1", "--crash-step", "7"])
    for rank, step in [(0, 7), (1, 6), (1, 8)]:
        fault.strike(rank, step)
    with pytest.raises(RuntimeError, match="rank 1 was told to crash at step 7"):
        fault.strike(1, 7)


@pytest.mark.parametrize(
    ("environ", "strikes"),
    [
        ({}, True),
        ({"HOLDFAST_GENERATION": "1", "HOLDFAST_RESTART_COUNT": "0"}, True),
        ({"HOLDFAST_RESTART_COUNT": "1"}, False),
        ({"HOLDFAST_GENERATION": "2", "HOLDFAST_RESTART_COUNT": "0"}, False),
    ],
)
def test_a_fault_is_for_the_first_generation(environ: dict[str, str], strikes: bool) -> None:
    fault = fault_for(["--crash-rank", "0", "--crash-step", "1", "--crash-signal", "11"], **environ)
    assert fault == (faults.Fault(0, 1, 11) if strikes else faults.NO_FAULT)
    hang = fault_for(["--hang-rank", "0", "--hang-step", "1"], **environ)
    assert hang == (faults.Fault(0, 1, hang="queue") if strikes else faults.NO_FAULT)


def test_a_deadlock_of_the_loader_leaves_the_training_itself_alone() -> None:
    fault = fault_for(["--hang-rank", "1", "--hang-step", "7"])
    assert [fault.loader_deadlock(rank) for rank in (0, 1)] == [None, 7]
    fault.strike(1, 7)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--crash-rank", "1"],
        ["--crash-step", "1"],
        ["--crash-signal", "11"],
        ["--crash-rank", "1", "--crash-step", "1", "--crash-signal", "999"],
        ["--hang-rank", "1"],
        ["--hang-step", "1"],
        ["--hang-rank", "1", "--hang-step", "1", "--hang-kind", "nap"],
        ["--hang-rank", "1", "--hang-step", "1", "--crash-rank", "1", "--crash-step", "1"],
    ],
)
def test_half_a_fault_is_a_usage_error(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        fault_for(arguments)
    assert ended.value.code == 2


def test_the_job_file_is_a_custom_job_of_two_workers_with_two_ranks_each() -> None:
    document = yaml.safe_load((DIGITS / "job.yaml").read_text())
    job = json_format.ParseDict(document, job_pb2.CustomJob())
    pools = job.job_spec.worker_pool_specs
    assert [(pool.replica_count, pool.processes_per_worker) for pool in pools] == [(1, 2), (1, 2)]
    assert pools[0].process_spec == pools[1].process_spec
    assert list(pools[0].process_spec.command) == ["python3", "train.py"]
