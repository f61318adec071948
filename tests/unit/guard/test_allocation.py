"""Which task this is, from what a scheduler says in the environment."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from holdfast.errors import ConfigError
from holdfast.guard.allocation import hostlist, read

ROOT = Path(__file__).parents[3]
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


def test_the_shell_of_salloc_is_as_a_script_and_no_task_of_a_step() -> None:
    # As salloc of Slurm 22.05 set it with use_interactive_step.
    shell = LAST_OF_FIVE | {"SLURM_STEP_ID": "4294967290", "SLURM_STEP_NODELIST": "n1", "SLURM_STEP_NUM_TASKS": "1"}

    assert (read(shell, "n1").kind, read(shell, "n1").tasks) == ("alone", 1)


@pytest.mark.parametrize(
    ("launcher", "size"), [("OMPI_COMM_WORLD", "4"), ("PMI", "4"), ("MV2_COMM_WORLD", "4"), ("FLUX", "2")]
)
def test_a_task_of_a_launcher_whose_daemons_slurm_has_started_is_the_launchers(launcher: str, size: str) -> None:
    # The daemons are a step of two tasks, on the hosts beside that of the script; what they start has its variables.
    step = {"SLURM_STEP_ID": "2", "SLURM_STEP_NODELIST": "n[2-3]", "SLURM_STEP_NUM_TASKS": "2"}
    step |= {"SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_PROCID": "0", "SLURM_NODEID": "0", "SLURM_LOCALID": "0"}
    task = {"FLUX_JOB_NNODES": "2", "FLUX_TASK_RANK": "1", "FLUX_JOB_SIZE": size}
    if launcher != "FLUX":
        task = {f"{launcher}_RANK": "1", f"{launcher}_SIZE": size}

    there, beside_script = (
        read(task | step | {"SLURM_JOB_ID": "17"}, "n2"),
        read(task | {"SLURM_JOB_ID": "17"}, "n1"),
    )

    assert (there.kind, there.task, there.tasks) == ("shared", 1, int(size))
    assert there.job == beside_script.job


@pytest.mark.parametrize(("rank", "size"), [("4", "5"), ("0", "1")], ids=["of srun itself", "kept by a shell"])
def test_pmi_of_a_step_leaves_its_tasks_to_slurm(rank: str, size: str) -> None:
    place = read(LAST_OF_FIVE | {"PMI_RANK": rank, "PMI_SIZE": size}, "n2")

    assert (place.kind, place.task, place.tasks) == ("slurm", 4, 5)


def test_a_step_whose_tasks_do_not_divide_has_its_numbers() -> None:
    place = read(LAST_OF_FIVE, "ignored")

    assert (place.task, place.tasks, place.local_task, place.local_tasks) == (4, 5, 1, 2)
    assert (place.job, place.name, place.first_host, place.hosts) == ("17.0", "n2.1", "n1", ("n1", "n2"))


def test_a_requeued_job_meets_and_is_recorded_under_a_name_of_its_own() -> None:
    first, again = read(LAST_OF_FIVE, ""), read(LAST_OF_FIVE | {"SLURM_RESTART_COUNT": "1"}, "")

    assert (first.job, first.labels) == ("17.0", {"slurm-job": "17"})
    assert (again.job, again.labels) == ("17.0-restart1", {"slurm-job": "17", "slurm-restarts": "1"})


def test_one_task_of_a_host_has_the_hosts_name() -> None:
    assert read(LAST_OF_FIVE | {"SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_LOCALID": "0"}, "").name == "n2"


def test_components_of_a_heterogeneous_step_are_numbered_together() -> None:
    # As srun of Slurm 22.05 set it for the last task of: srun -N1 -n1 … : -N2 -n3 …
    last = {
        "SLURM_JOB_ID": "1",
        "SLURM_HET_SIZE": "2",
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NODELIST": "n[1-3]",
        "SLURM_STEP_NUM_TASKS": "4",
        "SLURM_STEP_TASKS_PER_NODE": "1,2,1",
        "SLURM_PROCID": "3",
        "SLURM_NODEID": "2",
        "SLURM_LOCALID": "0",
    }

    place = read(last, "")

    assert (place.task, place.tasks, place.name, place.hosts) == (3, 4, "n3", ("n1", "n2", "n3"))


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
        ("SLURM_RESTART_COUNT", "once", "is no number"),
        ("SLURM_NODEID", "2", "names 2 hosts"),
        ("SLURM_STEP_TASKS_PER_NODE", "3", "names 2 hosts"),
        ("SLURM_STEP_TASKS_PER_NODE", "3(y2)", "no count of tasks"),
    ],
)
def test_an_environment_that_contradicts_itself_is_refused(name: str, value: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read(LAST_OF_FIVE | {name: value}, "")


NAMED = {"HOLDFAST_GUARD_HOST": "train-0.train", "HOLDFAST_GUARD_SEED": "ab" * 32, "HOLDFAST_GUARD_TASKS": "4"}


def test_an_index_and_the_first_host_make_a_task() -> None:
    place = read(NAMED | {"JOB_COMPLETION_INDEX": "2"}, "train-2")

    assert (place.kind, place.task, place.tasks, place.local_task, place.local_tasks) == ("named", 2, 4, 0, 1)
    assert place.first_host == "train-0.train"
    assert place.job == read(NAMED | {"JOB_COMPLETION_INDEX": "0"}, "train-0").job


def test_a_process_of_mpi_knows_its_neighbours() -> None:
    of = {"RANK": "3", "SIZE": "4", "LOCAL_RANK": "1", "LOCAL_SIZE": "2"}
    place = read(NAMED | {f"OMPI_COMM_WORLD_{name}": value for name, value in of.items()}, "b")

    assert (place.task, place.tasks, place.local_task, place.local_tasks) == (3, 4, 1, 2)


PYTORCH_JOB = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "RANK": "1", "WORLD_SIZE": "4"}
TRAIN_JOB = {
    "KUBERNETES_SERVICE_HOST": "10.96.0.1",
    "JOB_COMPLETION_INDEX": "1",
    "PET_NODE_RANK": "1",
    "PET_NNODES": "4",
}


@pytest.mark.parametrize(
    ("pod", "numbers"), [(PYTORCH_JOB, ()), (TRAIN_JOB, ("PET_NODE_RANK",))], ids=["PyTorchJob", "TrainJob"]
)
def test_a_pod_of_an_operator_has_its_number_and_is_not_taken_to_be_alone(
    pod: dict[str, str], numbers: tuple[str, ...]
) -> None:
    place = read(
        {name: NAMED[name] for name in ("HOLDFAST_GUARD_HOST", "HOLDFAST_GUARD_SEED")} | pod, "job-worker-0"
    )

    assert (place.kind, place.task, place.tasks, place.numbers) == ("named", 1, 4, numbers)
    with pytest.raises(ConfigError, match=r"One of 4 tasks by (WORLD_SIZE|PET_NNODES), but none of") as refused:
        read(pod, "job-worker-0")
    assert "Set HOLDFAST_GUARD_HOST and HOLDFAST_GUARD_SEED" in str(refused.value.fix)


def test_what_a_user_has_set_for_ranks_elsewhere_numbers_no_task() -> None:
    assert read({"RANK": "1", "WORLD_SIZE": "4"}, "box").kind == "alone"


def test_tasks_of_one_host_name_have_names_of_their_own() -> None:
    names = {read(NAMED | {"HOLDFAST_GUARD_TASK": str(task)}, "same").name for task in range(4)}

    assert len(names) == 4


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        (NAMED, "no number of this task"),
        (NAMED | {"HOLDFAST_GUARD_TASK": "4"}, "tasks count from 0"),
        (NAMED | {"HOLDFAST_GUARD_TASK": "1", "HOLDFAST_GUARD_SEED": ""}, "HOLDFAST_GUARD_SEED is not set"),
        ({"HOLDFAST_GUARD_HOST": "a", "HOLDFAST_GUARD_SEED": "x", "HOLDFAST_GUARD_TASK": "1"}, "_TASKS is not set"),
    ],
)
def test_a_named_task_that_lacks_something_is_refused(environ: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read(environ, "box")


def test_the_manifest_for_kubernetes_has_all_that_a_pod_needs() -> None:
    documents = list(yaml.safe_load_all((ROOT / "examples/guard-indexed-job.yaml").read_text()))
    service, job = documents
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    env = {each["name"]: each.get("value", "ab" * 32) for each in container["env"]}

    place = read(env | {"JOB_COMPLETION_INDEX": "3"}, "train-3")

    assert place.tasks == job["spec"]["completions"] == job["spec"]["parallelism"]
    assert place.first_host == f"{job['metadata']['name']}-0.{service['metadata']['name']}"
    assert pod["subdomain"] == service["metadata"]["name"]
    assert (job["spec"]["completionMode"], job["spec"]["backoffLimit"]) == ("Indexed", 0)


def test_a_task_knows_which_of_its_variables_are_numbers_of_tasks() -> None:
    step, pod = read(LAST_OF_FIVE, "box"), read(NAMED | {"JOB_COMPLETION_INDEX": "2"}, "box")

    assert step.numbers == ("SLURM_PROCID",)
    assert step.counts == ("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_NUM_TASKS")
    assert (pod.numbers, pod.counts) == (("JOB_COMPLETION_INDEX",), ())


# As their own documents have them; none of these schedulers runs here.
FLUX = {
    "FLUX_JOB_ID": "f2zxM6Qy",
    "FLUX_JOB_SIZE": "4",
    "FLUX_JOB_NNODES": "2",
    "FLUX_URI": "local:///run/flux/local",
}
JSRUN = {"LSB_JOBID": "1021", "JSM_NAMESPACE_SIZE": "4", "JSM_NAMESPACE_LOCAL_SIZE": "2", "LSB_QUEUE": "batch"}
OPEN_MPI_IN_PBS = {"PBS_JOBID": "77.head", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
HYDRA_IN_LSF = {"LSB_JOBID": "1022", "PMI_SIZE": "4", "MPI_LOCALNRANKS": "2"}
THIRD_OF_FOUR = [
    FLUX | {"FLUX_TASK_RANK": "2", "FLUX_TASK_LOCAL_ID": "0"},
    JSRUN | {"JSM_NAMESPACE_RANK": "2", "JSM_NAMESPACE_LOCAL_RANK": "0"},
    OPEN_MPI_IN_PBS | {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0"},
    HYDRA_IN_LSF | {"PMI_RANK": "2", "MPI_LOCALRANKID": "0"},
]


def test_two_launches_in_one_job_of_pbs_are_told_apart() -> None:
    task = OPEN_MPI_IN_PBS | {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
    jobs = [read(task | {"PMIX_NAMESPACE": f"prterun-n1-{number}@1"}, "n1").job for number in (7, 7, 8)]
    assert jobs[0] == jobs[1] != jobs[2]


@pytest.mark.parametrize("environ", THIRD_OF_FOUR, ids=["flux", "jsrun", "mpirun in PBS", "mpiexec in LSF"])
def test_tasks_of_other_launchers_meet_by_a_file(environ: dict[str, str]) -> None:
    place = read(environ, "n2")

    assert (place.kind, place.task, place.tasks, place.local_task, place.local_tasks) == ("shared", 2, 4, 0, 2)
    assert place.name == "n2-2.0" and place.job.startswith("guard-")
    first = next(name for name in environ if name.endswith(("TASK_RANK", "_RANK")) and "LOCAL" not in name)
    assert read(environ | {first: "0"}, "n1").job == place.job


@pytest.mark.parametrize("environ", THIRD_OF_FOUR, ids=["flux", "jsrun", "mpirun in PBS", "mpiexec in LSF"])
def test_a_launch_of_one_task_is_alone(environ: dict[str, str]) -> None:
    one = {name: "1" if "SIZE" in name or "NRANKS" in name else value for name, value in environ.items()}

    assert read(one, "n2").kind == "alone"


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        (FLUX | {"FLUX_TASK_RANK": "2", "FLUX_JOB_SIZE": "5"}, "FLUX_JOB_SIZE is 5 and FLUX_JOB_NNODES 2"),
        (FLUX | {"FLUX_TASK_RANK": "two"}, "FLUX_TASK_RANK is 'two', which is no number"),
        (FLUX | {"FLUX_TASK_RANK": "4"}, "FLUX_TASK_RANK is 4, and FLUX_JOB_SIZE 4: tasks count from 0"),
        (FLUX | {"FLUX_TASK_RANK": "1", "FLUX_JOB_NNODES": ""}, "FLUX_JOB_NNODES is not set"),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, "One of 2 tasks by PMI_SIZE, but none of FLUX_JOB_ID, PBS_JOBID"),
    ],
)
def test_a_launch_that_makes_no_sense_is_refused_by_the_name_of_its_variable(
    environ: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        read(environ, "box")


@pytest.mark.parametrize(
    "text",
    [f"n[{'1' * 5000}]", f"n[{'0' * 4000}-99999999]", f"n[1-{'9' * 5000}]"],
    ids=["a number", "zeros", "an end"],
)
def test_a_number_of_absurd_length_in_a_host_list_is_refused_in_few_words(text: str) -> None:
    with pytest.raises(ConfigError, match="is no host list") as refused:
        list(hostlist(text))
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("text", ["9" * 5000, f"1(x{'9' * 5000})"])
def test_a_count_of_tasks_of_absurd_length_is_refused_in_few_words(text: str) -> None:
    with pytest.raises(ConfigError, match="is no count of tasks") as refused:
        read({**LAST_OF_FIVE, "SLURM_STEP_TASKS_PER_NODE": text}, "n1")
    assert len(str(refused.value)) < 300
