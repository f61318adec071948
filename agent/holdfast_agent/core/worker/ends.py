"""A worker from the exit of a rank to the proof that nothing of it is left, and to its files' end."""

from __future__ import annotations

from holdfast_agent.core.model.gpus import Blind
from holdfast_agent.core.worker import actions as act
from holdfast_agent.core.worker import events as ev
from holdfast_agent.core.worker import gpu_release
from holdfast_agent.core.worker.actions import Action
from holdfast_agent.core.worker.exit_reasons import port_was_taken, unseen_exits
from holdfast_agent.core.worker.host_state import HostState, shell_code
from holdfast_agent.core.worker.orders import on_assigned
from holdfast_agent.core.worker.states import (
    Closing,
    Empty,
    Forgetting,
    Forgotten,
    Freeing,
    Launching,
    Lost,
    Quarantined,
    Running,
    Stopping,
    Stuck,
)
from holdfast_agent.core.worker.worker import forget_unused, lose


def on_rank_exited(host: HostState, event: ev.RankExited, now: float) -> list[Action]:
    """Send the exit to the controller, once."""
    worker = host.workers.get(event.key)
    generation, rank = event.exit.generation, event.exit.rank
    if worker is None or (generation, rank) in worker.ended:
        return []
    exit_ = worker.ended[generation, rank] = worker.with_attempt(event.exit)
    if generation == worker.state.generation:
        worker.codes[rank] = shell_code(exit_)
    actions = host.keep(worker, exit_, port_taken=port_was_taken(exit_, worker.launched_at, now))
    live = isinstance(worker.state, (Launching, Running)) and worker.state.generation == generation
    if live and rank not in worker.pids:
        actions += host.account(worker)
    return actions


def on_worker_emptied(host: HostState, event: ev.WorkerEmptied, now: float) -> list[Action]:
    """Let the next generation come, since no process is left; first the GPUs have to be free."""
    worker = host.workers.get(event.key)
    if worker is None or event.generation < worker.state.generation:
        return []
    match worker.state:
        case Launching() | Running() | Stopping() | Stuck() | Lost():
            if worker.gpus:
                return gpu_release.begin(worker, now)
            worker.move(Empty(worker.state.generation))
            return [act.FreePorts(worker.key), *host.emptied(worker, now)]
        case _:
            return []


def on_gpus_read(host: HostState, event: ev.GpusRead, now: float) -> list[Action]:
    """Learn what an unused GPU holds, and go on with a worker that waits for its GPUs to be free."""
    actions: list[Action] = []
    if not isinstance(event.usage, Blind) and gpu_release.learn(host.unused, event.usage):
        actions.append(act.RememberUnused(tuple(sorted(host.unused.items()))))
    worker = host.workers.get(event.key) if event.key else None
    if worker is None or not isinstance(worker.state, (Freeing, Quarantined)):
        return actions
    before = worker.report()
    held = gpu_release.still_held(worker.gpus, event, host.unused, host.facts.gpu_names, worker.survivors)
    actions += gpu_release.after_look(worker, held and f"{host.facts.name}: {held}", now)
    if isinstance(worker.state, Empty):
        return actions + host.emptied(worker, now)
    return actions + (host.report(worker) if worker.report() != before else [])


def on_epilog_ended(host: HostState, event: ev.EpilogEnded, now: float) -> list[Action]:
    """Mark the worker as empty; a failed epilog is reported and keeps later generations away."""
    worker = host.in_state(event.key, Closing, event.generation)
    if worker is None:
        return []
    worker.move(Empty(event.generation, event.problem))
    return [act.RememberClosed(event.key, event.generation), *host.settle(worker, now)]


def on_worker_stuck(host: HostState, event: ev.WorkerStuck, now: float) -> list[Action]:
    """Report the processes that are left; they may still end."""
    worker = host.workers.get(event.key)
    if worker is None or event.generation < worker.state.generation:
        return []
    match worker.state:
        case Launching() | Running() | Stopping() | Stuck() | Lost():
            news = Stuck(worker.state.generation, event.message)
            if news == worker.state:
                return []
            worker.move(news)
            return host.report(worker)
        case _:
            return []


def on_shim_lost(host: HostState, event: ev.ShimLost) -> list[Action]:
    """Clear the processes that the shim had launched."""
    worker = host.workers.get(event.key)
    if worker is None:
        return []
    if worker.state == Empty(0) and worker.desired is None and not worker.attempts:
        return forget_unused(worker)
    actions = lose(worker)
    return actions + (host.report(worker) if actions else [])


def on_orphans_cleared(host: HostState, event: ev.OrphansCleared, now: float) -> list[Action]:
    """Account for every rank of the dead shim's: from the journal where it says so, else honestly unknown."""
    worker = host.workers.get(event.key)
    if worker is None or not isinstance(worker.state, (Lost, Stuck)):
        return []
    actions: list[Action] = []
    journal = event.journal
    for exit_ in journal.exits if journal else ():
        actions += on_rank_exited(host, ev.RankExited(event.key, exit_), now)
    launched = tuple(worker.launched.ranks) if worker.launched else ()
    ranks = journal.launched if journal else launched
    if journal is not None and journal.empty:
        return actions + on_worker_emptied(host, ev.WorkerEmptied(event.key, event.generation), now)
    exits = unseen_exits(journal, event.generation, ranks, event.found)
    actions.append(act.RecordExits(event.key, event.generation, exits, () if journal else ranks))
    return actions


def on_worker_forgotten(host: HostState, event: ev.WorkerForgotten, now: float) -> list[Action]:
    """Drop the worker, unless the controller wants a newer generation by now."""
    worker = host.workers.get(event.key)
    if worker is None or not isinstance(worker.state, Forgetting):
        return []
    unsaid = worker.state.unsaid
    worker.move(Forgotten(worker.state.generation))
    del host.workers[event.key]
    if worker.desired is None or worker.desired.generation <= worker.state.generation:
        return [*(host.report(worker) if unsaid else []), *without_worker(host, event.key.job)]
    return on_assigned(host, ev.Assigned(worker.desired), now)


def on_output_unwanted(host: HostState, event: ev.OutputUnwanted) -> list[Action]:
    """Remove a deleted job's output, once no worker of it is left here."""
    host.unwanted.add(event.job)
    return without_worker(host, event.job)


def without_worker(host: HostState, job: str) -> list[Action]:
    if job not in host.unwanted or any(key.job == job for key in host.workers):
        return []
    host.unwanted.discard(job)
    return [act.RemoveOutput(job)]
