"""What makes a host unfit to start a worker, in words that name the figure and the setting."""

from __future__ import annotations

from dataclasses import replace

from holdfast_agent.core.launch.preflight import MIB, DiskRoom, Minimums, lack_of_room, missing_gpu, tight_limit

NEEDS = {"disk_free_mb": 1024, "shm_free_mb": 16}
PLENTY: dict[str, int | None] = {"nofile": 1 << 20, "nproc": None, "stack": 8 << 20, "memlock": None}


def test_a_disk_with_too_little_room_is_named_with_both_figures_and_the_setting() -> None:
    rooms = [DiskRoom("/dev/shm", "shm_free_mb", 64 * MIB), DiskRoom("/logs", "disk_free_mb", 200 * MIB)]
    assert lack_of_room(rooms, NEEDS) == (
        "/logs has 200 MiB free of the 1024 that it must have (agent.toml: [checks] disk_free_mb)"
    )


def test_a_disk_that_can_not_be_read_is_no_room_unless_none_is_asked_for() -> None:
    dead = [DiskRoom("/logs", "disk_free_mb", problem="Input/output error")]
    assert lack_of_room(dead, NEEDS) == "/logs can't be used: Input/output error"
    assert lack_of_room(dead, {"disk_free_mb": 0}) == ""


def test_just_enough_room_is_enough() -> None:
    assert lack_of_room([DiskRoom("/logs", "disk_free_mb", 1024 * MIB)], NEEDS) == ""


def test_each_limit_that_is_too_low_is_named() -> None:
    minimums = Minimums()
    assert tight_limit(PLENTY, minimums) == ""
    for name, low, words in [
        ("nofile", 256, "nofile is 256 of the 1024 that it must be (agent.toml: [checks] nofile;"),
        ("nproc", 10, "nproc is 10 of the 256 that it must be (agent.toml: [checks] nproc;"),
        ("stack", 512 << 10, "stack is 512 KiB of the 1024 that it must be (agent.toml: [checks] stack_kb;"),
        ("memlock", 8 << 10, "memlock is 8 KiB of the 64 that it must be (agent.toml: [checks] memlock_kb;"),
    ]:
        assert words in tight_limit({**PLENTY, name: low}, minimums)
    assert "LimitNOFILE=" in tight_limit({**PLENTY, "nofile": 3}, minimums)
    assert tight_limit({**PLENTY, "nofile": 3}, replace(minimums, nofile=0)) == ""


def test_a_gpu_that_is_gone_or_ill_is_named() -> None:
    names = {"GPU-a": "0", "GPU-b": "1"}
    assert missing_gpu(("GPU-a", "GPU-b"), names, {"GPU-c": "ill"}) == ""
    assert missing_gpu(("GPU-a", "GPU-z"), names, {}) == "the GPU GPU-z is not there"
    ill = missing_gpu(("GPU-b",), names, {"GPU-b": "Xid 79"})
    assert ill == "the GPU 1 (GPU-b) is not well: Xid 79"
