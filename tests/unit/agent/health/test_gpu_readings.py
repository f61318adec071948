"""What a driver's figures say of a GPU's health."""

from __future__ import annotations

from dataclasses import replace

from holdfast_agent.core.health.gpus import GpuHealth, readings
from holdfast_agent.core.model.gpus import Gpu

GPUS = {f"GPU-{index}": Gpu(f"GPU-{index}", index, "H100", 80 << 30) for index in range(2)}
WELL = GpuHealth(
    "GPU-0", 98, pcie_width=16, pcie_width_most=16, pcie_gen=5, pcie_gen_most=5, corrected=3, remapped=1, sram=False,
    links_up=18, link_recoveries=0, fabric=3, slowed_s=0.0, margin_c=20, memory_c=70,
)  # fmt: skip


def bad(*found: GpuHealth) -> dict[str, str]:
    """By rule: what it saw, where a reading says that a state is wrong."""
    told = {each.rule: each for each in readings(found, GPUS, {})}
    states = ("gpu.pcie_width", "gpu.pcie_speed", "gpu.sram", "gpu.nvlink", "gpu.fabric", "gpu.hot")
    return {rule: told[rule].saw for rule in states if rule in told and told[rule].value}


def test_nothing_is_said_against_a_well_gpu() -> None:
    assert bad(WELL) == {}
    assert len(list(readings([WELL], GPUS, {}))) == 11


def test_a_busy_gpus_slow_link_counts_and_an_idle_ones_does_not() -> None:
    slow = replace(WELL, pcie_width=8, pcie_gen=1)
    assert bad(slow) == {
        "gpu.pcie_width": "GPU 0: its link is x8 of x16",
        "gpu.pcie_speed": "GPU 0: its link runs at PCIe 1 of 5",
    }
    assert bad(replace(slow, util_pct=0)) == {}
    told = {each.rule for each in readings([replace(WELL, util_pct=0)], GPUS, {})}
    assert "gpu.pcie_width" in told, "that it is well counts of an idle one too"


def test_nvlinks_are_compared_with_gpus_of_the_same_model_here() -> None:
    other = replace(WELL, uuid="GPU-1", links_up=17)
    assert bad(WELL, other) == {"gpu.nvlink": "GPU 1: 17 of 18 NVLinks are up"}
    assert bad(other) == {}


def test_a_card_without_a_bridge_lacks_no_nvlinks() -> None:
    alone = replace(WELL, uuid="GPU-1", links_up=0)
    assert bad(WELL, alone) == {"gpu.nvlink": "GPU 1: 0 of 18 NVLinks are up"}
    assert bad(replace(WELL, fabric=0), replace(alone, fabric=0)) == {}
    assert bad(replace(WELL, fabric=None), replace(alone, fabric=None)) == {}


def test_heat_a_fabric_that_is_not_joined_and_broken_sram() -> None:
    assert bad(replace(WELL, margin_c=-2))["gpu.hot"] == (
        "GPU 0: it is 2 °C above the temperature at which it is slowed down"
    )
    assert "gpu.fabric" in bad(replace(WELL, fabric=2))
    assert "gpu.fabric" not in bad(replace(WELL, fabric=0))
    assert "gpu.sram" in bad(replace(WELL, sram=True))


def test_a_driver_that_says_nothing_and_a_gpu_that_is_not_ours_give_no_readings() -> None:
    assert list(readings([GpuHealth("GPU-0"), replace(WELL, uuid="GPU-9")], GPUS, {})) == []


def test_counters_belong_to_the_drivers_enumeration() -> None:
    assert {each.epoch for each in readings([WELL], GPUS, {"GPU-0": "1/2"})} == {"1/2"}
