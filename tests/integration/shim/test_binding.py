"""A rank runs where its order says, before its program's first instruction; what the kernel refuses stops nothing."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.shim.warm.warm_jobs import HOLD, Job, package

from holdfast._session.reports import RankBinding
from holdfast_agent.shell.shims.shim_files import Intent
from holdfast_agent.shim.walls import binding

Shim = Any
CPUS = sorted(os.sched_getaffinity(0))
ALLOWED = "print(*(l.split()[1] for l in open('/proc/self/status') if l.startswith('Cpus_allowed_list')))"


def order(cpus: str, memory_nodes: str = "", **more: object) -> dict[str, object]:
    return {"cpus": cpus, "exclusive": True, "memory_nodes": memory_nodes, "nics": ["mlx5_0"], "note": "", **more}


two_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="this machine has one CPU")


@two_cpus
def test_each_rank_runs_on_its_own_cpus(shim: Shim) -> None:
    first, second = str(CPUS[0]), str(CPUS[1])
    ranks = [shim.python(ALLOWED, rank) | {"binding": order(cpu)} for rank, cpu in enumerate((second, first))]
    shim.launch(1, *ranks, shim.python(ALLOWED, 2))
    shim.until("empty")
    assert [shim.output(rank).strip() for rank in (0, 1)] == [second, first]
    assert shim.output(2) != shim.output(0), "one without a binding runs anywhere"
    (intent,) = (each for each in shim.journal() if isinstance(each, Intent))
    assert intent.bindings == tuple(
        (rank, RankBinding(cpu, True, "", ("mlx5_0",))) for rank, cpu in enumerate((second, first))
    )


@pytest.mark.skipif(not Path("/proc/self/numa_maps").exists(), reason="this kernel knows no NUMA")
def test_memory_of_the_program_is_preferred_of_its_node(shim: Shim) -> None:
    policies = "print({line.split()[1] for line in open('/proc/self/numa_maps')})"
    shim.launch(1, shim.python(policies) | {"binding": order("", "0")}, shim.python(policies, 1))
    shim.until("empty")
    assert shim.output(0) == "{'prefer:0'}\n"
    assert shim.output(1) == "{'default'}\n"


def test_what_the_kernel_refuses_is_said_in_the_ranks_output(shim: Shim) -> None:
    shim.launch(1, shim.python("print('ran')") | {"binding": order("8000", "1000")})
    exited = shim.until("exited")[-1]
    assert exited["status"] == 0
    assert shim.output() == "ran\n"
    said = Path(f"{shim.out}/g1.r0.err").read_text().splitlines()
    assert said[0].startswith("holdfast: not bound to CPUs 8000: ")
    assert said[1].startswith("holdfast: not bound to memory of node 1000: ")
    assert len(said) == 2


@pytest.mark.parametrize(
    "bad", [{"cpus": "x"}, {"cpus": "3"}, {"cpus": "0", "memory_nodes": "99999"}, {"cpus": 3, "memory_nodes": ""}]
)
def test_an_order_that_can_not_be_meant_is_refused(shim: Shim, bad: dict[str, object]) -> None:
    shim.launch(1, shim.python("") | {"binding": bad})
    shim.expect("refused")


def test_memory_is_preferred_of_one_node_or_of_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's own numbers: include/uapi/linux/mempolicy.h."""
    asked: list[tuple[int, list[int]]] = []

    class Libc:
        def syscall(self, number: Any, policy: Any, mask: Any, most: Any) -> int:
            assert number.value in (237, 238)
            asked.append((policy.value, [node for node in range(most.value) if mask[node // 64] >> node % 64 & 1]))
            return 0

    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: Libc())
    binding.Binding(order("", "1")).take()
    binding.Binding(order("", "0,64-65")).take()
    assert asked == [(1, [1]), (5, [0, 64, 65])]


@two_cpus
def test_a_rank_that_starts_warm_runs_where_its_order_says(hasty: Callable[..., Shim]) -> None:
    shim = hasty()
    job = Job(shim, "-c", HOLD + "import json\n" + ALLOWED)
    job.fields = {"binding": order(str(CPUS[1]))}
    assert job.park()["ranks"] == 1
    job.stop(1, another=True)
    _, out, err = job.run(2, warm={})[0]
    assert (out.strip(), err) == (str(CPUS[1]), "")


@two_cpus
@pytest.mark.parametrize("bound", [True, False])
def test_a_package_that_counts_cores_is_imported_ahead_where_ranks_have_no_cores_of_their_own(
    hasty: Callable[..., Shim], bound: bool
) -> None:
    shim = hasty()
    path = package(shim, "numbers_of_cores", "import os\nCORES = len(os.sched_getaffinity(0))")
    program = "import numbers_of_cores\n" + HOLD + "print(numbers_of_cores.CORES)"
    job = Job(shim, "-c", program, PYTHONPATH=path)
    job.fields = {"binding": order(str(CPUS[1]))} if bound else {}
    assert ("left out: numbers_of_cores counts its cores" in job.park()["message"]) == bound
    job.stop(1, another=True)
    assert job.run(2, warm={})[0][1] == f"{1 if bound else len(CPUS)}\n"


def test_journal_of_a_generation_without_bindings_is_as_it_was(shim: Shim) -> None:
    shim.launch(1, shim.sh("exit 0"))
    shim.until("empty")
    text = (shim.directory / "g1.journal").read_text().splitlines()[0].partition(" ")[2]
    assert "bindings" not in json.loads(text)
