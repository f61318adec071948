"""``holdfast dev start``: start what is dead of a dev cluster, and return when all of it is ready."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holdfast._base import extras
from holdfast._base.umask import closed_to_others
from holdfast.dev import daemons, plan, ports, processes, readiness
from holdfast.dev import layout as files
from holdfast.dev.layout import Layout
from holdfast.dev.plan import CONTROLLER, Cluster
from holdfast.dev.processes import Process
from holdfast.errors import ConfigError, Unavailable

_LOOK_S = 0.05


def start(
    directory: Path,
    hosts: int | None = None,
    gpus: int | None = None,
    port: int | None = None,
    labels: Mapping[str, Mapping[str, str]] | None = None,
) -> None:
    """Start a dev cluster in ``directory``, or whatever of it is dead; return when all agents are ready.

    The first start makes one host unless ``hosts`` says more, and listens on ``port`` or a free one. A later
    one keeps ports and identities, adds hosts up to ``hosts`` and takes none away; ``gpus`` (simulated, per
    host; 0 is the machine's own) and ``labels`` (by host) count for the hosts that it adds. Says on stderr what
    it did.

    Raises ``MissingPackages`` where a daemon's extra isn't installed, ``ConfigError`` for options that contradict
    the cluster or make no sense, ``WrongState`` while another start or stop is at work there, and ``Unavailable``,
    with the end of the failing daemon's log, when not all is ready within 60 s. Whatever ends it early, what it has
    started is stopped again.
    """
    extras.require("A dev cluster", "controller", "agent")
    with closed_to_others():
        _start(Layout(directory.expanduser().resolve()), hosts, gpus, port, labels)


def _start(
    layout: Layout,
    hosts: int | None,
    gpus: int | None,
    port: int | None,
    labels: Mapping[str, Mapping[str, str]] | None,
) -> None:
    began = time.monotonic()
    _claim(layout)
    with files.locked(layout), ports.Reserved() as reserved:
        known = files.load(layout)
        cluster = ports.choose(known, reserved, hosts=hosts, gpus=gpus, port=port)
        files.check_labels(layout, cluster, labels or {})
        if cluster != known:
            files.save(layout, cluster)
        files.complete(layout, cluster, as_root=_is_root(), labels=labels or {})
        run = _Run(layout, cluster, daemons.running(layout, cluster))
        try:
            _start_dead(run)
        except BaseException:
            daemons.end(layout, run.started)
            raise
    _say(_summary(run, time.monotonic() - began))


@dataclass
class _Run:
    """Daemons found running and daemons started, by name."""

    layout: Layout
    cluster: Cluster
    found: dict[str, Process]
    started: dict[str, Process] = field(default_factory=dict)
    since: dict[str, float] = field(default_factory=dict)
    log_offsets: dict[str, int] = field(default_factory=dict)

    @property
    def processes(self) -> Mapping[str, Process]:
        return self.found | self.started

    def launch(self, name: str) -> None:
        self.log_offsets[name] = daemons.log_size(self.layout.log(name))
        self.since[name] = time.time()
        self.started[name] = daemons.launch(self.layout, name)


def _claim(layout: Layout) -> None:
    """Make the directory ours alone. Raises ``ConfigError`` when it holds something else."""
    directory = layout.directory
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.check_own(layout)
        contents = {entry.name for entry in directory.iterdir()} - files.BEFORE_RECORD
        if contents and not layout.record.exists():
            raise ConfigError(
                f"{directory} is not empty and holds no dev cluster.", fix="Name a new folder with --dir."
            )
        directory.chmod(0o700)
    except OSError as error:
        raise ConfigError(f"Cannot use {directory}: {error.strerror}.", fix="Name another --dir.") from error


def _start_dead(run: _Run) -> None:
    controller_dead, hosts = plan.dead(run.cluster, run.found.keys())
    deadline = time.monotonic() + readiness.READY_S
    with readiness.link(run.cluster.port, run.layout.user()) as channel:

        def controller() -> dict[str, str]:
            missing = readiness.controller(channel)
            return {CONTROLLER: missing} if missing else {}

        if controller_dead:
            run.launch(CONTROLLER)
        _wait_ready(run, controller, deadline)
        for host in hosts:
            run.launch(host.name)
        # A host that was there before has to greet a new controller again.
        since = {h.name: run.since.get(h.name, run.since.get(CONTROLLER, 0.0)) for h in run.cluster.hosts}
        _wait_ready(run, lambda: readiness.hosts(channel, since), deadline)


def _wait_ready(run: _Run, ask: Callable[[], dict[str, str]], deadline: float) -> None:
    while True:
        missing = ask()
        for name, process in run.processes.items():
            if not processes.lives(process):
                raise _failed(run, name, _end_of(process))
        if not missing:
            return
        if time.monotonic() > deadline:
            name = next(iter(missing))
            raise _failed(run, name, f"is not ready after {readiness.READY_S:.0f} s: {missing[name]}")
        processes.wait_any(run.processes.values(), _LOOK_S)


def _end_of(process: Process) -> str:
    status = processes.exit_status(process)
    if status is None:
        return "ended before all was ready"
    how = f"was killed by signal {-status}" if status < 0 else f"exited with {status}"
    return f"{how} before all was ready"


def _failed(run: _Run, name: str, what: str) -> Unavailable:
    log = run.layout.log(name)
    tail = daemons.log_tail(log, run.log_offsets.get(name, 0))
    who = "The controller" if name == CONTROLLER else f"The agent of {name}"
    said = f" Its last words, from {log}:{tail}" if tail else f" It wrote nothing to {log}."
    return Unavailable(f"{who} {what}.{said}")


def _is_root() -> bool:
    return os.geteuid() == 0


def _summary(run: _Run, took_s: float) -> str:
    """The text printed when all is ready."""
    about = {CONTROLLER: f"127.0.0.1:{run.cluster.port}"}
    for host in run.cluster.hosts:
        plural = "" if host.gpus == 1 else "s"
        about[host.name] = f"{host.gpus} simulated GPU{plural}" if host.gpus else "the machine's own GPUs"
    width = max(len(text) for text in about.values())
    lines = [f"Dev cluster in {run.layout.directory}"]
    for name, text in about.items():
        how = "started" if name in run.started else "was running"
        pid = f"pid {run.processes[name].pid}"
        lines.append(f"  {name:<10}  {text:<{width}}  {pid:<11}  {how}")
    lines.append(f"Ready in {took_s:.1f} s." if run.started else "Everything was running already.")
    if _is_root():
        lines.append("You are root, so workers may run as root in this cluster (allow_root_workers).")
    if run.cluster.http_port:
        lines.append(f"JSON over HTTP: https://localhost:{run.cluster.http_port}/v1/jobs (with the files in pki/)")
    if run.cluster.metrics_port:
        where = f"http://127.0.0.1:{run.cluster.metrics_port}/metrics"
        lines.append(f"Metrics: {where} (an agent's: see metrics_listen in its agent.toml)")
    lines += ["", f"  export HOLDFAST_CONFIG={shlex.quote(str(run.layout.client_config))}", "  holdfast host list"]
    if run.cluster.web_port:
        lines.append("  holdfast web")
    lines.append("")
    return "\n".join(lines)


def _say(text: str) -> None:
    sys.stderr.write(text)
