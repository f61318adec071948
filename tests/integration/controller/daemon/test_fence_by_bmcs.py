"""The examples of fence commands against BMCs that are not ours: OpenIPMI's simulator, OpenStack's Redfish emulator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from tests.faults.network import Network, joined
from tests.support import bmc

from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.step.actions import CallFence
from holdfast_controller.shell.main.fencing import Outcome, environment, run

pytestmark = pytest.mark.require("root", "netns", "mount")
EXAMPLES = Path(__file__).parents[4] / "deploy/fence"
ENV = environment(CallFence("gpu-01", "10.0.0.1", 30.4, Wall(1_800_000_000.0)))


@pytest.fixture
def network() -> Iterator[Network]:
    with joined(("ctl", "bmc")) as made:
        yield made


async def called(network: Network, folder: Path, example: str, pause_s: int = 1) -> Outcome:
    """An example as the controller calls it, which finds ``folder`` in place of /etc/holdfast."""
    (folder / "hosts").write_text(f"127.0.0.1 localhost\n{network.address('bmc')} gpu-01-bmc\n")
    script = folder / example
    script.write_text(
        (EXAMPLES / example)
        .read_text()
        .replace("/etc/holdfast", str(folder))
        .replace("sleep 2", f"sleep {pause_s}")
        .replace("-I lanplus", "-I lanplus -C 3")  # a simulator that is asked for its ciphers says nothing for 5 s
    )
    step = f"mount --bind {folder}/hosts /etc/hosts && exec sh {script}"
    return await run(network.inside("ctl", "unshare", "-m", "sh", "-c", step), ENV, 60.0)


def login(folder: Path, password: str) -> None:
    (folder / "bmc").write_text(f"{bmc.USER}\n{password}\n")
    (folder / "bmc.netrc").write_text(f"machine gpu-01-bmc login {bmc.USER} password {password}\n")


@pytest.mark.require("ipmi")
@pytest.mark.parametrize("works", [True, False], ids=["goes off", "stays on"])
async def test_ipmi_proves_what_the_bmc_says(network: Network, tmp_path: Path, works: bool) -> None:
    folder = tmp_path / "its"
    on = folder / "on"
    off = f"rm {on}" if works else ":"
    with bmc.ipmi(folder, network, "bmc", asks="ctl", runs=f"[ -e {on} ]", off=off) as there:
        on.touch()
        login(tmp_path, bmc.PASSWORD)
        found = await called(network, tmp_path, "ipmi.sh")
        assert "set power 0" in there.calls(), found
    assert found.proven is works
    assert f"gpu-01-bmc: Chassis Power is {'off' if works else 'on'}" in found.said


@pytest.mark.require("redfish", "curl")
async def test_redfish_proves_what_the_bmc_says_to_who_may_ask(network: Network, tmp_path: Path) -> None:
    with bmc.redfish(tmp_path / "its", network.inside("bmc"), "gpu-01-bmc") as authority:
        (tmp_path / "bmc-ca.pem").write_bytes(authority.read_bytes())
        login(tmp_path, "wrong")
        found = await called(network, tmp_path, "redfish.sh")
        assert not found.proven and "401" in found.said
        login(tmp_path, bmc.PASSWORD)
        found = await called(network, tmp_path, "redfish.sh", pause_s=2)  # it takes its time, 11 s at most
        assert found.proven and found.said.endswith("gpu-01-bmc/redfish/v1/Systems/1: PowerState is Off"), found
        trustme.CA().cert_pem.write_to_path(str(tmp_path / "bmc-ca.pem"))
        found = await called(network, tmp_path, "redfish.sh")
        assert not found.proven and "certificate" in found.said, "anybody could say that"
