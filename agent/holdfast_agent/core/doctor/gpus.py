"""The GPUs: whether the driver answers, what it says of them, and whether workers may open them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast._base.dataclass import dataclass, replace
from holdfast.doctor.findings import Finding, error, ok, warning
from holdfast_agent.core.gpu.faults import stated_faults
from holdfast_agent.core.model.gpus import Blind, Gpu, Reading


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """The driver's own facts."""

    version: str = ""
    persistence: tuple[tuple[str, bool], ...] = ()
    """By UUID; devices that have no such mode are left out."""


@dataclass(frozen=True, slots=True)
class DeviceFile:
    """One of /dev/nvidia*, as ``stat`` shows it."""

    path: str
    mode: int
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """Facts on the GPUs and their driver. ``reading`` is Blind where the driver didn't answer in time."""

    reading: Reading | Blind
    driver: DriverFacts | Blind = DriverFacts()
    simulated: int = 0
    devices: tuple[DeviceFile, ...] = ()
    pci: int = 0
    """NVIDIA GPUs on the bus, whatever the driver says."""
    worker: str = "root"
    worker_uid: int = 0
    worker_gids: frozenset[int] = frozenset()


def check(facts: GpuFacts) -> Iterator[Finding]:
    """Check the driver, each device, and the access of workers to them."""
    if facts.simulated:
        saw = f"{facts.simulated} simulated GPUs (simulated_gpus in agent.toml)"
        yield warning("gpus.driver", saw, "Jobs find no real ones.", "agent.toml: remove simulated_gpus")
        return
    if isinstance(facts.reading, Blind):
        why = "A wedged driver: every process that asks it hangs, and the host takes no work."
        fix = (
            "dmesg | grep -i -e NVRM -e Xid | tail",
            "nvidia-smi -q    # in a terminal that you can spare",
            "reboot",
        )
        yield error("gpus.driver", facts.reading.reason, why, *fix)
        return
    if facts.reading.note:
        yield _no_driver(facts, facts.reading.note)
        return
    version = facts.driver.version if isinstance(facts.driver, DriverFacts) else ""
    yield ok("gpus.driver", f"driver {version or 'of unknown version'}, {_plural(len(facts.reading.gpus))}")
    yield _health(facts.reading, facts.pci)
    if isinstance(facts.driver, DriverFacts):
        yield _persistence(facts.driver)
    yield _rights(facts)


def _no_driver(facts: GpuFacts, note: str) -> Finding:
    if not facts.pci:
        return ok("gpus.driver", "no NVIDIA GPUs in this host")
    why = "The host offers no GPUs."
    fix = ("apt install nvidia-driver    # or the one that you use", "modprobe nvidia; nvidia-smi")
    return error("gpus.driver", f"{note}, though {_plural(facts.pci)} of NVIDIA are on the bus", why, *fix)


def _health(reading: Reading, pci: int) -> Finding:
    ill = [f"GPU {gpu.index} ({gpu.uuid}): {gpu.problem}" for gpu in reading.gpus if gpu.problem]
    ill += [f"GPU {slot.index}: {slot.problem}" for slot in reading.unidentified]
    conditions = {each.uuid: each for each in reading.conditions}
    for gpu in reading.gpus:
        stated = dict(stated_faults(replace(gpu, problem=""), conditions.get(gpu.uuid)))
        ill += [f"GPU {gpu.index} ({gpu.uuid}): {cause}" for cause in stated]
    fix = ("dmesg | grep -i -e NVRM -e Xid | tail", "nvidia-smi -r    # while nothing uses it; else reboot")
    if ill:
        return error("gpus.health", "; ".join(ill), "No work is placed on it.", *fix)
    whole = len({gpu.parent or gpu.uuid for gpu in reading.gpus})
    if pci > whole:
        saw = f"{_plural(pci)} on the bus, and the driver knows {whole}"
        return error("gpus.health", saw, "One has failed, or is kept from the driver.", *fix)
    return ok("gpus.health", _models(reading.gpus))


def _persistence(driver: DriverFacts) -> Finding:
    off = [uuid for uuid, on in driver.persistence if not on]
    if not off:
        return ok("gpus.persistence", "on" if driver.persistence else "the driver has no such mode")
    why = "The driver lets go of idle GPUs and takes seconds to wake each: starts and health checks are slow."
    saw = f"off for {_plural(len(off))} of {len(driver.persistence)}"
    return warning(
        "gpus.persistence", saw, why, "systemctl enable --now nvidia-persistenced    # or: nvidia-smi -pm 1"
    )


def _rights(facts: GpuFacts) -> Finding:
    closed = [device.path for device in facts.devices if not _may_open(device, facts)]
    if not facts.devices:
        why = "CUDA opens them; without udev's rule they are made by the first root process that uses a GPU."
        return error("gpus.rights", "there is no /dev/nvidia*", why, "nvidia-modprobe -c 0 -u")
    if closed:
        why = "CUDA says that there is no GPU, and programs train on the CPU or fail."
        fix = (
            f"usermod -aG GROUP {facts.worker}    # the group of: ls -l {closed[0]}",
            "systemctl restart holdfast-agent",
        )
        return error("gpus.rights", f"{facts.worker} may not open {', '.join(closed)}", why, *fix)
    return ok("gpus.rights", f"{facts.worker} may open all {len(facts.devices)} device files")


def _may_open(device: DeviceFile, facts: GpuFacts) -> bool:
    """Whether workers may open the device file for reading and writing."""
    if facts.worker_uid == 0:
        return True
    shift = 6 if device.uid == facts.worker_uid else 3 if device.gid in facts.worker_gids else 0
    return device.mode >> shift & 6 == 6


def _models(gpus: Iterable[Gpu]) -> str:
    counted: dict[str, int] = {}
    for gpu in gpus:
        counted[gpu.model or "of unknown model"] = counted.get(gpu.model or "of unknown model", 0) + 1
    return ", ".join(f"{count} × {model}" for model, count in counted.items()) or "no GPUs"


def _plural(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"
