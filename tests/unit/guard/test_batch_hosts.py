"""Which hosts a guard takes from the environment of a PBS or LSF job's script."""

from __future__ import annotations

import pytest

from holdfast.errors import ConfigError
from holdfast.guard.batch_hosts import beside_flux_script, logins_in

FILES = {"/pbs/17": "n1.lab\nn1.lab\nn2.lab\nn2.lab\n", "/lsf/17": "n1\nn2\nn3\n"}


def read(name: str) -> str:
    try:
        return FILES[name]
    except KeyError:
        raise FileNotFoundError(name) from None


@pytest.mark.parametrize(
    ("environ", "variable", "targets"),
    [
        ({"PBS_NODEFILE": "/pbs/17", "PBS_JOBID": "17"}, "PBS_NODEFILE", ["n1.lab", "n2.lab"]),
        (
            {"LSB_DJOB_HOSTFILE": "/lsf/17", "LSB_MCPU_HOSTS": "n1 8 n2 8 n3 8"},
            "LSB_DJOB_HOSTFILE",
            ["n1", "n2", "n3"],
        ),
        ({"LSB_DJOB_HOSTFILE": "/gone", "LSB_MCPU_HOSTS": "n1 8 n2 8"}, "LSB_MCPU_HOSTS", ["n1", "n2"]),
    ],
)
def test_a_script_learns_the_hosts_of_its_job_once_each(
    environ: dict[str, str], variable: str, targets: list[str]
) -> None:
    for here in ("n1", "n1.lab", "login-7"):  # hosts may have other names in a list than they give themselves
        found = logins_in(environ, read, here)
        assert found is not None
        assert found.variable == variable
        assert [each.target for each in found.logins] == targets


@pytest.mark.parametrize(
    "more",
    [
        {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"},
        {"PMI_RANK": "1", "PMI_SIZE": "2"},
        {"JSM_NAMESPACE_RANK": "0"},
        {"HOLDFAST_GUARD_HOST": "n1"},
        {"SLURM_STEP_NODELIST": "n[1-2]"},
        {"PBS_NODEFILE": ""},
        {"PBS_NODEFILE": "/gone"},
        {"PBS_NODEFILE": "", "LSB_MCPU_HOSTS": "n1 8"},
    ],
)
def test_a_task_of_a_launcher_and_a_host_without_the_file_log_in_to_no_others(more: dict[str, str]) -> None:
    assert logins_in({"PBS_NODEFILE": "/pbs/17"} | more, read, "n1") is None


def test_a_list_without_a_host_is_refused_by_its_variable() -> None:
    with pytest.raises(ConfigError, match="PBS_NODEFILE names no host: its file is empty") as caught:
        logins_in({"PBS_NODEFILE": "/pbs/18"}, lambda name: "\n", "n1")
    assert "PBS_NODEFILE= holdfast guard" in caught.value.fix


def test_on_another_host_than_the_first_it_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"n2 is not the first of the 2 hosts in PBS_NODEFILE, which is n1\.lab"):
        logins_in({"PBS_NODEFILE": "/pbs/17"}, read, "n2")


@pytest.mark.parametrize(
    ("environ", "size", "ranks", "said"),
    [
        (
            {},
            "4",
            1,
            "this job 4 hosts, and the guard runs one rank, on this host alone. For all: flux run -N4 --tasks",
        ),
        ({}, "2", 8, "this job 2 hosts, and the guard runs 8 ranks,"),
        ({}, "1", 1, ""),
        ({}, "", 1, ""),
        ({}, "9" * 5000, 1, ""),
        ({"FLUX_URI": ""}, "4", 1, ""),
        ({"FLUX_TASK_RANK": "0"}, "4", 1, ""),
    ],
)
def test_a_script_of_flux_hears_what_its_guard_leaves_out(
    environ: dict[str, str], size: str, ranks: int, said: str
) -> None:
    found = beside_flux_script({"FLUX_URI": "local:///run/flux/local", **environ}, ranks, lambda: size)
    assert bool(found) == bool(said)
    assert said in found
