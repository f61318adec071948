"""Whether work may run in containers. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast._base.dataclass import dataclass
from holdfast.doctor.findings import Finding, needs_root, ok, warning


@dataclass(frozen=True, slots=True)
class ContainerFacts:
    """Facts on containers; ``problem`` says why the agent can run none, empty where it can."""

    enabled: bool = True
    root: bool = True
    problem: str = ""
    gpu_problem: str | None = None
    """Why containers can't have the GPUs; empty where they can, None where there are none."""


def check(facts: ContainerFacts) -> Iterator[Finding]:
    """Check the container engine, then its access to the GPUs."""
    if not facts.enabled:
        yield ok("containers.engine", "switched off in agent.toml")
        return
    if not facts.root:
        yield needs_root("containers.engine", "only a root agent has containers")
        return
    if facts.problem:
        why = "Jobs with a containerSpec go to other hosts; all else runs."
        fix = (
            "apt install podman crun catatonit",
            "or, if you want none: agent.toml: [containers] enabled = false",
        )
        yield warning("containers.engine", facts.problem, why, *fix)
        return
    yield ok("containers.engine", "podman, crun and catatonit are there")
    if facts.gpu_problem:
        why = "Containers of jobs that ask for GPUs are refused."
        mend = "nvidia-ctk cdi generate --device-name-strategy=uuid --output=/etc/cdi/nvidia.yaml"
        yield warning("containers.gpus", facts.gpu_problem, why, mend)
    elif facts.gpu_problem is not None:
        yield ok("containers.gpus", "CDI describes the GPUs")
