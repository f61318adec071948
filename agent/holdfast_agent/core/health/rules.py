"""The rules of passive health: what is bad, for how long, and how much it matters.

Thresholds follow NVIDIA's documentation and what large sites use (gpud, sichek, Azure's node health checks, Meta's
GCM); where these differ by much, the finding is DEGRADED and no more. What keeps a GPU itself from work, such as an
Xid or memory beyond correction, is in ``core.gpu.faults``, not here.
"""

from __future__ import annotations

from holdfast._base.health import Health
from holdfast_agent.core.health.engine import Drop, Growth, Level, Rule

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
_RESEAT = "Drain the host and reseat or replace the device: holdfast host drain HOST"
_SMI = "nvidia-smi -q -i SUBJECT"

RULES: dict[str, Rule] = {
    "gpu.pcie_width": Rule(
        Level(for_s=120.0),
        Health.CORDON,
        "Copies between host and GPU are slower by that factor, and a gang waits for its slowest GPU.",
        f"{_SMI} -d PCIE",
    ),
    "gpu.pcie_speed": Rule(
        Level(for_s=120.0),
        Health.DEGRADED,
        "Copies between host and GPU are slower than the GPU and its slot allow.",
        f"{_SMI} -d PCIE",
    ),
    "gpu.slowed": Rule(
        Growth(60.0, 600.0),
        Health.DEGRADED,
        "The hardware slows the GPU down by itself, for heat or for power: a gang waits for its slowest GPU.",
        f"{_SMI} -d PERFORMANCE,TEMPERATURE,POWER",
    ),
    "gpu.hot": Rule(
        Level(clear_s=300.0),
        Health.DEGRADED,
        "The GPU is slowed down at this temperature.",
        f"{_SMI} -d TEMPERATURE",
    ),
    "gpu.memory_hot": Rule(
        Level(95.0, clear_s=300.0),
        Health.DEGRADED,
        "Memory is slowed down near this temperature, and wears.",
        f"{_SMI} -d TEMPERATURE",
    ),
    "gpu.corrected": Rule(
        Level(10e6),
        Health.DEGRADED,
        "So many corrected errors often precede one that can't be corrected.",
        f"{_SMI} -d ECC",
    ),
    "gpu.remapped_rows": Rule(
        Level(512.0),
        Health.CORDON,
        "The spare memory is nearly used up: NVIDIA's limit for a replacement.",
        f"{_SMI} -d ROW_REMAPPER",
    ),
    "gpu.sram": Rule(
        Level(),
        Health.CORDON,
        "Uncorrectable errors of its SRAM have reached the threshold at which NVIDIA replaces the GPU.",
        f"{_SMI} -d ECC",
    ),
    "gpu.nvlink": Rule(
        Level(for_s=120.0),
        Health.CORDON,
        "Collectives on this host go through fewer links than they should, or fail.",
        "nvidia-smi nvlink --status -i SUBJECT",
    ),
    "gpu.nvlink_errors": Rule(
        Growth(1.0, HOUR_S),
        Health.DEGRADED,
        "A link had to be trained again: each time its traffic stands still, and it may fail for good.",
        "nvidia-smi nvlink --errorcounters -i SUBJECT",
    ),
    "gpu.fabric": Rule(
        Level(for_s=300.0),
        Health.CORDON,
        "Without it no CUDA program that uses several GPUs starts here.",
        "systemctl status nvidia-fabricmanager",
    ),
    "gpu.driver_stuck": Rule(
        Level(for_s=300.0),
        Health.CORDON,
        "NVIDIA's driver waits for something that doesn't come: programs that use a GPU hang, and can't be killed.",
        "dmesg | grep -i -e NVRM -e 'blocked for more'; then reboot the host",
    ),
    "nvswitch.fatal": Rule(
        Growth(1.0, DAY_S),
        Health.FAIL,
        "What is connected by this switch can't be trusted before it was reset.",
        "dmesg | grep SXid    # then reboot the host",
    ),
    "pcie.fatal": Rule(
        Growth(1.0, DAY_S),
        Health.FAIL,
        "The link of this device failed; what went over it then is lost.",
        _RESEAT,
    ),
    "pcie.nonfatal": Rule(
        Growth(1.0, DAY_S),
        Health.INFORM,
        "Transfers of this device failed, and its driver coped.",
        "lspci -vv -s SUBJECT",
    ),
    "pcie.correctable": Rule(
        Growth(1000.0, HOUR_S),
        Health.DEGRADED,
        "The link repeats transfers: it is slower than it should be, and may fail.",
        "lspci -vv -s SUBJECT",
    ),
    "pcie.narrowed": Rule(
        Drop(for_s=120.0),
        Health.DEGRADED,
        "The device is slower by that factor.",
        "lspci -vv -s SUBJECT",
    ),
    "memory.uncorrected": Rule(
        Growth(1.0, DAY_S),
        Health.FAIL,
        "Memory of the host holds wrong data; programs that read it are killed, or compute with it.",
        "Replace the memory module; see: ras-mc-ctl --errors",
    ),
    "memory.corrected": Rule(
        Growth(1000.0, HOUR_S),
        Health.DEGRADED,
        "A memory module is failing: so many corrected errors often precede one that can't be corrected.",
        "ras-mc-ctl --errors",
    ),
    "ib.port": Rule(
        Drop(),
        Health.CORDON,
        "Gangs that use this port can't start, or hang.",
        "ibstat; and look at the cable and the switch",
    ),
    "ib.rate": Rule(
        Drop(),
        Health.CORDON,
        "Collectives of every gang with this host are slower by that factor.",
        "ibstat; then reseat the cable",
    ),
    "ib.flaps": Rule(
        Growth(3.0, HOUR_S),
        Health.DEGRADED,
        "Each time collectives over this port stand still, or fail.",
        "mlxlink -d SUBJECT; then reseat the cable",
    ),
    "ib.errors": Rule(
        Growth(10.0, HOUR_S),
        Health.DEGRADED,
        "Packets over this port are lost and sent again.",
        "mlxlink -d SUBJECT --show_counters",
    ),
    "disk.errors": Rule(
        Growth(1.0, DAY_S),
        Health.CORDON,
        "The kernel has found this file system to be damaged; it may become read-only.",
        "dmesg | grep SUBJECT; then check it with fsck",
    ),
    "disk.dead": Rule(
        Level(),
        Health.CORDON,
        "What is on this drive can't be read or written.",
        "dmesg | grep SUBJECT",
    ),
    "health.program": Rule(
        Level(clear_s=0.0),
        Health.INFORM,
        "What this check of the site looks at isn't known while its program fails; that says nothing of the host.",
        "Run the program of [health.SUBJECT] in agent.toml by hand.",
    ),
}
"""By name; a finding is called ``NAME/SUBJECT``."""
