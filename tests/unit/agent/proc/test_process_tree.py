"""Who is the rank, who helps it, who works for it."""

from __future__ import annotations

import pytest

from holdfast_agent.core.proc.process_tree import Part, Relative, Role, parts, works

TRAIN = ("/usr/bin/python3", "-u", "train.py")
TORCHRUN = ("/usr/bin/python3", "/usr/bin/torchrun", "--nproc-per-node=2", "train.py")


def tree(*relatives: Relative) -> dict[int, Part]:
    return parts(1, 4, {relative.pid: relative for relative in relatives})


def process(pid: int, parent: int, *command: str, **more: object) -> Relative:
    return Relative(pid, parent, start_ticks=pid, command=command, **more)  # type: ignore[arg-type]


def roles(made: dict[int, Part]) -> dict[int, str]:
    return {pid: part.role.value for pid, part in made.items()}


def test_program_started_directly_is_the_rank() -> None:
    assert tree(process(1, 0, *TRAIN)) == {1: Part(Role.RANK, 1, 4)}


def test_forks_and_known_companions_help_and_everything_else_works() -> None:
    made = tree(
        process(1, 0, *TRAIN),
        process(2, 1, *TRAIN),
        process(3, 1, "/bin/sh", "-c", "nvcc x.cu"),
        process(4, 3, "nvcc", "x.cu"),
        process(5, 1, "/opt/wandb/bin/wandb-core", "--port"),
        process(6, 5, "git", "rev-parse"),
        process(7, 1, "python3", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()"),
        process(8, 1, name="pt_data_worker"),
        process(9, 1, "python3", "/x/torch/_inductor/compile_worker/__main__.py"),
        process(10, 9, "python3", "/x/torch/_inductor/compile_worker/__main__.py"),
    )
    helper, child = "helper", "child"
    assert roles(made) == {
        1: "rank", 2: helper, 3: child, 4: child, 5: helper, 6: helper, 7: helper, 8: helper, 9: child, 10: child,
    }  # fmt: skip
    assert {part.owner for part in made.values()} == {1}


@pytest.mark.parametrize(
    ("command", "may"),
    [
        (TRAIN, True),
        (("python3", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()"), True),
        (("python3", "-m", "joblib.externals.loky.backend.popen_loky_posix"), True),
        (("python3", "-c", "from multiprocessing.resource_tracker import main; main(5)"), False),
        (("python3", "-m", "joblib.externals.loky.backend.resource_tracker"), False),
        (("tee", "train.log"), False),
        (("/opt/wandb/bin/wandb-core", "--port"), False),
    ],
)
def test_what_forks_write_may_be_work_and_what_companions_write_is_not(command: tuple[str, ...], may: bool) -> None:
    assert works(command) is may


def test_ranks_of_torchrun_are_its_children_by_their_own_numbers() -> None:
    made = tree(
        process(1, 0, *TORCHRUN, rank=0),
        process(2, 1, *TRAIN, rank=9),
        process(3, 1, *TRAIN, rank=8),
        process(4, 3, *TRAIN, rank=8),
    )
    assert made == {
        1: Part(Role.PARENT, 0, -1),
        2: Part(Role.RANK, 2, 9),
        3: Part(Role.RANK, 3, 8),
        4: Part(Role.HELPER, 3, 8),
    }


def test_launcher_without_children_stands_for_the_rank() -> None:
    assert tree(process(1, 0, *TORCHRUN)) == {1: Part(Role.RANK, 1, 4)}


def test_shell_in_front_of_a_launcher_in_a_pipeline() -> None:
    made = tree(
        process(1, 0, "bash", "run.sh"),
        process(2, 1, *TORCHRUN),
        process(3, 1, "tee", "log.txt"),
        process(5, 2, *TRAIN, rank=5),
    )
    assert roles(made) == {1: "parent", 2: "parent", 3: "helper", 5: "rank"}
    assert made[5].rank == 5
    assert made[3].owner == 5


def test_of_two_programs_of_one_number_below_a_shell_the_older_is_the_rank() -> None:
    made = tree(
        process(1, 0, "sh", "-c", "x"), process(2, 1, *TRAIN, rank=4), process(3, 1, "python3", "up.py", rank=4)
    )
    assert roles(made) == {1: "parent", 2: "rank", 3: "helper"}


def test_who_holds_a_gpu_context_is_a_rank_wherever_it_hides() -> None:
    spawned = ("python3", "-c", "from my.own import run; run()")
    made = tree(
        process(1, 0, *TRAIN),
        process(2, 1, *spawned, on_gpu=True, rank=4),
        process(3, 1, *spawned, on_gpu=True, rank=4),
        process(4, 1, "python3", "monitor.py"),
        process(5, 2, *spawned),
    )
    assert roles(made) == {1: "parent", 2: "rank", 3: "rank", 4: "helper", 5: "helper"}
    assert (made[2].rank, made[3].rank) == (4, 5)


def test_helper_of_a_rank_on_a_gpu_does_not_become_the_rank() -> None:
    made = tree(process(1, 0, *TRAIN, on_gpu=True), process(2, 1, "python3", "dali.py", on_gpu=True))
    assert roles(made) == {1: "rank", 2: "child"}


def test_orphan_belongs_to_the_tree_and_nothing_is_left_without_its_root() -> None:
    orphaned = process(7, 99, "cc1plus")
    assert roles(tree(process(1, 0, *TRAIN), orphaned)) == {1: "rank", 7: "child"}
    assert tree(orphaned) == {}
