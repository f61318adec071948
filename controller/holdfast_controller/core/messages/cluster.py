"""Events of hosts and of the cluster that admins are notified of, as what, and in which words."""

from __future__ import annotations

from typing import assert_never

from holdfast._base.dataclass import dataclass
from holdfast._base.health import Health
from holdfast_controller.core import events as ev
from holdfast_controller.core.messages.host import gpu_problems
from holdfast_controller.core.messages.maintenance import span
from holdfast_controller.core.model.accounts.subscription import ClusterNotice

CLUSTER_TELLING: tuple[type[ev.Event], ...] = (
    ev.HostLost,
    ev.HostReturned,
    ev.HostRefused,
    ev.HostThrottled,
    ev.HostShutdownBegan,
    ev.HostCordoned,
    ev.HostDrained,
    ev.HostJoined,
    ev.GpuCondemned,
    ev.GpuCleared,
    ev.OrphanFound,
    ev.CommonCauseNoticed,
    ev.ClusterRestored,
    ev.ReconciliationEnded,
    ev.CertificateEnding,
    ev.MostHostsSilent,
    ev.HostCheckFailed,
    ev.HostCheckPassed,
    ev.ControllerCheckFailed,
    ev.ControllerCheckPassed,
)
"""Types of events that admins may be notified of."""
HOST = "host/"
"""Begins the name of a host's certificate."""
BY_US = "holdfast"
"""Author of cordons that no admin asked for."""
GPUS_SHOWN = 4


@dataclass(frozen=True)
class News:
    """A notification of the cluster. Later news of a ``subject`` supersedes earlier news.

    ``answers``: worth sending only if the subject was reported before.
    """

    kind: ClusterNotice
    subject: str
    message: str
    answers: bool = False


def news_of(event: ev.Event, sentence: str) -> News | None:
    """The notification for ``event``, whose ``sentence`` is that of the log; None if it needs none."""
    match event:
        case ev.HostLost():
            return News(ClusterNotice.HOST_LOST, f"host/{event.host}", sentence)
        case ev.HostReturned():
            return News(ClusterNotice.HOST_RETURNED, f"host/{event.host}", sentence)
        case ev.HostRefused():
            return News(ClusterNotice.HOST_REFUSED, f"host/{event.host}", sentence)
        case ev.HostThrottled():
            return News(ClusterNotice.HOST_THROTTLED, f"host/{event.host}/messages", sentence)
        case ev.HostShutdownBegan():
            return News(ClusterNotice.HOST_SHUTDOWN, f"host/{event.host}", sentence)
        case ev.HostCordoned() if event.by == BY_US:
            return News(ClusterNotice.HOST_CORDONED, f"host/{event.host}/work", sentence)
        case ev.HostDrained():
            return News(ClusterNotice.HOST_DRAINED, f"host/{event.host}/work", sentence)
        case ev.HostJoined():
            return _gpus(event)
        case ev.GpuCondemned():
            return News(ClusterNotice.GPU_FAULT, f"host/{event.host}/gpu/{event.index}", sentence)
        case ev.GpuCleared() if event.by == BY_US:
            return News(ClusterNotice.GPU_RECOVERED, f"host/{event.host}/gpu/{event.index}", sentence)
        case ev.OrphanFound():
            return News(ClusterNotice.ORPHAN_FOUND, f"host/{event.host}/orphans", sentence)
        case ev.CommonCauseNoticed():
            about = event.mount or ",".join(event.hosts) or ",".join(event.jobs)
            return News(ClusterNotice.COMMON_CAUSE, f"cause/{about}", sentence)
        case ev.ClusterRestored() | ev.ReconciliationEnded():
            return News(ClusterNotice.RESTORED, "controller/restore", sentence)
        case ev.CertificateEnding():
            return News(ClusterNotice.CERTIFICATE, f"certificate/{event.certificate}", sentence)
        case ev.MostHostsSilent():
            return News(ClusterNotice.HOSTS_SILENT, "cluster/hosts", sentence)
        case ev.HostCheckFailed() if event.health is not Health.INFORM:
            return News(ClusterNotice.CHECK_FAILED, f"host/{event.host}/check/{event.check}", sentence)
        case ev.HostCheckPassed():
            subject = f"host/{event.host}/check/{event.check}"
            answers = event.health is Health.INFORM  # no one is notified of such, but it may have been worse
            return News(ClusterNotice.CHECK_PASSED, subject, sentence, answers)
        case ev.ControllerCheckFailed():
            return News(ClusterNotice.CHECK_FAILED, f"controller/check/{event.check}", sentence)
        case ev.ControllerCheckPassed():
            return News(ClusterNotice.CHECK_PASSED, f"controller/check/{event.check}", sentence)
        case _:
            return None


def _gpus(event: ev.HostJoined) -> News:
    host, subject = event.host, f"host/{event.host}/gpus"
    bad = gpu_problems(event.inventory)
    if not bad:
        well, answers = f"{host}: its GPUs are well again", not event.had_gpu_problems
        return News(ClusterNotice.GPU_RECOVERED, subject, well, answers)
    more = f" and {len(bad) - GPUS_SHOWN} more" if len(bad) > GPUS_SHOWN else ""
    return News(ClusterNotice.GPU_FAULT, subject, f"{host}: {'; '.join(bad[:GPUS_SHOWN])}{more}")


def cluster_news_message(event: ev.ClusterNews) -> str:
    """The sentence for an event of the whole cluster."""
    match event:
        case ev.CertificateEnding():
            left_s = event.ends_at - event.at
            ends = f"ends in {span(left_s)}" if left_s > 0 else "has ended"
            if event.certificate.startswith(HOST):
                host = event.certificate.removeprefix(HOST)
                return f"the certificate of {host} {ends}: see its agent's log for why it isn't renewed"
            log = "see the controller's log for why it isn't renewed"
            fix = "rotate the CA" if event.certificate == "ca" else log
            return f"the controller's {event.certificate} certificate {ends}: {fix}"
        case ev.MostHostsSilent():
            silent = f"{event.silent} of {event.hosts} hosts are silent at once"
            return f"{silent}: likelier the network's or the controller's fault, so none is given up"
        case ev.ControllerCheckFailed():
            return f"the controller's {event.check}: {event.saw}"
        case ev.ControllerCheckPassed():
            return f"the controller's {event.check} is well again"
        case ev.ClockLeapt():
            way = "forward" if event.by_s > 0 else "back"
            return f"the controller's clock went {way} by {span(abs(event.by_s))} at once: no duration counts that"
        case _:
            assert_never(event)
