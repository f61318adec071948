"""One view of the queue for all calls: a projection of starts takes milliseconds, and lists are read all the time."""

from __future__ import annotations

import itertools

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.lifecycle.other_hosts import schedulable_hosts
from holdfast_controller.core.model.clock import Mono, Now
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.scheduling.fair_share.turns import in_turn
from holdfast_controller.core.scheduling.projections.projected_start import most_forecast
from holdfast_controller.core.scheduling.wait_reasons.pending_reason import QueueView
from holdfast_controller.core.step.step import Policies

RENEWED_S = 1.0
"""What changes without an event, such as the time or a host's silence, is seen so late; and projected starts while
the same jobs are first in the queue."""


@dataclass(frozen=True, slots=True)
class _Known:
    view: QueueView
    sequence: int
    policies: Policies
    first: tuple[str, ...]
    """The jobs whose starts may be projected."""
    until: Mono


class SharedQueueView:
    """Made again after every event, and after ``RENEWED_S``."""

    def __init__(self) -> None:
        self._known: _Known | None = None

    def of(self, cluster: Cluster, policies: Policies, now: Now, *, projected: bool = True) -> QueueView:
        """The queue as it is now, up to what has changed without an event; or one that projects no starts."""
        if not projected:
            return QueueView(
                cluster,
                schedulable_hosts(cluster),
                policies.quotas,
                loan_s=policies.loan_s,
                backfill=policies.backfill,
                at=now,
            )
        known = self._known
        if known is not None and (known.policies is not policies or now.mono >= known.until):
            known = None
        if known is None or known.sequence != cluster.sequence:
            known = self._known = self._renewed(cluster, policies, now, known)
        return known.view

    def _renewed(self, cluster: Cluster, policies: Policies, now: Now, before: _Known | None) -> _Known:
        hosts = schedulable_hosts(cluster)
        backfill = policies.backfill
        view = QueueView(cluster, hosts, policies.quotas, now=now, loan_s=policies.loan_s, backfill=backfill)
        first, until = tuple(itertools.islice(in_turn(cluster), most_forecast(hosts))), now.mono_in(RENEWED_S)
        if before is not None and before.first == first and "starts" in vars(before.view):
            # Behind these jobs others come and go all the time.
            view.starts, until = before.view.starts, before.until
        return _Known(view, cluster.sequence, policies, first, until)
