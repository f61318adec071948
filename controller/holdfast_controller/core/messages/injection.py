"""Injected faults in words."""

from __future__ import annotations

from holdfast_controller.core import events as ev
from holdfast_controller.core.model.injection import Fault

_WHAT = {
    Fault.KILL: "{rank} is killed",
    Fault.STOP: "{rank} stands still",
    Fault.SLOW: "{rank} runs {speed} % of the time",
    Fault.DISK: "no file of {rank} can grow",
    Fault.HANG: "{rank} hangs",
    Fault.NET: "the network of {rank} is cut, with that of its worker",
}


def injection_message(event: ev.FaultInjected | ev.FaultNotInjected) -> str:
    """The sentence for an injected fault."""
    rank = f"{event.worker} rank {event.rank}"
    if isinstance(event, ev.FaultNotInjected):
        return f"no fault was injected into {rank}: {event.why}"
    what = _WHAT[event.fault].format(rank=rank, speed=event.speed)
    for_s = event.until - event.at
    return f"{event.by} injects a fault: {what}" + (f" for {for_s:.12g} s" if event.fault is not Fault.KILL else "")
