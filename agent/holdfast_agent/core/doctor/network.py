"""Ports, names and interfaces, as ranks of several hosts need them. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence

from holdfast._base.dataclass import dataclass
from holdfast.doctor.findings import Finding, error, needs_root, ok, warning


@dataclass(frozen=True, slots=True)
class Listener:
    """The holder of a port of the range. ``pid`` 0: unknown."""

    port: int
    pid: int = 0
    command: str = ""
    ours: bool = False
    """The agent's, or a worker's."""


@dataclass(frozen=True, slots=True)
class NetworkFacts:
    """Facts on ports, names and interfaces. ``ports`` is the range for rendezvous, ``ephemeral`` the kernel's."""

    ports: tuple[int, int]
    ephemeral: tuple[int, int]
    reserved: tuple[tuple[int, int], ...] = ()
    """Kept out of the ephemeral range, ip_local_reserved_ports."""
    listeners: tuple[Listener, ...] = ()
    seen: bool = True
    """Whose the ports are could be seen."""
    hostname: str = ""
    host_addresses: tuple[str, ...] = ()
    """What the host's own name resolves to."""
    interface: str = ""
    """data_interface."""
    interfaces: tuple[str, ...] = ()
    interface_addresses: tuple[str, ...] = ()
    address: str = ""
    """Address at which workers on other hosts reach this host."""
    own_addresses: tuple[str, ...] = ()


def check(facts: NetworkFacts) -> Iterator[Finding]:
    """Check ports, then names, then interfaces."""
    yield _range(facts)
    yield _taken(facts)
    yield _hostname(facts)
    yield _interface(facts)


def _range(facts: NetworkFacts) -> Finding:
    first, last = max(facts.ports[0], facts.ephemeral[0]), min(facts.ports[1], facts.ephemeral[1])
    ours = f"{facts.ports[0]}-{facts.ports[1]}"
    open_to_all = [port for port in range(first, last + 1) if not any(a <= port <= b for a, b in facts.reserved)]
    if not open_to_all:
        return ok("network.port_range", f"{ours}, outside the ephemeral {facts.ephemeral[0]}-{facts.ephemeral[1]}")
    why = "Any program that dials out may be given a port that a gang is about to use."
    saw = f"{ours} lies in the ephemeral range {facts.ephemeral[0]}-{facts.ephemeral[1]}"
    path = "/etc/sysctl.d/92-holdfast.conf"
    fix = (
        f"echo net.ipv4.ip_local_reserved_ports={ours} > {path}; sysctl --system",
        'or agent.toml: port_range = "20000-20199"',
    )
    return error("network.port_range", saw, why, *fix)


def _taken(facts: NetworkFacts) -> Finding:
    count = facts.ports[1] - facts.ports[0] + 1
    foreign = [each for each in facts.listeners if not each.ours]
    if not foreign:
        return ok("network.ports", f"{count - len(facts.listeners)} of {count} are free")
    first = foreign[0]
    who = f" by {first.command} (pid {first.pid})" if first.pid else ""
    more = f", and {len(foreign) - 1} more" if len(foreign) > 1 else ""
    saw = f"port {first.port} is held{who}{more}"
    if not facts.seen:
        return needs_root("network.ports", f"whose {len(foreign)} of {count} ports are")
    why = "The range is Holdfast's: when too few are left no gang can meet here."
    fix = (f"ss -tlnp 'sport = :{first.port}'", "Move that program, or port_range in agent.toml.")
    return (error if len(foreign) == count else warning)("network.ports", saw, why, *fix)


def _hostname(facts: NetworkFacts) -> Finding:
    name, found = facts.hostname, facts.host_addresses
    if not found:
        why = "gloo and others ask for the host's own name and fail."
        return warning("network.hostname", f"{name} can't be resolved", why, f"echo 'ADDRESS {name}' >> /etc/hosts")
    loopback = [address for address in found if _is_loopback(address)]
    if not loopback:
        return ok("network.hostname", f"{name} is {', '.join(found)}")
    why = "gloo, NCCL and MPI tell their peers this address, and ranks of two hosts never meet."
    if facts.interface:
        why = "Ranks go by data_interface; programs that ask for the host's name (MPI, Ray) tell their peers this."
    address = facts.address if facts.address and not _is_loopback(facts.address) else "ADDRESS"
    fix = (f"/etc/hosts: in place of '{loopback[0]} {name}' write '{address} {name}'",)
    kind = warning if facts.interface or len(loopback) < len(found) else error
    return kind("network.hostname", f"{name} is {loopback[0]}: the host's own name is loopback", why, *fix)


def _interface(facts: NetworkFacts) -> Finding:
    known = f"ip -br addr    # there are: {', '.join(facts.interfaces)}"
    name = facts.interface
    if name and name not in facts.interfaces:
        why = "The agent refuses to start."
        return error("network.interface", f"there is no interface {name} (data_interface)", why, known)
    if name and not facts.interface_addresses:
        saw = f"{name} has no address (data_interface)"
        return error("network.interface", saw, "The agent refuses to start.", f"ip addr show {name}", known)
    if facts.address and facts.own_addresses and not _is_own(facts.address, facts.own_addresses):
        why = "Workers on other hosts reach this host there."
        return warning("network.interface", f"{facts.address} is no address of this host", why, known)
    via = f"{name}, {facts.interface_addresses[0]}" if name else f"the default route's, {facts.address}"
    return ok("network.interface", via)


def _is_own(address: str, own: Sequence[str]) -> bool:
    """Whether an address is one of ``own``. A name, which can't be checked, counts as one."""
    try:
        return str(ipaddress.ip_address(address)) in own
    except ValueError:
        return True


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
