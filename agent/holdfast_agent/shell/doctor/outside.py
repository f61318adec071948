"""Looks at what lies around the agent: disks, the network, GPUs."""

from __future__ import annotations

import glob
import os
import pwd
import socket
from pathlib import Path

import anyio
import psutil

from holdfast.errors import ConfigError
from holdfast_agent.core.doctor.gpus import DeviceFile, DriverFacts, GpuFacts
from holdfast_agent.core.doctor.network import Listener, NetworkFacts
from holdfast_agent.core.model.gpus import Blind, Reading
from holdfast_agent.gpu.reader import NvmlSource, ReadLimits
from holdfast_agent.shell.base import inventory
from holdfast_agent.shell.config import Config
from holdfast_agent.shell.doctor.reading import text

_NVIDIA, _DISPLAYS = "0x10de", ("0x0300", "0x0302")


def network(settings: Config) -> NetworkFacts:
    """Ports in use, names and interfaces."""
    ports = settings.ports
    interfaces = psutil.net_if_addrs()
    families = (socket.AF_INET, socket.AF_INET6)
    own = {each.address for found in interfaces.values() for each in found if each.family in families}
    listeners, seen = _listeners(ports)
    try:
        address = settings.address or inventory.host_address(settings.data_interface)
    except ConfigError:
        address = ""
    hostname = socket.gethostname()
    return NetworkFacts(
        ports=(ports[0], ports[-1]),
        ephemeral=_ephemeral(),
        reserved=_reserved(),
        listeners=listeners,
        seen=seen,
        hostname=hostname,
        host_addresses=_resolved(hostname),
        interface=settings.data_interface,
        interfaces=tuple(sorted(interfaces)),
        interface_addresses=tuple(
            each.address for each in interfaces.get(settings.data_interface, ()) if each.family in families
        ),
        address=address,
        own_addresses=tuple(sorted(own)),
    )


def gpus(settings: Config, patience_s: float) -> GpuFacts:
    """Ask through a helper process, as the agent does; a driver that hangs blocks only the helper."""
    if settings.simulated_gpus:
        return GpuFacts(Reading(), simulated=settings.simulated_gpus)
    name = settings.worker_user or pwd.getpwuid(os.geteuid()).pw_name
    try:
        entry = pwd.getpwnam(name)
        uid, gids = entry.pw_uid, frozenset(os.getgrouplist(name, entry.pw_gid))
    except KeyError:
        uid, gids = 0, frozenset()
    reading, driver = anyio.run(_ask_driver, patience_s)
    files = [path for path in sorted(glob.glob("/dev/nvidia*")) if not os.path.isdir(path)]
    files = [path for path in files if path[len("/dev/nvidia") :].isdecimal() or path.endswith(("ctl", "-uvm"))]
    stats = [(path, os.stat(path)) for path in files]
    return GpuFacts(
        reading=reading,
        driver=driver,
        devices=tuple(DeviceFile(path, found.st_mode & 0o777, found.st_uid, found.st_gid) for path, found in stats),
        pci=_on_the_bus(),
        worker=name,
        worker_uid=uid,
        worker_gids=gids,
    )


async def _ask_driver(patience_s: float) -> tuple[Reading | Blind, DriverFacts | Blind]:
    # A start that takes longer than an answer may is no start, to a doctor.
    source = NvmlSource(ReadLimits(answer_s=patience_s, start_s=patience_s * 0.9))
    try:
        reading = await source.inventory()
        return reading, reading if isinstance(reading, Blind) else await source.driver()
    finally:
        await source.aclose()


def _on_the_bus(devices: str = "/sys/bus/pci/devices/*") -> int:
    found = [Path(path) for path in glob.glob(devices)]
    ours = [path for path in found if text(path / "vendor") == _NVIDIA]
    return sum(text(path / "class").startswith(_DISPLAYS) for path in ours)


def _listeners(ports: range) -> tuple[tuple[Listener, ...], bool]:
    """Holders of ports of the range, and whether all of them were visible."""
    found: dict[int, Listener] = {}
    seen = True
    for each in psutil.net_connections(kind="tcp"):
        if each.laddr and each.laddr.port in ports and each.status in (psutil.CONN_LISTEN, psutil.CONN_ESTABLISHED):
            seen &= each.pid is not None
            found[each.laddr.port] = _listener(each.laddr.port, each.pid or 0)
    for port in ports:
        if port not in found and not _free(port):
            found[port] = Listener(port, ours=True)  # bound and not listening, as an agent keeps one for a gang
    return tuple(found[port] for port in sorted(found)), seen


def _listener(port: int, pid: int) -> Listener:
    try:
        process = psutil.Process(pid)
        words, environ = process.cmdline(), process.environ()
    except (psutil.Error, OSError):
        return Listener(port, pid)
    ours = (
        "HOLDFAST_JOB" in environ
        or "holdfast_agent" in words
        or any("holdfast-agent" in word for word in words[:3])
    )
    return Listener(port, pid, " ".join(words[:2])[:60], ours)


def _free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def _ephemeral() -> tuple[int, int]:
    first, last = text("/proc/sys/net/ipv4/ip_local_port_range", "32768 60999").split()
    return int(first), int(last)


def _reserved() -> tuple[tuple[int, int], ...]:
    spans = [span.split("-") for span in text("/proc/sys/net/ipv4/ip_local_reserved_ports").split(",") if span]
    return tuple((int(span[0]), int(span[-1])) for span in spans)


def _resolved(name: str) -> tuple[str, ...]:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # the latter for what can be no name
        return ()
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))
