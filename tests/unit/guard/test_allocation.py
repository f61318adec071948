"""Which task this is, from what a scheduler says in the environment."""

from __future__ import annotations

import pytest

from holdfast.errors import ConfigError
from holdfast.guard.allocation import hostlist, read

# As srun of Slurm 22.05 set it for the last of five tasks on two nodes, among 70 others.
LAST_OF_FIVE = {
    "SLURM_JOB_ID": "17",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_STEP_NUM_TASKS": "5",
    "SLURM_STEP_TASKS_PER_NODE": "3,2",
    "SLURM_PROCID": "4",
    "SLURM_NODEID": "1",
    "SLURM_LOCALID": "1",
}


def test_without_a_scheduler_the_task_is_alone() -> None:
    alone = read({}, "box")

    assert (alone.kind, alone.task, alone.tasks, alone.name, alone.job) == ("alone", 0, 1, "box", "")


def test_a_batch_script_is_alone_though_its_job_has_more_tasks() -> None:
    batch = {"SLURM_JOB_ID": "17", "SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_NODELIST": "n[1-8]"}

    assert read(batch, "n1").tasks == 1


def test_a_step_whose_tasks_do_not_divide_has_its_numbers() -> None:
    place = read(LAST_OF_FIVE, "ignored")

    assert (place.task, place.tasks, place.local_task, place.local_tasks) == (4, 5, 1, 2)
    assert (place.job, place.name, place.first_host, place.hosts) == ("17.0", "n2.1", "n1", ("n1", "n2"))


def test_one_task_of_a_host_has_the_hosts_name() -> None:
    assert read(LAST_OF_FIVE | {"SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_LOCALID": "0"}, "").name == "n2"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-3,7]", ["n1", "n2", "n3", "n7"]),
        ("n[08-10],gpu-a", ["n08", "n09", "n10", "gpu-a"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("a[1-2].lab,b", ["a1.lab", "a2.lab", "b"]),
    ],
)
def test_host_lists_are_expanded_in_order(text: str, names: list[str]) -> None:
    assert list(hostlist(text)) == names


@pytest.mark.parametrize("text", ["n[a-b]", "n[1-]", "n[]", "n[1-100000]"])
def test_a_host_list_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        list(hostlist(text))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("SLURM_PROCID", "", "SLURM_PROCID is not set"),
        ("SLURM_PROCID", "one", "is no number"),
        ("SLURM_NODEID", "2", "names 2 hosts"),
        ("SLURM_STEP_TASKS_PER_NODE", "3", "names 2 hosts"),
        ("SLURM_STEP_TASKS_PER_NODE", "3(y2)", "no count of tasks"),
        ("SLURM_HET_SIZE", "2", "heterogeneous"),
    ],
)
def test_an_environment_that_contradicts_itself_is_refused(name: str, value: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read(LAST_OF_FIVE | {name: value}, "")
