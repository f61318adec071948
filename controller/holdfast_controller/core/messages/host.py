"""Events of hosts in words; see ``message_of``."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from holdfast._base.health import FIGURES, REASONS, shown
from holdfast._base.plural import count
from holdfast._base.xids import Repair
from holdfast_controller.core.events import host as ev
from holdfast_controller.core.messages.maintenance import maintenance_message, span
from holdfast_controller.core.model.clock import Wall, time_of_day
from holdfast_controller.core.model.hosts.measurements import Kind, Measurement, Outcome

if TYPE_CHECKING:
    from holdfast_controller.core.model.hosts.host import Inventory


def host_message(event: ev.HostEvent) -> str:
    """The sentence for an event of a host."""
    match event:
        case ev.HostJoined():
            return _joined(event)
        case ev.GpuCondemned():
            what = "it" if event.fault.repair is Repair.RESET else "its host"
            need = "a reset of the GPU" if event.fault.repair is Repair.RESET else "a reboot"
            return f"{event.host} GPU {event.index}: {event.fault.cause}; {what} gets no new work before {need}"
        case ev.GpuCleared():
            how = event.why if event.by == "holdfast" else f"{event.why} by {event.by}"
            return f"{event.host} GPU {event.index}: {', '.join(event.causes)} is over: {how}"
        case ev.HostRefused():
            return f"{event.host} refused: {event.problem}"
        case ev.HostThrottled():
            most = f"{event.per_hour_bytes >> 20} MiB an hour"
            return f"{event.host} throttled: its {event.kind} messages exceed {most}"
        case ev.HostCordoned():
            return f"{event.host} cordoned by {event.by}" + (f": {event.reason}" if event.reason else "")
        case ev.HostUncordoned():
            return f"{event.host} uncordoned by {event.by}{', repaired' if event.repaired else ''}"
        case ev.HostDraining():
            until = "; remaining work is moved at the deadline" if event.deadline is not None else ""
            why = f": {event.reason}" if event.reason else ""
            return f"{event.host} is being drained by {event.by}{until}{why}"
        case ev.HostDrained():
            return f"{event.host} is drained: no work is left on it"
        case ev.HostFenced():
            return f"{event.host} fenced by {event.by}: nothing runs there any more" + (
                f" ({event.reason})" if event.reason else ""
            )
        case ev.HostPlaceFreed():
            return f"{event.host}: every process of {event.place} is proven gone, its share is free again"
        case ev.HostLost():
            return f"{event.host} lost: {_silence(event)}, decided lost at {time_of_day(event.at)}"
        case ev.HostReturned():
            after = f" after {span(event.at - event.silent_since)}" if event.silent_since else ""
            return f"{event.host} is back{after}"
        case ev.HostRemoved():
            return f"{event.host} removed by {event.by}; its certificates are void"
        case ev.HostShutdownBegan():
            return f"{event.host} shuts down; its work moves elsewhere"
        case ev.AgentStopped():
            return f"the agent of {event.host} was stopped; what runs there runs on"
        case ev.HostCheckFailed():
            kept = "; it gets no new work until that is over" if event.keeps_work_away else ""
            if event.waived is not None:
                kept = "; it still gets work, since many hosts have such findings at once: a common cause?"
            return f"{event.host} {event.check}: {event.saw}{kept}"
        case ev.HostCheckPassed():
            return f"{event.host} {event.check} is well again"
        case ev.MaintenancePlanned() | ev.MaintenanceBegan() | ev.MaintenanceEnded():
            return maintenance_message(event)
        case ev.HostMeasurementDue() | ev.HostMeasurementBegan() | ev.HostMeasured():
            return _measurement(event)
        case _:
            assert_never(event)


def _measurement(event: ev.HostMeasurementDue | ev.HostMeasurementBegan | ev.HostMeasured) -> str:
    match event:
        case ev.HostMeasurementDue(by=""):
            other = " with another host" if event.kind is Kind.PAIR else ""
            return f"{event.host} is slower than hosts like it, and is checked again{other}"
        case ev.HostMeasurementDue():
            return f"{event.host} is to be checked, as {event.by} asked"
        case ev.HostMeasurementBegan():
            pair = f" with {event.partner}" if event.partner else ""
            return f"{event.host} is checked{pair} by the job {event.job}: {REASONS[event.why.value]}"
        case ev.HostMeasured():
            return f"{event.host} {measured_in_words(event.result)}"
        case _:
            assert_never(event)


def measured_in_words(result: Measurement) -> str:
    """The result of a check, such as "was checked: memory.copy 9.1 GB/s"."""
    pair = f" with {result.partner}" if result.partner else ""
    if result.outcome is Outcome.STOPPED:
        return f"was not checked{pair} to the end: {result.problem}"
    if result.outcome is Outcome.ERROR:
        return f"could not be checked{pair}: {result.problem}"
    figures = ", ".join(f"{name} {shown(value)} {FIGURES[name].unit}" for name, value in result.figures.items())
    return f"was checked{pair}: {figures}" + (f" ({result.problem})" if result.problem else "")


def _joined(event: ev.HostJoined) -> str:
    has = _resources(event.inventory)
    if not event.known:
        return f"{event.host} joined from {event.address} with {has}"
    news = []
    if event.rebooted:
        news.append("has booted again")
    if event.previous_version:
        news.append(f"runs agent {event.agent_version} instead of {event.previous_version}")
    if event.agent_stopped_at and not event.rebooted:
        news.append(f"has an agent again after {span(event.at - event.agent_stopped_at)}")
    bad = "; ".join(gpu_problems(event.inventory))
    return f"{event.host} {', '.join(news) or f'now has {has} at {event.address}'}" + (f"; {bad}" if bad else "")


def gpu_problems(inventory: Inventory) -> list[str]:
    """The problems of a host's GPUs, such as "GPU 3: vanished", in index order."""
    bad = [f"GPU {gpu.index}: {gpu.problem}" for gpu in inventory.gpus if gpu.problem]
    return [inventory.gpu_problem, *bad] if inventory.gpu_problem else bad


def _resources(inventory: Inventory) -> str:
    gpus = f", {count(len(inventory.gpus), 'GPU')}" if inventory.gpus else ""
    return f"{count(inventory.cpus, 'core')}{gpus}"


def _silence(event: ev.HostLost) -> str:
    """Why nothing is heard, and since when."""
    if event.shut_down_at:
        return f"it shut down at {time_of_day(event.shut_down_at)}"
    if event.agent_stopped_at:
        return f"its agent was stopped at {time_of_day(event.agent_stopped_at)}"
    return f"silent since {time_of_day(Wall(event.at - event.silent_s))}"
