"""Hosts as tables, and one host as a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast._base.plural import count
from holdfast._base.printable import one_line
from holdfast._base.proto_values import short_name
from holdfast._sdk.host_calls import gpus_free, partitions
from holdfast.cli.hosts.host_history import recent_events
from holdfast.cli.hosts.maintenance_table import in_words
from holdfast.cli.hosts.measurements import measured
from holdfast.cli.kit import reliability
from holdfast.cli.kit.console import OUT, coloured, say, styled
from holdfast.cli.kit.durations import age, clock
from holdfast.cli.kit.table import Cell, Column, Row, render, terminal_width, write
from holdfast.v1 import host_pb2

_STYLES = {"READY": "32", "SUSPECT": "33", "LOST": "31"}
_GIB = 1 << 30

_COLUMNS = (
    Column("NAME", give=True),
    Column("STATE"),
    Column("GPUS FREE", right=True),
    Column("CPUS FREE", right=True),
    Column("MEM FREE", right=True),
    Column("WORKERS", right=True),
    Column("SEEN", right=True),
)
_LAST = Column("REMARK", give=True)


def write_hosts(hosts: Sequence[host_pb2.Host], now: float, *, wide: bool) -> None:
    """The table on stdout, or a hint on stderr where there is no host."""
    if not hosts:
        say("No hosts yet. Start holdfast-agent on one, or try `holdfast dev start`.", err=True)
        return
    extra = (
        [Column("ADDRESS"), Column("AGENT"), Column("LABELS", give=True), Column("JOBS", give=True)] if wide else []
    )
    lines: list[Row] = []
    for host in hosts:
        jobs = ", ".join(host.job_ids) or "-"
        more = [host.address, host.agent_version, _labels(host) or "-", jobs] if wide else []
        lines.append([*_cells(host, now), *more, remark(host, now)])
    write([*_COLUMNS, *extra, _LAST], lines)


def write_host(host: host_pb2.Host, recent: Sequence[host_pb2.ListedHostEvent], now: float, *, wide: bool) -> None:
    """The page of one host, and its newest events, on stdout."""
    width, colour = terminal_width(), coloured(OUT)
    say(*page(host, now, wide=wide, width=width, colour=colour))
    if recent:
        say("", *recent_events(host.name, recent, width=width, colour=colour))


def page(host: host_pb2.Host, now: float, *, wide: bool, width: int | None, colour: bool) -> Iterator[str]:
    """Yield the lines of a host's page."""
    state, inventory = state_cell(host), host.inventory
    yield styled(one_line(host.name), "1", colour=colour) + "  " + styled(state.text, state.style, colour=colour)
    facts = [
        ("remark", remark(host, now)),
        ("seen", f"{age(now - host.last_seen.seconds)} ago" if host.HasField("last_seen") else "never"),
        ("address", host.address),
        ("agent", host.agent_version),
        ("cores", f"{inventory.cpu_count}, {host.cpu_reserved} reserved by jobs"),
        ("memory", f"{_gib(inventory.memory_bytes)}, {_gib(host.memory_reserved_bytes)} reserved by jobs"),
        ("type", ", ".join(host.machine_types)),
        ("MIG", ", ".join(f"{free}/{there} {name} free" for name, (free, there) in partitions(host).items())),
        ("workers", f"{host.workers} of at most {inventory.max_workers}"),
        ("jobs", ", ".join(host.job_ids)),
        *([("runs", "processes and containers")] if inventory.containers else []),
        ("cordon", _cordon(host, now)),
        *(("repair", line) for line in repairs(host)),
        ("drain", _drain(host, now)),
        ("spare", "kept for jobs that lose a host, and lent to SPOT jobs meanwhile" if host.spare else ""),
        *(("check", line) for line in failed_checks(host)),
        ("unknown", _strange(host)),
        *(("fails", line) for line in reliability.sentences(host.name, host.reliability, now)),
        *(("measured", line) for line in measured(host.measurements, now)),
        ("labels", _labels(host)),
        *([("boot", host.boot_id)] if wide else []),
    ]
    for name, value in facts:
        if value:
            yield styled(f"  {name:<8}", "2", colour=colour) + f"  {one_line(value)}"
    if inventory.gpus:
        yield ""
        yield styled("GPUs", "1", colour=colour)
        columns = [
            Column("INDEX", right=True),
            Column("MODEL", give=True),
            Column("MEMORY", right=True),
            Column("JOB"),
            Column("HEALTH", give=True),
            Column("UUID", give=not wide),
        ]
        lines: list[Row] = [
            [
                str(gpu.index),
                gpu.model,
                _gib(gpu.memory_bytes),
                gpu.job_id or _idle(gpu),
                Cell(gpu.problem or "good", "31" if gpu.problem else "32"),
                gpu.uuid,
            ]
            for gpu in inventory.gpus
        ]
        room = None if width is None else width - 2
        for line in render(columns, lines, width=room, colour=colour).splitlines():
            yield "  " + line


def host_line(host: host_pb2.Host, now: float) -> str:
    """A host as a line of a stream of changes."""
    colour = coloured(OUT)
    state = state_cell(host)
    gpus = f"  {free_gpus(host)} GPUs free" if host.inventory.gpus else ""
    parts = (
        styled(clock(now, now), "2", colour=colour),
        f"{one_line(host.name):<16}",
        styled(f"{state.text:<14}", state.style, colour=colour),
        f"{count(host.workers, 'worker')}{gpus}",
        one_line(remark(host, now)),
    )
    return "  ".join(parts).rstrip()


def state_cell(host: host_pb2.Host) -> Cell:
    """A host's state, and whether it is cordoned or being drained."""
    name = short_name(host_pb2.HostState, host.state)
    if host.going_down:
        return Cell(f"{name} going down", "33")
    if host.draining:
        return Cell(f"{name} {'drained' if host.drained else 'draining'}", "33")
    return Cell(f"{name} cordoned", "33") if host.cordoned else Cell(name, _STYLES.get(name, ""))


def _cells(host: host_pb2.Host, now: float) -> Row:
    inventory = host.inventory
    return [
        Cell(host.name, "1"),
        state_cell(host),
        free_gpus(host) if inventory.gpus else "-",
        f"{inventory.cpu_count - host.cpu_reserved}/{inventory.cpu_count}",
        _gib(inventory.memory_bytes - host.memory_reserved_bytes),
        str(host.workers),
        age(now - host.last_seen.seconds) if host.HasField("last_seen") else "never",
    ]


def free_gpus(host: host_pb2.Host) -> str:
    """Count of the GPUs that a job may have now, and of all: ``3/8``."""
    return f"{gpus_free(host)}/{len(host.inventory.gpus)}"


def _idle(gpu: host_pb2.Gpu) -> str:
    """Why no job holds it; by an older controller that it is free."""
    return short_name(host_pb2.GpuState, gpu.state).lower() if gpu.state else "free"


def repairs(host: host_pb2.Host) -> list[str]:
    """For each GPU that is out of service: what brings it back, by itself or by command."""
    reset = "the driver has enumerated it again after a reset, the host has booted"
    return [
        f"GPU {gpu.index}: {', '.join(fault.cause for fault in gpu.faults)}: out of service until "
        + ("the host has booted" if any(f.repair == host_pb2.GPU_REPAIR_REBOOT for f in gpu.faults) else reset)
        + f", or: holdfast host uncordon {host.name} --gpu {gpu.index}"
        for gpu in host.inventory.gpus
        if gpu.faults
    ]


def failed_checks(host: host_pb2.Host) -> list[str]:
    """Each check of the host that fails, and how to fix it."""
    return [
        f"{failed.check}{_class(failed)}: {failed.saw}" + (f"; try: {failed.fix[0]}" if failed.fix else "")
        for failed in host.failed_checks
    ]


def _class(failed: host_pb2.FailedCheck) -> str:
    """The class of a finding about hardware, such as " (degraded)"; empty for other checks."""
    if failed.health == host_pb2.HEALTH_CLASS_UNSPECIFIED:
        return ""
    admin = failed.waived == host_pb2.CHECK_WAIVER_ADMIN
    waived = ", waived by an admin" if admin else ", waived: a common cause?" if failed.waived else ""
    return f" ({short_name(host_pb2.HealthClass, failed.health).lower()}{waived})"


def _silence(host: host_pb2.Host, now: float) -> str:
    """Why nothing is heard from a host, and since when; empty while it is."""
    if host.HasField("going_down_since") and host.state != host_pb2.HOST_STATE_READY:
        return f"shut down at {clock(host.going_down_since.seconds, now)}"
    if host.HasField("agent_stopped_at"):
        return f"its agent was stopped at {clock(host.agent_stopped_at.seconds, now)}"
    return f"silent since {clock(host.silent_since.seconds, now)}" if host.HasField("silent_since") else ""


def remark(host: host_pb2.Host, now: float) -> str:
    """Say why a host is not as it should be, and what is planned for it; empty where there is nothing to say."""
    bad = [f"GPU {gpu.index}: {gpu.problem}" for gpu in host.inventory.gpus if gpu.problem]
    bad = [words for words in bad if words not in host.cordon_reason]
    unreconciled = "has yet to say what it runs, after a restore" if host.in_doubt else ""
    failed = [f"{each.check}: {each.saw}" for each in host.failed_checks]
    failed = [words for words in failed if words not in host.cordon_reason]
    spare = f"a spare (spares.{host.spare})" if host.spare else ""
    planned = f"maintenance {words}" if (words := in_words(host, now)) else ""
    reason = "" if host.maintenance.begun and host.cordon_reason == host.maintenance.reason else host.cordon_reason
    unknown = f"runs unknown work: {_strange(host)}" if host.strange_work else ""
    known = (host.refused, _silence(host, now), host.throttled, unreconciled, planned, reason)
    return "; ".join(filter(None, (*known, host.inventory.gpu_problem, *bad, *failed, unknown, spare)))


def _cordon(host: host_pb2.Host, now: float) -> str:
    """Name who cordoned the host, and since when; empty unless it is cordoned."""
    if not host.cordoned or not host.cordoned_by:
        return ""
    return f"by {host.cordoned_by} since {clock(host.cordoned_since.seconds, now)}"


def _strange(host: host_pb2.Host) -> str:
    """Jobs that run there and that the controller doesn't know, and how to be rid of them."""
    names = list(dict.fromkeys(work.job_id for work in host.strange_work))
    return f"{', '.join(names)} (stop it with: holdfast host stop-orphans {host.name} {names[0]})" if names else ""


def _drain(host: host_pb2.Host, now: float) -> str:
    """Progress of a drain, and until when work may stay; empty unless the host is drained."""
    if not host.draining:
        return ""
    if host.drained:
        return "done: nothing of its work is left"
    if not host.HasField("drain_deadline"):
        return "waits for its work to end"
    return f"moves what is still there off at {clock(host.drain_deadline.seconds, now)}"


def _labels(host: host_pb2.Host) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(host.labels.items()))


def _gib(size: int) -> str:
    return f"{size / _GIB:.0f}G" if size >= 10 * _GIB or not size else f"{size / _GIB:.1f}G"
