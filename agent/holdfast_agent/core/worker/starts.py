"""A worker from its preparation to running ranks, and one that an earlier run of the agent has left."""

from __future__ import annotations

from holdfast_agent.core.worker import actions as act
from holdfast_agent.core.worker import events as ev
from holdfast_agent.core.worker import gpu_release
from holdfast_agent.core.worker.actions import Action
from holdfast_agent.core.worker.host_state import HostState, shell_code
from holdfast_agent.core.worker.states import (
    CannotPrepare,
    Empty,
    Launching,
    Lost,
    Prepared,
    Preparing,
    Running,
    Stopping,
    Stuck,
)
from holdfast_agent.core.worker.worker import Worker, close, forget_unused, keep_going, launch_of


def on_worker_found(host: HostState, event: ev.WorkerFound, now: float) -> list[Action]:
    """Take up a worker of an earlier run. Nothing is reported yet; the orphans of a dead shim are cleared."""
    worker = host.workers[event.key] = Worker(event.key, shim_pid=event.shim_pid)
    worker.attempts = sorted(event.attempts)
    for journal in event.journals:
        for exit_ in map(worker.with_attempt, journal.exits):
            worker.ended[journal.generation, exit_.rank] = exit_
            if (journal.generation, exit_.rank) not in event.acked:
                host.keep(worker, exit_, port_taken=False)
    if not event.journals:
        return [] if event.shim_pid or worker.attempts else forget_unused(worker)
    last = max(event.journals, key=lambda journal: journal.generation)
    worker.pids = dict(last.started)
    worker.codes = {exit_.rank: shell_code(exit_) for exit_ in last.exits}
    # What an earlier boot has left on a GPU is gone.
    worker.gpus = () if last.other_boot else last.gpus
    worker.bindings = dict(last.bindings)
    if last.empty and worker.gpus and event.freed < last.generation:
        return gpu_release.resume(worker, last.generation, now)
    if last.empty and host.facts.has_epilog and event.closed < last.generation:
        worker.find(Empty(last.generation))
        return close(worker)
    if last.empty:
        worker.find(Empty(last.generation))
    elif event.shim_pid:
        worker.find(Stopping(last.generation) if last.stopping else Running(last.generation))
    else:
        worker.find(Lost(last.generation))
        return [act.ClearOrphans(worker.key, last.generation)]
    return []


def on_worker_prepared(host: HostState, event: ev.WorkerPrepared, now: float) -> list[Action]:
    """Mark the worker as prepared; if another generation is desired by now, go on to that."""
    worker = host.in_state(event.key, Preparing, event.generation)
    if worker is None:
        return []
    worker.shim_pid = event.shim_pid
    worker.prepared = event
    worker.move(Prepared(event.generation, event.port, event.master_port))
    if worker.desired and worker.desired.generation == event.generation:
        worker.checked = worker.desired.launch or worker.checked
    return host.advance(worker, now, always=True)


def on_preparation_takes_long(host: HostState, event: ev.PreparationTakesLong, now: float) -> list[Action]:
    """Report a long step of the preparation, once for each step; it may be no longer needed."""
    worker = host.in_state(event.key, Preparing, event.generation)
    if worker is None or worker.doing == event.doing:
        return []
    worker.doing = event.doing
    return host.settle(worker, now)


def on_preparation_failed(host: HostState, event: ev.PreparationFailed, now: float) -> list[Action]:
    """Report why the preparation failed."""
    worker = host.in_state(event.key, Preparing, event.generation)
    if worker is None:
        return []
    worker.checked = None
    worker.move(CannotPrepare(event.generation, event.message, event.host_fault))
    return host.settle(worker, now)


def on_launch_refused(host: HostState, event: ev.LaunchRefused, now: float) -> list[Action]:
    """Report why the shim did not launch; no process was forked."""
    worker = host.in_state(event.key, Launching, event.generation)
    if worker is None:
        return [act.Note("shim.refused", event.key, event.message)]
    worker.move(CannotPrepare(event.generation, f"{host.facts.name}: {event.message}", event.host_fault))
    # The same assignment would only be refused again; a new one counts.
    return [act.FreePorts(worker.key), *host.report(worker)]


def on_rank_started(host: HostState, event: ev.RankStarted) -> list[Action]:
    """Keep the rank's pid, and report once all ranks are accounted for."""
    worker = host.workers.get(event.key)
    if worker is None or worker.state.generation != event.generation or event.rank in worker.pids:
        return []
    worker.pids[event.rank] = event.pid
    if event.warm:
        worker.started_warm.add(event.rank)
    if event.in_process:
        worker.in_process.add(event.rank)
    return host.account(worker)


def on_shim_greeted(host: HostState, event: ev.ShimGreeted, now: float) -> list[Action]:
    """Send the shim again what the last connection may have lost; the shim does nothing twice."""
    worker = host.workers.get(event.key)
    if worker is None:
        return []
    worker.shim_pid = event.shim_pid
    worker.warned = 0
    match worker.state:
        case Running():
            return keep_going(worker)
        case Empty(0) if not event.generation and worker.desired is None and not worker.attempts:
            return forget_unused(worker)
        case Empty(generation) if event.live and event.generation > generation:
            worker.pids, worker.codes = {}, {}
            worker.move(Running(event.generation))
            return host.advance(worker, now, always=True)
        case Launching(generation) if event.generation < generation and worker.desired is not None:
            return [launch_of(worker, host.plan(worker.desired))]
        case Stopping() | Stuck():
            worker.stop_asked = None
            return host.advance(worker, now)
        case _:
            return []


def on_peers_silent(host: HostState, event: ev.PeersSilent) -> list[Action]:
    """Report which other workers of the job are silent, once per change."""
    worker = host.workers.get(event.key)
    if worker is None or worker.silent_peers == event.silent:
        return []
    worker.silent_peers = event.silent
    return host.report(worker)


def on_warm_start_noted(host: HostState, event: ev.WarmStartNoted) -> list[Action]:
    """Keep what the shim says of the next start, and report it once per change."""
    worker = host.workers.get(event.key)
    if worker is None:
        return []
    worker.parked = event.parked > 0 or bool(event.survivors)
    worker.survivors = event.survivors
    if worker.warm == event.message:
        return []
    worker.warm = event.message
    return host.report(worker)
