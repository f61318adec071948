"""What ranks find when ``holdfast run`` starts them on two hosts: environment, addresses, directory, launchers."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cli_cluster import DevCluster

from holdfast_agent.shell.base import topology

PRINT_ENV = "import json, os; print(json.dumps(dict(os.environ)))"


def environments(output: str) -> dict[int, dict[str, str]]:
    """What ``run --all -- python -c PRINT_ENV`` printed, by rank."""
    found = {}
    for line in output.splitlines():
        prefix, rank, text = re.fullmatch(r"(?:\[(workerpool\d+-\d+) r(\d+)\] )?(\{.*\})", line).groups()  # type: ignore[union-attr]
        env = json.loads(text)
        assert prefix is None or (prefix, rank) == (env["HOLDFAST_WORKER"], env["RANK"])
        found[int(env["RANK"])] = env
    return found


def run_env(cluster: DevCluster, *args: str, **more: Any) -> dict[int, dict[str, str]]:
    done = cluster.holdfast("run", *args, "--all", "--", sys.executable, "-c", PRINT_ENV, **more)
    return environments(done.stdout)


def test_two_ranks_have_a_core_each_and_the_job_says_which(cluster: DevCluster) -> None:
    if len(topology.read().cores) < 2:
        pytest.skip("this machine has one core")
    said = "print(*(l.split()[1] for l in open('/proc/self/status') if l.startswith('Cpus_allowed_list')))"
    options = ("--processes-per-worker", "2", "--cpus", "2", "--numa-binding", "exclusive", "--all")
    done = cluster.holdfast("run", *options, "--", sys.executable, "-c", said)
    found = dict(re.findall(r"r(\d)\] (\S+)", done.stdout))
    assert sorted(found) == ["0", "1"]
    assert found["0"] != found["1"]
    job = cluster.ask(lambda client: client.newest_jobs(1))[0].id
    page = cluster.holdfast("job", "show", job).stdout
    for rank, bound in found.items():
        assert f"Rank {rank}: CPUs {bound} of its own" in page
    ranks = json.loads(cluster.holdfast("job", "show", job, "-o", "json").stdout)["workers"][0]["ranks"]
    assert [each["binding"]["cpus"] for each in ranks] == [found["0"], found["1"]]
    refused = cluster.holdfast("run", "--numa-binding", "socket", "--", "true", check=False)
    assert refused.returncode == 2
    assert "'socket' is not one of 'none', 'node', 'exclusive'" in refused.stderr


def test_four_ranks_on_two_hosts_know_their_ranks_gpus_and_addresses(cluster: DevCluster) -> None:
    envs = run_env(cluster, "--replicas", "2", "--gpus", "2", "--processes-per-worker", "2")
    assert sorted(envs) == [0, 1, 2, 3]
    job = cluster.ask(lambda client: client.newest_jobs(1))[0].id
    for rank, env in envs.items():
        worker = rank // 2
        assert {name: env[name] for name in ("LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK")} == {
            "LOCAL_RANK": str(rank % 2),
            "WORLD_SIZE": "4",
            "LOCAL_WORLD_SIZE": "2",
            "GROUP_RANK": str(worker),
        }
        assert (env["CUDA_VISIBLE_DEVICES"], env["CUDA_DEVICE_ORDER"]) == ("0,1", "PCI_BUS_ID")
        assert {name: value for name, value in env.items() if name.startswith("HOLDFAST_")} == {
            "HOLDFAST_JOB": job,
            "HOLDFAST_ATTEMPT": "1",
            "HOLDFAST_GENERATION": "1",
            "HOLDFAST_RESTART_COUNT": "0",
            "HOLDFAST_LAST_END": "",
            "HOLDFAST_WORKER": f"workerpool{worker}-0",
            "HOLDFAST_HOST": env["HOLDFAST_HOST"],
            "HOLDFAST_RENDEZVOUS_SECRET": envs[0]["HOLDFAST_RENDEZVOUS_SECRET"],
            "HOLDFAST_PROGRESS_DIR": env["HOLDFAST_PROGRESS_DIR"],
        }
        assert env["HOLDFAST_PROGRESS_DIR"].endswith(f"/{job}/g1/workerpool{worker}-0.progress")
        assert env["CLOUD_ML_JOB_ID"] == job
        cores = len(os.sched_getaffinity(0))
        assert env["OMP_NUM_THREADS"] == str(max(1, cores // 2))
    assert [envs[rank]["HOLDFAST_HOST"] for rank in (0, 1)] != [envs[rank]["HOLDFAST_HOST"] for rank in (2, 3)]
    assert {env["HOLDFAST_HOST"] for env in envs.values()} == {"host-0", "host-1"}
    assert {env["MASTER_ADDR"] for env in envs.values()} == {"127.0.0.1"}
    assert len({env["MASTER_PORT"] for env in envs.values()}) == 1
    assert len({env["TORCHELASTIC_ERROR_FILE"] for env in envs.values()}) == 4
    assert len(envs[0]["HOLDFAST_RENDEZVOUS_SECRET"]) >= 32
    port_range = re.search(r'port_range = "(\d+)-(\d+)"', agent_toml(cluster, envs[0]["HOLDFAST_HOST"]).read_text())
    assert port_range and int(port_range[1]) <= int(envs[0]["MASTER_PORT"]) <= int(port_range[2])


def agent_toml(cluster: DevCluster, host: str) -> Path:
    return cluster.dir / "hosts" / host / "agent.toml"


def test_cluster_spec_and_tf_config_name_every_worker(cluster: DevCluster) -> None:
    envs = run_env(cluster, "--replicas", "3", "--name", "named")
    chief, *workers = (json.loads(envs[rank]["TF_CONFIG"]) for rank in range(3))
    assert [each["task"] for each in (chief, *workers)] == [
        {"type": "chief", "index": 0},
        {"type": "worker", "index": 0},
        {"type": "worker", "index": 1},
    ]
    assert chief["cluster"] == workers[0]["cluster"] == workers[1]["cluster"]
    assert [len(chief["cluster"][task]) for task in ("chief", "worker")] == [1, 2]
    specs = [json.loads(envs[rank]["CLUSTER_SPEC"]) for rank in range(3)]
    assert [spec["task"] for spec in specs] == [
        {"type": "workerpool0", "index": 0},
        {"type": "workerpool1", "index": 0},
        {"type": "workerpool1", "index": 1},
    ]
    for spec in specs:
        assert spec["cluster"] == {
            "workerpool0": chief["cluster"]["chief"],
            "workerpool1": chief["cluster"]["worker"],
        }
        assert spec["environment"] == "cloud"
        assert json.loads(spec["job"])["workerPoolSpecs"][1]["replicaCount"] in (2, "2")
    addresses = [spec["open_ports"] for spec in specs]
    flat = [*specs[0]["cluster"]["workerpool0"], *specs[0]["cluster"]["workerpool1"]]
    assert flat == [f"127.0.0.1:{ports[0]}" for ports in addresses]
    assert len(set(flat)) == 3


def test_one_rank_per_gpu_unless_told_otherwise(cluster: DevCluster) -> None:
    envs = run_env(cluster, "--gpus", "2")
    assert [(e["LOCAL_RANK"], e["CUDA_VISIBLE_DEVICES"]) for _, e in sorted(envs.items())] == [
        ("0", "0,1"),
        ("1", "0,1"),
    ]
    alone = run_env(cluster)
    assert [(e["WORLD_SIZE"], e["CUDA_VISIBLE_DEVICES"]) for e in alone.values()] == [("1", "")]


def test_two_workers_on_one_host_get_different_gpus(cluster: DevCluster) -> None:
    envs = run_env(cluster, "--gpus", "1", "--replicas", "4")
    seen = {(env["HOLDFAST_HOST"], env["CUDA_VISIBLE_DEVICES"]) for env in envs.values()}
    assert seen == {(host, gpu) for host in ("host-0", "host-1") for gpu in "01"}


def test_environment_is_ours_alone_but_for_what_the_user_sends(cluster: DevCluster) -> None:
    sender = {
        "CONDA_PREFIX": "/conda",
        "LD_LIBRARY_PATH": "/lib64",
        "VIRTUAL_ENV": "/venv",
        "SECRET": "s",
        "FOO": "f",
    }
    args = ("--env", "A=1=$(B) $HOME $$", "--env", "FOO", "--env", "OMP_NUM_THREADS=7", "--env", "E=")
    (env,) = run_env(cluster, *args, env=sender).values()
    kept = ("CONDA_PREFIX", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
    assert {name: env[name] for name in kept} == {name: sender[name] for name in kept}
    assert env["PATH"] == cluster.env["PATH"]
    assert "SECRET" not in env
    assert "HOLDFAST_CONFIG" not in env
    assert (env["A"], env["FOO"], env["E"]) == ("1=$(B) $HOME $$", "f", "")
    assert env["OMP_NUM_THREADS"] == "7"


def test_a_variable_that_tells_ranks_apart_is_refused(cluster: DevCluster) -> None:
    done = cluster.holdfast("run", "--env", "RANK=9", "--", "true", check=False)
    assert done.returncode == 2
    assert "--env: RANK tells each rank which one it is; Holdfast sets it." in done.stderr


def test_generation_and_last_end_are_told_to_the_next(cluster: DevCluster) -> None:
    script = f'{PRINT_ENV}; raise SystemExit(os.environ["HOLDFAST_GENERATION"] == "1")'
    done = cluster.holdfast("run", "--", sys.executable, "-c", script)
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    names = ("HOLDFAST_ATTEMPT", "HOLDFAST_GENERATION", "HOLDFAST_RESTART_COUNT", "HOLDFAST_LAST_END")
    assert [first[name] for name in names] == ["1", "1", "0", ""]
    assert [second[name] for name in names] == ["1", "2", "1", "NONZERO_EXIT"]
    assert first["MASTER_PORT"] != second["MASTER_PORT"]
    assert first["HOLDFAST_RENDEZVOUS_SECRET"] != second["HOLDFAST_RENDEZVOUS_SECRET"]


def test_admins_file_and_data_interface_reach_the_ranks(make_cluster: Any, tmp_path: Path) -> None:
    own = make_cluster(hosts=1, gpus=0)
    (tmp_path / "site.env").write_text("# ours\nSITE=here\nNCCL_DEBUG=WARN\nRANK=7\n")
    assert 'data_interface = "lo"' in agent_toml(own, "host-0").read_text()
    with agent_toml(own, "host-0").open("a") as file:
        file.write(f'\nenv_file = "{tmp_path}/site.env"\n')
    own.kill_agent("host-0")
    own.restart()
    (env,) = run_env(own, "--env", "NCCL_DEBUG=INFO").values()
    assert (env["GLOO_SOCKET_IFNAME"], env["NCCL_SOCKET_IFNAME"]) == ("lo", "lo")
    assert (env["SITE"], env["NCCL_DEBUG"], env["RANK"]) == ("here", "INFO", "0")


def test_ranks_run_in_the_users_directory(cluster: DevCluster, tmp_path: Path) -> None:
    assert cluster.holdfast("run", "--", "pwd", cwd=tmp_path).stdout == f"{tmp_path}\n"
    (tmp_path / "inner").mkdir()
    assert cluster.holdfast("run", "--workdir", "inner", "--", "pwd", cwd=tmp_path).stdout == f"{tmp_path}/inner\n"


def test_dollars_arrive_as_they_were_typed(cluster: DevCluster) -> None:
    words = ("$(date)", "$$", "$$(HOME)", "$(HOME)", "$HOME", "${HOME}", "$", "'\"\\\n", "ü☃", "")
    done = cluster.holdfast("run", "--", sys.executable, "-c", "import sys; print(sys.argv[1:])", *words)
    assert done.stdout == f"{list(words)}\n"


# Launchers


# One write a line: torchrun's processes share a file.
TORCHRUN = """
import os
import sys
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank())])
dist.all_reduce(total)
host, local = os.environ["HOLDFAST_HOST"], os.environ["LOCAL_RANK"]
line = f"rank {dist.get_rank()} of {dist.get_world_size()} on {host} local {local}: {total.item():g}"
sys.stdout.write(line + "\\n")
dist.destroy_process_group()
"""


# Without torch, which takes a rank a second and a half of the processor.
NUMBERS = """
import os
import sys
env = os.environ
line = f"rank {env['RANK']} of {env['WORLD_SIZE']} on {env['HOLDFAST_HOST']} local {env['LOCAL_RANK']}"
sys.stdout.write(line + "\\n")
"""


TORCHRUN_PATH = Path(sys.executable).with_name("torchrun")


@pytest.mark.require("torch")
@pytest.mark.parametrize(
    ("command", "script", "summed"),
    [
        pytest.param((str(TORCHRUN_PATH), "script.py"), TORCHRUN, ": 6", id="bare"),
        pytest.param(("./run.sh",), NUMBERS, "", id="behind a script"),
        pytest.param(("bash", "-lc", f"exec {TORCHRUN_PATH} script.py"), NUMBERS, "", id="behind a shell"),
    ],
)
def test_torchrun_spans_the_gang(
    cluster: DevCluster, tmp_path: Path, command: tuple[str, ...], script: str, summed: str
) -> None:
    (tmp_path / "script.py").write_text(script)
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\nset -e\n{TORCHRUN_PATH} script.py\n")
    (tmp_path / "run.sh").chmod(0o755)
    args = ("run", "--replicas", "2", "--gpus", "2", "--max-restarts", "0", "--all", "--", *command)
    done = cluster.holdfast(*args, cwd=tmp_path, timeout=120)
    # Gloo has its say on stdout, too.
    said = sorted(re.findall(r"^\[\S+ r\d\] (rank .*)$", done.stdout, re.MULTILINE))
    hosts = [line.split(" on ")[1].split()[0] for line in said]
    assert said == [f"rank {r} of 4 on {hosts[r]} local {r % 2}{summed}" for r in range(4)]
    assert hosts[0] == hosts[1] != hosts[2] == hosts[3]


@pytest.mark.require("torch")
def test_hosts_that_train_apart_are_told(cluster: DevCluster, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import time; time.sleep(300)")
    (tmp_path / "run.sh").write_text(
        f"{TORCHRUN_PATH} --rdzv-backend c10d --rdzv-endpoint localhost:0 --nnodes 1 --nproc-per-node 2 "
        f"{tmp_path}/script.py"
    )
    with cluster.typing("run", "--replicas", "2", "--", "bash", str(tmp_path / "run.sh")) as run:
        apart = "trains apart from the rest of the job: 2 processes there are a whole world of their own"
        cluster.until(lambda: apart in run.err.read_text(), 60)
        cluster.holdfast("cancel", cluster.ask(lambda client: client.newest_jobs(1))[0].id)
        assert run.ends(60) != 0
    assert run.err.read_text().count("trains apart") == 1


@pytest.mark.require("torch")
def test_torchrun_that_would_wait_for_its_peers_in_vain_is_told(cluster: DevCluster, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(f"{TORCHRUN_PATH} --standalone --nproc-per-node 2 {tmp_path}/script.py")
    with cluster.typing("run", "--replicas", "2", "--", "bash", str(tmp_path / "run.sh")) as run:
        apart = "stays apart from the rest of the job: what starts its processes keeps to its own host"
        cluster.until(lambda: apart in run.err.read_text(), 60)
        cluster.holdfast("cancel", cluster.ask(lambda client: client.newest_jobs(1))[0].id)
        assert run.ends(60) != 0
    assert run.err.read_text().count("stays apart") == 1


@pytest.mark.require("torch")
def test_torchrun_in_each_of_several_processes_is_one_world_too(cluster: DevCluster, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(NUMBERS)
    hidden = f"import os; os.execv({str(TORCHRUN_PATH)!r}, ['torchrun', 'script.py'])"
    args = ("run", "--replicas", "2", "--processes-per-worker", "2", "--max-restarts", "0", "--all")
    done = cluster.holdfast(*args, "--", sys.executable, "-c", hidden, cwd=tmp_path, timeout=120)
    said = sorted(re.findall(r"^\[\S+ r\d\] (rank \d of \d) on \S+ local \d$", done.stdout, re.MULTILINE))
    assert said == [f"rank {rank} of 4" for rank in range(4)]


# Roles

ROLE = """
import json, os, sys
import torch
import torch.distributed as dist
role = json.loads(os.environ["TF_CONFIG"])["task"]["type"]
if role in ("chief", "worker"):
    dist.init_process_group("gloo")
    total = torch.tensor([float(dist.get_rank() + 1)])
    dist.all_reduce(total)
    said = f"{dist.get_rank()} of {dist.get_world_size()}: {total.item():g}"
    dist.destroy_process_group()
else:
    try:
        dist.init_process_group("gloo")
    except ValueError as error:
        said = f"no rank {os.environ['HOLDFAST_RANK']}: {error}"
sys.stdout.write(f"{os.environ['HOLDFAST_WORKER']} {role} {said}\\n")
"""


@pytest.mark.require("torch")
@pytest.mark.parametrize("skipped", [(), (2,), (1, 3)])
def test_collectives_of_chief_and_workers_wait_for_no_other_role(
    cluster: DevCluster, tmp_path: Path, skipped: tuple[int, ...]
) -> None:
    task = {"command": [sys.executable, "-c", ROLE.replace("$", "$$")]}
    counts = [1, 2, 1, 1]
    pools = [
        {} if number in skipped else {"replicaCount": count, "processSpec": task}
        for number, count in enumerate(counts)
    ]
    job = tmp_path / "roles.json"
    job.write_text(json.dumps({"workerPoolSpecs": pools, "successPolicy": "ALL"}))
    done = cluster.holdfast("submit", "--wait", "--all", str(job), timeout=120)
    said = sorted(re.findall(r"^\[\S+ r\d+\] (workerpool.*)$", done.stdout, re.MULTILINE))
    in_world = [
        name for number in (0, 1) if number not in skipped for name in [f"workerpool{number}"] * counts[number]
    ]
    size = len(in_world)
    world = [
        f"workerpool0-0 chief 0 of {size}: {size * (size + 1) // 2}",
        *(f"workerpool1-{n} worker {n + 1} of {size}: {size * (size + 1) // 2}" for n in range(size - 1)),
    ]
    assert said[:size] == world
    others = [(number, role) for number, role in ((2, "ps"), (3, "evaluator")) if number not in skipped]
    assert [re.sub(r": .*environment variable (\w+) expected.*", r": \1", line) for line in said[size:]] == [
        f"workerpool{number}-0 {role} no rank {rank}: RANK" for rank, (number, role) in enumerate(others, size)
    ]


def test_ranks_of_a_batch_script_run_it_with_the_numbers_of_slurm(cluster: DevCluster, tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text(f"""\
#!/bin/bash
#SBATCH -J fine-tune -N 2 --ntasks=4 --gpus-per-node=2 --partition=gpu
export SEEN="$SLURM_PROCID of $SLURM_NTASKS, $SLURM_LOCALID on $SLURM_NODEID"
srun --label {sys.executable} -c 'import os; print(os.environ["SEEN"])'
""")
    done = cluster.holdfast("submit", "job.sh", "--wait", "--all", cwd=tmp_path)
    assert "job.sh: nothing here corresponds to --partition" in done.stderr
    said = sorted(line.partition("] ")[2] for line in done.stdout.splitlines())
    assert said == [f"{rank} of 4, {rank % 2} on {rank // 2}" for rank in range(4)]
    assert cluster.job(cluster.ask(lambda client: client.newest_jobs(1))[0].id)["displayName"] == "fine-tune"
