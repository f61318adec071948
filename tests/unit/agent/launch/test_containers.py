"""What a container changes for a rank, and what it sees of its host."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent.desired import FACTS, KEY, LAUNCH, RENDEZVOUS, desired

from holdfast._session.assignment import Phase, Task
from holdfast._session.reports import WorkerId
from holdfast.errors import ConfigError
from holdfast_agent.core.launch.containers import container_name
from holdfast_agent.core.launch.environment import plan_ranks
from holdfast_agent.core.model.launch import Container, RankLaunch
from holdfast_agent.core.worker import actions as act
from holdfast_agent.core.worker import events as ev
from holdfast_agent.core.worker.reactor import Reactor
from holdfast_agent.shell.containers import containers, mounts
from holdfast_agent.shell.containers.containers import ContainerSettings, cdi_problem
from holdfast_agent.shell.containers.mounts import Mount, site_mount
from holdfast_agent.shell.prepare.launch_order import Means, launch_order

IN_IMAGE = replace(LAUNCH, task=Task((), image="registry.example/train:1"), rendezvous=RENDEZVOUS)
BOX = Container(
    id="c0ffee",
    pid=4711,
    start_ticks=99,
    env=(("PATH", "/opt/bin:/bin"), ("HOME", "/root"), ("TERM", "xterm"), ("LANG", "de_DE.UTF-8")),
    entrypoint=("/start", "$(RANK)"),
    command=("--default",),
)


def ranks(process: Task, container: Container = BOX, **changes: Any) -> tuple[RankLaunch, ...]:
    launch = replace(IN_IMAGE, task=replace(process, image=IN_IMAGE.task.image), **changes)
    return plan_ranks(desired(Phase.RUN, 3, launch=launch), FACTS, container)


# --- The rank -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("process", "argv"),
    [
        (Task(()), ("/start", "$(RANK)", "--default")),
        (Task((), ("--rank", "$(RANK)")), ("/start", "$(RANK)", "--rank", "0")),
        (Task(("python",)), ("python",)),
        (Task(("python",), ("train.py",)), ("python", "train.py")),
    ],
)
def test_image_says_what_the_job_leaves_out(process: Task, argv: tuple[str, ...]) -> None:
    assert ranks(process)[0].argv == argv


def test_nothing_to_run_is_told() -> None:
    with pytest.raises(ValueError, match=r"registry\.example/train:1 names no command"):
        ranks(Task(()), replace(BOX, entrypoint=(), command=()))


def test_variables_of_the_image_stand_between_the_hosts_and_the_users() -> None:
    process = Task(("python",), env=(("LANG", "C"), ("SEEN", "$(PATH)")))
    env = ranks(process)[0].env
    assert (env["PATH"], env["LANG"], env["SEEN"]) == ("/opt/bin:/bin", "C", "/opt/bin:/bin")
    assert (env["HOME"], env["SHELL"], env["HOLDFAST_CONTAINER"]) == ("/scratch/job-1", "/bin/sh", "c0ffee")
    assert "TERM" not in env


def test_rank_starts_where_the_image_says_or_in_the_jobs_scratch_directory() -> None:
    assert ranks(Task(()))[0].cwd == "/scratch/job-1"
    assert ranks(Task(()), replace(BOX, working_directory="/workspace"))[0].cwd == "/workspace"


def test_gpus_are_counted_from_zero_inside_and_mig_keeps_its_names() -> None:
    facts = replace(FACTS, gpu_names={"GPU-a": "5", "GPU-b": "7", "MIG-c": "MIG-c"})

    def visible(*gpus: str) -> str:
        launch = replace(IN_IMAGE, gpus=gpus)
        return plan_ranks(desired(Phase.RUN, 3, launch=launch), facts, BOX)[0].env["CUDA_VISIBLE_DEVICES"]

    assert visible("GPU-b", "GPU-a") == "0,1"
    assert visible("MIG-c") == "MIG-c"


def test_shim_is_told_of_the_container_that_the_preparation_found() -> None:
    reactor = Reactor(FACTS)
    reactor.step(ev.Welcomed(1), 0.0)
    launch = replace(IN_IMAGE, rendezvous=None)
    reactor.step(ev.Assigned(desired(Phase.PREPARE, launch=launch)), 0.0)
    reactor.step(ev.WorkerPrepared(KEY, 1, 20000, 20001, 77, BOX), 0.0)
    actions = reactor.step(ev.Assigned(desired(Phase.RUN, launch=IN_IMAGE)), 0.0)
    (order,) = [launch_order(a, FACTS.user, Means()) for a in actions if isinstance(a, act.LaunchRanks)]
    assert order["container"] == {"pid": 4711, "start_ticks": 99}
    assert order["ranks"][0]["env"]["HOLDFAST_CONTAINER"] == "c0ffee"


def test_another_image_is_prepared_with_all_checks() -> None:
    reactor = Reactor(FACTS)
    reactor.step(ev.Assigned(desired(Phase.PREPARE, launch=replace(IN_IMAGE, rendezvous=None))), 0.0)
    reactor.step(ev.WorkerPrepared(KEY, 1, 20000, 20001, 77, BOX), 0.0)

    def again(generation: int, image: str) -> bool:
        launch = replace(IN_IMAGE, rendezvous=None, task=Task((), image=image))
        actions = reactor.step(ev.Assigned(desired(Phase.PREPARE, generation, launch=launch)), 0.0)
        (prepare,) = [action for action in actions if isinstance(action, act.Prepare)]
        return prepare.known_good

    assert again(2, IN_IMAGE.task.image)
    reactor.step(ev.WorkerPrepared(KEY, 2, 20000, 20001, 77, BOX), 0.0)
    assert not again(3, "registry.example/train:2")


# --- The host -----------------------------------------------------------------------------------------------------


def test_container_sees_scratch_output_and_where_results_go() -> None:
    seen = mounts.for_worker(FACTS, KEY, replace(IN_IMAGE, output_uri="file:///data/a%20b"))
    assert [mount.target for mount in seen] == ["/scratch/job-1", "/logs/job-1", "/data/a b"]
    assert len(mounts.for_worker(FACTS, KEY, replace(IN_IMAGE, output_uri="gs://bucket/out"))) == 2


@pytest.mark.parametrize(
    ("text", "mount"),
    [
        ("/data", Mount("/data", "/data")),
        ("/data:ro", Mount("/data", "/data", read_only=True)),
        ("/data:/mnt", Mount("/data", "/mnt")),
        ("/data:/mnt:ro", Mount("/data", "/mnt", read_only=True)),
    ],
)
def test_mounts_of_the_site(text: str, mount: Mount) -> None:
    assert site_mount(text) == mount


@pytest.mark.parametrize("text", ["data", "/data:mnt", "", "/data:/mnt:rw", ":/mnt"])
def test_what_is_no_mount_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is no mount"):
        site_mount(text)


def test_paths_with_commas_and_quotes_stay_one_field() -> None:
    assert Mount('/a,"b', "/c").option() == 'type=bind,"source=/a,""b",destination=/c'


def test_gpus_need_a_cdi_specification_that_names_them(tmp_path: Path) -> None:
    where = [str(tmp_path)]
    assert cdi_problem((), where) == ""
    assert "nvidia-ctk cdi generate" in cdi_problem(("GPU-1",), where)
    assert "simulated" in cdi_problem(("GPU-sim-host-0-0",), where)
    (tmp_path / "nvidia.yaml").write_text("kind: nvidia.com/gpu\ndevices:\n- name: GPU-1\n")
    assert cdi_problem(("GPU-1",), where) == ""
    assert "does not name the GPU GPU-2" in cdi_problem(("GPU-1", "GPU-2"), where)


def test_host_says_why_it_has_no_containers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    def why(**settings: object) -> str:
        return containers.find(ContainerSettings(**settings), "h", tmp_path).problem  # type: ignore[arg-type]

    assert why(podman="/no/podman", init="true") == "/no/podman is not installed"
    assert why(podman="true", init="/no/init") == "/no/init is not installed"
    assert why(enabled=False, podman="true", init="true") == "[containers] enabled = false"
    assert why(podman="true", init="true") == ""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert why(podman="true", init="true") == "its agent is not root"


def test_agents_of_one_machine_don_t_share_names(tmp_path: Path) -> None:
    states = {containers.find(ContainerSettings(), host, tmp_path).state for host in ("a", "b")}
    assert len({container_name(WorkerId("j", "workerpool0-0"), state) for state in states}) == 2
