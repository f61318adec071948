"""What a rank finds in its environment."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent.desired import FACTS, RENDEZVOUS, desired

from holdfast._base.job_file.rank_variables import OUTPUT, purpose_of
from holdfast._session.assignment import Launch, Phase, Rendezvous, Task
from holdfast_agent.core.launch.cluster_variables import VALUE_MAX_BYTES
from holdfast_agent.core.launch.environment import plan_ranks

PYTHON = Task(("python",))


def planned(process: Task = PYTHON, facts: Any = FACTS, **changes: Any) -> list[dict[str, str]]:
    """The environments of a launch's ranks."""
    launch = Launch(process, first_rank=0, processes=1, world_size=1, rendezvous=RENDEZVOUS)
    return [rank.env for rank in plan_ranks(desired(Phase.RUN, 3, launch=replace(launch, **changes)), facts)]


def test_contract_of_holdfast() -> None:
    env = planned(restart_count=2, last_end="HANG")[0]
    assert {name: value for name, value in env.items() if name.startswith("HOLDFAST_")} == {
        "HOLDFAST_JOB": "job-1",
        "HOLDFAST_ATTEMPT": "1",
        "HOLDFAST_GENERATION": "3",
        "HOLDFAST_RESTART_COUNT": "2",
        "HOLDFAST_LAST_END": "HANG",
        "HOLDFAST_WORKER": "workerpool0-0",
        "HOLDFAST_HOST": "host-0",
        "HOLDFAST_RENDEZVOUS_SECRET": "s3cret",
        "HOLDFAST_PROGRESS_DIR": "/logs/job-1/g3/workerpool0-0.progress",
    }
    assert env["CLOUD_ML_JOB_ID"] == "job-1"


def test_starts_and_schedulings_have_the_names_of_another_service_too() -> None:
    names = ("MA_PROC_START_CNT", "MA_SCHEDULE_CNT")
    assert [planned(process_starts=2)[0].get(name) for name in names] == ["2", "1"]
    assert [planned()[0].get(name) for name in names] == [None, "1"], "an older controller doesn't count them"


def test_contract_of_torch() -> None:
    envs = planned(first_rank=4, processes=2, world_size=8, worker_index=2, worker_count=4)
    names = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
    assert [[env[name] for name in names] for env in envs] == [
        ["10.0.0.1", "20001", "4", "8", "0", "2", "2"],
        ["10.0.0.1", "20001", "5", "8", "1", "2", "2"],
    ]
    assert [env["TORCHELASTIC_ERROR_FILE"] for env in envs] == [
        "/logs/job-1/g3/workerpool0-0.progress/r4.json",
        "/logs/job-1/g3/workerpool0-0.progress/r5.json",
    ]


WORLD = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "GROUP_RANK")
LOCAL = ("LOCAL_RANK", "LOCAL_WORLD_SIZE")


@pytest.mark.parametrize("pool", [2, 3])
def test_parameter_servers_and_evaluators_have_no_place_in_torchs_world(pool: int) -> None:
    [env] = planned(pool=pool, first_rank=3, world_size=3, worker_index=3, worker_count=3)
    assert not env.keys() & {*WORLD, *LOCAL}, "what torch would take for a world that waits for it"
    assert env["HOLDFAST_RANK"] == "3"
    assert env["TORCHELASTIC_ERROR_FILE"].endswith("/r3.json")
    several = planned(pool=pool, first_rank=3, processes=2, world_size=3, worker_index=3, worker_count=3)
    assert not any(env.keys() & set(WORLD) for env in several)
    assert [[env[name] for name in ("HOLDFAST_RANK", *LOCAL)] for env in several] == [
        ["3", "0", "2"],
        ["4", "1", "2"],
    ]


@pytest.mark.parametrize("pool", [0, 1])
def test_chief_and_workers_are_all_of_torchs_world(pool: int) -> None:
    [env] = planned(pool=pool, first_rank=pool, world_size=3, worker_index=pool, worker_count=3)
    assert [env[name] for name in (*WORLD[2:], *LOCAL)] == [str(pool), "3", str(pool), "0", "1"]
    assert "HOLDFAST_RANK" not in env


ROLES = ("chief", "worker", "ps", "evaluator")
ADDRESSES = (("a:1",), ("b:2", "c:3"), ("d:4",), ("e:5", "f:6"))


@pytest.mark.parametrize("present", [(0, *rest) for n in range(4) for rest in itertools.combinations((1, 2, 3), n)])
def test_contract_of_tensorflow_and_the_reference(present: tuple[int, ...]) -> None:
    pools = tuple(addresses if pool in present else () for pool, addresses in enumerate(ADDRESSES))
    rendezvous = Rendezvous("a", 9, "s", pools)
    for pool in present:
        for index, address in enumerate(pools[pool]):
            env = planned(pool=pool, replica=index, rendezvous=rendezvous, spec_json='{"x": 1}')[0]
            assert json.loads(env["TF_CONFIG"]) == {
                "cluster": {ROLES[each]: list(pools[each]) for each in present if ROLES[each] != "evaluator"},
                "task": {"type": ROLES[pool], "index": index},
                "job": {"x": 1},
                "environment": "cloud",
            }
            assert json.loads(env["CLUSTER_SPEC"]) == {
                "cluster": {f"workerpool{each}": list(pools[each]) for each in present},
                "environment": "cloud",
                "task": {"type": f"workerpool{pool}", "index": index},
                "job": '{"x": 1}',
                "open_ports": [int(address[-1])],
            }


@pytest.mark.parametrize(
    ("prefix", "below"),
    [
        ("/data/out", "/data/out"),
        ("/data/out//", "/data/out"),
        ("/", ""),
        ("file:///data/my%20r%C3%BCn", "/data/my rün"),
        ("gs://bucket/run%201/", "gs://bucket/run%201"),
    ],
)
def test_results_go_below_the_prefix_that_the_job_names(prefix: str, below: str) -> None:
    env = planned(output_uri=prefix)[0]
    assert {name: value for name, value in env.items() if name.startswith("AIP_")} == {
        "AIP_MODEL_DIR": f"{below}/model/",
        "AIP_CHECKPOINT_DIR": f"{below}/checkpoints/",
        "AIP_TENSORBOARD_LOG_DIR": f"{below}/logs/",
    }


def test_a_job_without_an_output_directory_may_set_its_variables_itself() -> None:
    process = Task(("python",), env=(("AIP_MODEL_DIR", "/mine"),))
    assert planned(process)[0]["AIP_MODEL_DIR"] == "/mine"
    assert planned(process, output_uri="/ours")[0]["AIP_MODEL_DIR"] == "/ours/model/"
    assert "AIP_CHECKPOINT_DIR" not in planned(process)[0]


def test_job_text_that_no_variable_can_hold_is_left_out() -> None:
    env = planned(spec_json="x" * VALUE_MAX_BYTES)[0]
    assert json.loads(env["CLUSTER_SPEC"])["job"] == ""
    assert json.loads(env["TF_CONFIG"])["job"] == {}
    env = planned(spec_json=json.dumps({"x": "y" * VALUE_MAX_BYTES}))[0]
    assert json.loads(env["TF_CONFIG"])["job"] == {}
    assert all(len(value) < VALUE_MAX_BYTES for value in env.values())


def test_addresses_that_no_variable_can_hold_are_left_out_and_the_ranks_start() -> None:
    addresses = tuple(f"host-{number}.example.org:20001" for number in range(8_192))
    many = Rendezvous("10.0.0.1", 20001, "s3cret", ((), addresses))
    env = planned(rendezvous=many)[0]
    assert {"TF_CONFIG", "CLUSTER_SPEC"}.isdisjoint(env)
    assert env["MASTER_ADDR"] == "10.0.0.1"
    subprocess.run(["/bin/true"], env=env, check=True)


@pytest.mark.parametrize(
    ("changes", "threads"),
    [
        ({}, "16"),
        ({"processes": 5}, "3"),
        ({"processes": 32}, "1"),
        ({"cpu_count": 4, "processes": 2}, "2"),
        ({"task": Task(("torchrun", "train.py")), "gpus": ("a", "b", "c", "d")}, "4"),
        ({"task": Task(("./run.sh",)), "gpus": ("a", "b", "c", "d")}, "4"),
        ({"gpus": ("a", "b", "c", "d")}, "16"),
    ],
)
def test_threads_are_cores_by_ranks(changes: dict[str, Any], threads: str) -> None:
    assert planned(**changes)[0]["OMP_NUM_THREADS"] == threads


@pytest.mark.parametrize(
    ("names", "gpus", "expected"),
    [
        ({}, (), (None, None)),
        ({"GPU-a": "0", "GPU-b": "1"}, (), ("PCI_BUS_ID", "")),
        ({"GPU-a": "0", "GPU-b": "1"}, ("GPU-b", "GPU-a"), ("PCI_BUS_ID", "1,0")),
        ({"MIG-a": "MIG-a"}, ("MIG-a",), ("PCI_BUS_ID", "MIG-a")),
    ],
)
def test_gpus_are_indices_and_mig_instances_uuids(
    names: dict[str, str], gpus: tuple[str, ...], expected: tuple[str | None, str | None]
) -> None:
    env = planned(facts=replace(FACTS, gpu_names=names), gpus=gpus)[0]
    assert (env.get("CUDA_DEVICE_ORDER"), env.get("CUDA_VISIBLE_DEVICES")) == expected


def test_interface_is_named_only_where_the_host_names_one() -> None:
    assert "GLOO_SOCKET_IFNAME" not in planned()[0]
    env = planned(facts=replace(FACTS, data_interface="eth1"))[0]
    assert env["GLOO_SOCKET_IFNAME"] == env["NCCL_SOCKET_IFNAME"] == "eth1"


@pytest.mark.parametrize(
    ("command", "processes", "gpus", "expected"),
    [
        (("torchrun",), 1, ("a", "b"), {"NNODES": "2", "NODE_RANK": "1", "NPROC_PER_NODE": "2"}),
        (("python", "-m", "torch.distributed.run"), 1, (), {"NNODES": "2", "NODE_RANK": "1"}),
        (("bash", "run.sh"), 1, ("a", "b"), {"NNODES": "2", "NODE_RANK": "1", "NPROC_PER_NODE": "2"}),
        (("python", "launch.py"), 1, ("a",), {"NNODES": "2", "NODE_RANK": "1", "NPROC_PER_NODE": "1"}),
        (("./run.sh",), 2, ("a", "b"), {"NNODES": "4", "NODE_RANK": "2", "NPROC_PER_NODE": "1"}),
    ],
)
def test_launcher_spans_the_gang_also_from_behind_a_script(
    command: tuple[str, ...], processes: int, gpus: tuple[str, ...], expected: dict[str, str]
) -> None:
    world: dict[str, Any] = {"processes": processes, "world_size": 2 * processes, "first_rank": processes}
    env = planned(Task(command), gpus=gpus, worker_count=2, worker_index=1, **world)[0]
    address = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "20001"}
    found = {name.removeprefix("PET_"): value for name, value in env.items() if name.startswith("PET_")}
    assert found == {**expected, **address}


def test_launcher_of_an_evaluator_starts_a_world_of_its_own() -> None:
    rendezvous = Rendezvous("a", 9, "s", (("a:1",), (), (), ("e:5", "f:6")))
    where = {"pool": 3, "replica": 1, "first_rank": 2, "worker_index": 2, "rendezvous": rendezvous}
    env = planned(Task(("torchrun",)), gpus=("g",), **where)[0]
    assert {name.removeprefix("PET_"): value for name, value in env.items() if name.startswith("PET_")} == {
        "NNODES": "1",
        "NODE_RANK": "0",
        "NPROC_PER_NODE": "1",
        "MASTER_ADDR": "f",
        "MASTER_PORT": "6",
    }


JAX_NAMES = ("JAX_", "OMPI_")


def of_jax(env: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(JAX_NAMES)}


@pytest.mark.parametrize(
    ("gpus", "processes", "devices"),
    [(0, 1, [""]), (4, 1, ["0,1,2,3"]), (4, 4, ["0", "1", "2", "3"]), (4, 2, ["0,1", "2,3"]), (3, 2, ["", ""])],
)
def test_jax_without_arguments_finds_the_gang(gpus: int, processes: int, devices: list[str]) -> None:
    world: dict[str, Any] = {"processes": processes, "world_size": 2 * processes, "first_rank": processes}
    given = tuple(f"gpu{number}" for number in range(gpus))
    envs = planned(Task(("bash", "run.sh")), gpus=given, worker_count=2, worker_index=1, **world)
    for local, (env, ids) in enumerate(zip(envs, devices, strict=True)):
        rank, size = str(processes + local), str(2 * processes)
        assert of_jax(env) == {
            "JAX_COORDINATOR_ADDRESS": "10.0.0.1:20001",
            "JAX_NUM_PROCESSES": size,
            "JAX_PROCESS_ID": rank,
            "OMPI_MCA_orte_hnp_uri": "",
            "OMPI_COMM_WORLD_SIZE": size,
            "OMPI_COMM_WORLD_RANK": rank,
            "OMPI_COMM_WORLD_LOCAL_RANK": str(local),
        } | ({"JAX_LOCAL_DEVICE_IDS": ids} if ids else {})


def test_jax_s_world_is_that_of_chief_and_workers_and_left_to_a_launcher_of_ranks() -> None:
    assert of_jax(planned(pool=3)[0]) == {}
    assert of_jax(planned(Task(("torchrun", "train.py")))[0]) == {}


@pytest.mark.parametrize(
    "name",
    [
        *("OMP_NUM_THREADS", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "PET_NNODES"),
        *("JAX_COORDINATOR_ADDRESS", "OMPI_COMM_WORLD_SIZE"),
    ],
)
def test_names_that_tune_are_the_users(name: str) -> None:
    facts = replace(FACTS, data_interface="eth1")
    assert planned(facts=facts)[0][name] not in ("7", None)
    assert planned(Task(("python",), env=((name, "7"),)), facts)[0][name] == "7"


def test_whatever_beats_the_users_variables_is_refused_at_submission() -> None:
    facts = replace(FACTS, gpu_names={"g": "0"}, data_interface="eth1")
    world: dict[str, Any] = {"gpus": ("g",), "process_starts": 1, "output_uri": "/out"}
    names = planned(facts=facts, **world)[0].keys() | planned(pool=3, facts=facts, **world)[0].keys()
    forged = planned(Task(("python",), env=tuple((name, "forged") for name in names)), facts, **world)[0]
    ours = {name for name, value in forged.items() if value != "forged"}
    assert "RANK" in ours and "AIP_MODEL_DIR" in ours
    assert [name for name in sorted(ours) if not purpose_of(name) and name not in OUTPUT] == []


def test_every_variable_is_on_the_page_of_the_environment() -> None:
    facts = replace(FACTS, gpu_names={"g": "0"}, data_interface="eth1")
    world: dict[str, Any] = {"gpus": ("g",), "process_starts": 1, "output_uri": "/out"}
    names = {name for pool in (0, 3) for name in planned(pool=pool, facts=facts, **world)[0]}
    page = (Path(__file__).parents[4] / "docs/users/environment.md").read_text()
    shown = set(re.findall(r"`([A-Z][A-Za-z_]+\*?)", page))
    families = tuple(name[:-1] for name in shown if name.endswith("*"))
    families = tuple(family for family in families if family != "CONDA_")
    assert len(names) > 40
    assert sorted(name for name in names - shown if not name.startswith(families)) == []


def test_threads_and_interfaces_of_the_admins_file_are_kept() -> None:
    site = {"OMP_NUM_THREADS": "3", "NCCL_SOCKET_IFNAME": "ib0"}
    env = planned(facts=replace(FACTS, data_interface="eth1", site_env=site))[0]
    assert {**site, "GLOO_SOCKET_IFNAME": "eth1"}.items() <= env.items()


def test_layers_win_in_order() -> None:
    facts = replace(FACTS, site_env={"HOME": "/site", "PROXY": "site", "LANG": "site"})
    user = (("PROXY", "user"), ("RANK", "99"), ("PYTHONUNBUFFERED", ""), ("HOLDFAST_JOB", "forged"))
    env = planned(Task(("python",), env=user), facts)[0]
    assert env["HOME"] == "/site"
    assert env["PROXY"] == "user"
    assert env["RANK"] == "0"
    assert env["PYTHONUNBUFFERED"] == ""
    assert env["PYTHONFAULTHANDLER"] == "1"
    assert env["HOLDFAST_JOB"] == "job-1"
    assert env["USER"] == "ada"


def test_references_see_ours_the_hosts_and_earlier_ones() -> None:
    user = (("A", "$(RANK)-$(USER)"), ("B", "$(A)/$$(A)/$(NONE)"))
    process = Task(("run-$(LOCAL_RANK)",), ("--host=$(HOLDFAST_HOST)", "$(B)"), user)
    launch = Launch(process, first_rank=7, processes=1, world_size=8, rendezvous=RENDEZVOUS)
    [rank] = plan_ranks(desired(Phase.RUN, launch=launch), FACTS)
    assert rank.env["B"] == "7-ada/$(A)/$(NONE)"
    assert rank.argv == ("run-0", "--host=host-0", "7-ada/$(A)/$(NONE)")


def test_directories_and_files() -> None:
    launch = Launch(Task(("x",)), first_rank=3, processes=1, world_size=4, rendezvous=RENDEZVOUS)
    [rank] = plan_ranks(desired(Phase.RUN, launch=launch), FACTS)
    assert rank.cwd == "/scratch/job-1"
    assert rank.stdout == "/logs/job-1/g1/workerpool0-0.r3.out"
    assert rank.stderr == "/logs/job-1/g1/workerpool0-0.r3.err"


DIAGNOSTICS = (
    "TORCH_FR_BUFFER_SIZE",
    "TORCH_NCCL_TRACE_BUFFER_SIZE",
    "TORCH_FR_DUMP_TEMP_FILE",
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
    "TORCH_NCCL_DEBUG_INFO_PIPE_FILE",
)


def diagnostics(env: dict[str, str]) -> tuple[str | None, ...]:
    return tuple(env.get(name) for name in DIAGNOSTICS)


def test_gpu_jobs_get_a_flight_recorder_that_can_be_asked() -> None:
    stem = "/logs/job-1/g3/workerpool0-0.progress/nccl_trace_rank_"
    assert diagnostics(planned(gpus=("a",))[0]) == ("2000", "2000", stem, stem, stem)
    assert diagnostics(planned()[0]) == (None,) * 5


@pytest.mark.parametrize("name", ["TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"])
def test_the_users_recorder_size_counts_under_either_name(name: str) -> None:
    env = planned(Task(("python",), env=((name, "0"),)), gpus=("a",))[0]
    assert {env.get(each) for each in DIAGNOSTICS[:2]} == {"0", None}
    site = planned(facts=replace(FACTS, site_env={name: "7"}), gpus=("a",))[0]
    assert {site.get(each) for each in DIAGNOSTICS[:2]} == {"7", None}


def test_the_users_pipe_dump_file_and_ras_address_are_kept() -> None:
    mine = {
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "/p",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/d",
        "NCCL_RAS_ADDR": "h:1",
    }
    env = planned(Task(("python",), env=tuple(mine.items())), gpus=("a",))[0]
    assert {name: env[name] for name in mine} == mine
    assert "TORCH_FR_DUMP_TEMP_FILE" not in env


def test_each_generation_has_a_ras_address_of_its_own() -> None:
    launch = Launch(PYTHON, first_rank=0, processes=1, world_size=1, rendezvous=RENDEZVOUS, gpus=("a",))
    plans = [plan_ranks(desired(Phase.RUN, generation, launch=launch), FACTS) for generation in range(1, 200)]
    addresses = {plan[0].env["NCCL_RAS_ADDR"] for plan in plans}
    assert len(addresses) == 199
    assert all(re.fullmatch(r"127\.[1-9]\d*\.\d+\.[1-9]\d*:28028", address) for address in addresses)
