"""Traits that a host should share with others of its kind: versions and settings, read once at the agent's start."""

from __future__ import annotations

from pathlib import Path

from holdfast_agent.shell.base.kernel_files import names, text

MOST_BYTES = 128
_FILES = {
    "kernel": "proc/sys/kernel/osrelease",
    "NVIDIA driver": "sys/module/nvidia/version",
    "mlx5 driver": "sys/module/mlx5_core/version",
    "huge pages": "sys/kernel/mm/transparent_hugepage/enabled",
    "CPU governor": "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "NUMA balancing": "proc/sys/kernel/numa_balancing",
}
_THERE = {"nvidia_peermem": "sys/module/nvidia_peermem", "nvidia_fs": "sys/module/nvidia_fs"}
"""Modules of which only counts whether they are loaded."""


def found(root: Path = Path("/")) -> dict[str, str]:
    """Every trait that this host has; those of GPUs and adapters only where their driver is loaded."""
    traits = {name: found for name, path in _FILES.items() if (found := _chosen(root / path))}
    if "NVIDIA driver" in traits:
        traits |= {name: "loaded" if (root / path).is_dir() else "" for name, path in _THERE.items()}
        traits["IOMMU"] = "on" if names(root / "sys/class/iommu") else "off"
    for adapter in names(root / "sys/class/infiniband"):
        folder = root / "sys/class/infiniband" / adapter
        kind, firmware = _chosen(folder / "hca_type") or _chosen(folder / "board_id"), _chosen(folder / "fw_ver")
        if kind and firmware and not (folder / "device/physfn").exists():
            known = set(filter(None, traits.get(f"firmware of {kind}", "").split(", ")))
            traits[f"firmware of {kind}"] = ", ".join(sorted(known | {firmware}))
    return traits


def _chosen(path: Path) -> str:
    """The file's text; of one that offers a choice, as ``always [madvise] never``, what is chosen."""
    whole = text(path, MOST_BYTES)
    _, bracket, rest = whole.partition("[")
    return rest.partition("]")[0] if bracket else whole
