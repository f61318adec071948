"""core.gpus: how readings change what is known of a host's GPUs."""

from __future__ import annotations

from dataclasses import replace

from holdfast_agent.core.model.gpus import VANISHED, ChangeKind, Gpu, GpuChange, Reading, Unidentified, merge

A = Gpu("GPU-a", 0, "H100", 80, bus_id="00000000:17:00.0")
B = Gpu("GPU-b", 1, "H100", 80, bus_id="00000000:18:00.0")
MIG_1 = Gpu("MIG-1", 1, "H100 MIG 3g.40gb", 40, parent="GPU-b")
MIG_2 = Gpu("MIG-2", 1, "H100 MIG 3g.40gb", 40, parent="GPU-b")


def read(*gpus: Gpu, unidentified: tuple[Unidentified, ...] = (), divided: tuple[str, ...] = ()) -> Reading:
    healthy = {gpu.parent or gpu.uuid for gpu in gpus if not gpu.problem}
    return Reading(gpus, unidentified, frozenset(healthy | set(divided)))


def test_first_reading_finds_every_gpu() -> None:
    inventory, changes = merge((), read(B, A))
    assert inventory == (A, B)
    assert changes == (GpuChange(ChangeKind.FOUND, A), GpuChange(ChangeKind.FOUND, B))


def test_same_reading_changes_nothing() -> None:
    assert merge((A, B), read(A, B)) == ((A, B), ())


def test_gpu_missing_from_the_reading_stays_as_vanished() -> None:
    gone = replace(B, problem=VANISHED)
    assert merge((A, B), read(A)) == ((A, gone), (GpuChange(ChangeKind.FAILED, gone),))


def test_vanished_gpu_is_told_once() -> None:
    gone = replace(B, problem=VANISHED)
    assert merge((A, gone), read(A)) == ((A, gone), ())


def test_empty_reading_makes_all_known_gpus_vanish() -> None:
    inventory, changes = merge((A, B), Reading(note="no NVIDIA driver on this host"))
    assert [gpu.problem for gpu in inventory] == [VANISHED, VANISHED]
    assert [change.kind for change in changes] == [ChangeKind.FAILED, ChangeKind.FAILED]


def test_vanished_gpu_that_returns_recovers() -> None:
    assert merge((A, replace(B, problem=VANISHED)), read(A, B)) == ((A, B), (GpuChange(ChangeKind.RECOVERED, B),))


def test_failing_gpu_keeps_what_it_no_longer_tells() -> None:
    mute = Gpu("GPU-b", 1, "", 0, problem="lost")
    failed = replace(B, problem="lost")
    assert merge((A, B), read(A, mute)) == ((A, failed), (GpuChange(ChangeKind.FAILED, failed),))


def test_another_problem_is_another_change() -> None:
    worse = replace(B, problem="needs a reset")
    assert merge((replace(B, problem="lost"),), read(worse)) == ((worse,), (GpuChange(ChangeKind.FAILED, worse),))


def test_survivors_move_up_when_a_gpu_vanishes() -> None:
    inventory, _ = merge((A, B), read(replace(B, index=0)))
    assert inventory == (replace(A, problem=VANISHED), replace(B, index=0))


def test_unidentified_gpu_is_the_missing_one_at_its_index() -> None:
    failed = replace(B, problem="lost")
    reading = read(A, unidentified=(Unidentified(1, "lost"),))
    assert merge((A, B), reading) == ((A, failed), (GpuChange(ChangeKind.FAILED, failed),))


def test_gpu_that_was_never_identified_is_shown_with_its_problem() -> None:
    reading = read(A, unidentified=(Unidentified(1, "lost"),))
    inventory, changes = merge((), reading)
    nameless = Gpu("unidentified-1", 1, "", 0, "lost")
    assert inventory == (A, nameless)
    assert changes == (GpuChange(ChangeKind.FOUND, A), GpuChange(ChangeKind.FAILED, nameless))
    assert merge(inventory, reading) == (inventory, ())


def test_gpu_that_tells_its_uuid_at_last_replaces_the_nameless_entry() -> None:
    nameless = Gpu("unidentified-1", 1, "", 0, "lost")
    assert merge((A, nameless), read(A, B)) == ((A, B), (GpuChange(ChangeKind.FOUND, B),))


def test_dividing_a_gpu_replaces_it_by_its_instances() -> None:
    inventory, changes = merge((A, B), read(A, MIG_1, MIG_2))
    assert inventory == (A, MIG_1, MIG_2)
    assert {(change.kind, change.gpu.uuid) for change in changes} == {
        (ChangeKind.REPARTITIONED, "GPU-b"),
        (ChangeKind.FOUND, "MIG-1"),
        (ChangeKind.FOUND, "MIG-2"),
    }


def test_removed_instance_of_a_healthy_gpu_is_no_fault() -> None:
    reading = read(A, MIG_1)
    assert merge((A, MIG_1, MIG_2), reading) == ((A, MIG_1), (GpuChange(ChangeKind.REPARTITIONED, MIG_2),))


def test_gpu_divided_into_nothing_leaves_nothing() -> None:
    assert merge((MIG_1,), read(A, divided=("GPU-b",)))[0] == (A,)


def test_instances_share_the_problem_of_their_gpu() -> None:
    reading = read(A, replace(B, problem="lost"))
    inventory, changes = merge((A, MIG_1, MIG_2), reading)
    assert inventory == (A, replace(MIG_1, problem="lost"), replace(MIG_2, problem="lost"))
    assert [change.kind for change in changes] == [ChangeKind.FAILED, ChangeKind.FAILED]


def test_instances_of_an_unidentified_gpu_share_its_problem() -> None:
    inventory, _ = merge((A, MIG_1, MIG_2), read(A, unidentified=(Unidentified(1, "lost"),)))
    assert inventory == (A, replace(MIG_1, problem="lost"), replace(MIG_2, problem="lost"))
