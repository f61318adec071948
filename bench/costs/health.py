"""What one look at a host's hardware costs, of one with 120 PCI devices, 16 ports and 8 GPUs."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from holdfast_agent.core.health.engine import Engine
from holdfast_agent.core.health.gpus import GpuHealth, readings
from holdfast_agent.core.health.rules import RULES
from holdfast_agent.core.model.gpus import Gpu
from holdfast_agent.shell.health import sysfs

LOOKS = 200
EVERY_S = 60.0
_GPU = GpuHealth("", 98, 16, 16, 5, 5, 3, 1, False, 18, 0, 3, 0.0, 20, 70)


def tree(root: Path) -> Path:
    """A kernel's /sys of such a host."""
    for number in range(120):
        device = root / f"bus/pci/devices/0000:{number:02x}:00.0"
        device.mkdir(parents=True)
        for kind, key in (("fatal", "FATAL"), ("nonfatal", "NONFATAL"), ("correctable", "COR")):
            (device / f"aer_dev_{kind}").write_text("Undefined 0\n" * 12 + f"TOTAL_ERR_{key} 0\n")
    for number in range(16):
        port = root / f"class/infiniband/mlx5_{number}/ports/1"
        (port / "counters").mkdir(parents=True)
        (port / "state").write_text("4: ACTIVE\n")
        (port / "rate").write_text("400 Gb/sec (4X NDR)\n")
        for counter in ("link_downed", "local_link_integrity_errors", "excessive_buffer_overrun_errors"):
            (port / "counters" / counter).write_text("0\n")
    return root


def main() -> None:
    """Print the cost of one look, and its share of a core."""
    gpus = {f"GPU-{index}": Gpu(f"GPU-{index}", index, "H100", 80 << 30) for index in range(8)}
    healths = [GpuHealth(uuid, *[getattr(_GPU, name) for name in _GPU.__slots__[1:]]) for uuid in gpus]
    engine = Engine(RULES)
    with tempfile.TemporaryDirectory() as folder:
        root = tree(Path(folder))
        began = time.process_time()
        for look in range(LOOKS):
            engine.take([*sysfs.look(root), *readings(healths, gpus, {})], look * EVERY_S)
        each_s = (time.process_time() - began) / LOOKS
    print(f"{each_s * 1e3:.1f} ms of a core each {EVERY_S:g} s: {each_s / EVERY_S * 100:.4f} %")


if __name__ == "__main__":
    main()
