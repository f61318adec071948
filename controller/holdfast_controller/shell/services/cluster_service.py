"""``ClusterService`` and gRPC's health service: the cluster and its controller as a whole."""

from __future__ import annotations

import asyncio
import itertools
import socket
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Hashable, Sequence
from typing import Any

from grpc_health.v1 import health, health_pb2

from holdfast._base.projects import EVERY_PROJECT
from holdfast._base.version import __version__
from holdfast.doctor.reach import TIME_KEY
from holdfast.v1 import cluster_pb2, cluster_pb2_grpc
from holdfast_controller.core.access.rules import Registry
from holdfast_controller.core.model.accounts.quota import quota_of
from holdfast_controller.core.model.clock import Mono
from holdfast_controller.core.scheduling.fair_share.guarantees import above_quotas, warning
from holdfast_controller.core.scheduling.fair_share.shares import project_shares
from holdfast_controller.core.step.share_commands import GuaranteeAsked, ShareAsked
from holdfast_controller.core.views.alerts import Alert, ControllerStatus, alerts
from holdfast_controller.core.views.overview import Overview, counting
from holdfast_controller.shell.calls.rpc import Context, caller_name, streaming, unary
from holdfast_controller.shell.calls.slices import TURNS
from holdfast_controller.shell.convert.job_to_proto import motd_to_proto, timestamp
from holdfast_controller.shell.convert.kept_hosts import KeptHosts
from holdfast_controller.shell.convert.share_to_proto import share_to_proto
from holdfast_controller.shell.driver import Driver, now
from holdfast_controller.shell.notify.dispatcher import Dispatcher
from holdfast_controller.shell.services import quotas, reservations
from holdfast_controller.shell.services.goodput import sum_goodput
from holdfast_controller.shell.services.metrics import Metrics
from holdfast_controller.shell.store.databases.engine import Standby

CHANGES_EVERY_S = 0.9
"""At the least between two answers of ``WatchChanges``."""
CHANGES_MOST = 200
"""Jobs and hosts that an answer lists; where there are more, their reader looks at everything again."""

COUNT_S, COUNTED_FOR, KEPT_S = 0.005, 20, 1.0
"""A count of all jobs and hosts that takes longer than this is kept for so many times as long, ``KEPT_S`` at most."""


class ClusterService(cluster_pb2_grpc.ClusterServiceServicer):
    """Serves the status page and the metrics of one controller."""

    def __init__(
        self,
        driver: Driver,
        metrics: Metrics,
        dispatcher: Dispatcher,
        cluster_name: str,
        *,
        shares_a_database: bool,
        topology: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """``topology`` gets the labels that name the levels of the network."""
        self._driver = driver
        self.hosts = KeptHosts(driver)
        self._metrics = metrics
        self._dispatcher = dispatcher
        self._name = cluster_name
        self._shares_a_database = shares_a_database
        self._topology = topology
        self._started = time.time()
        self._counted: tuple[Mono, Overview] | None = None
        self._counting = asyncio.Lock()
        self._moment = -1, 0
        self._telling: dict[Hashable, cluster_pb2.WatchChangesResponse] = {}
        """Changes that were sent at this moment."""

    @unary
    async def GetStatus(
        self, request: cluster_pb2.GetStatusRequest, context: Context
    ) -> cluster_pb2.GetStatusResponse:
        caller = caller_name(context)
        cluster, policies = self._driver.cluster, self._driver.reactor.policies
        sees = self._registry().sees(caller)
        found = await self._overview()
        at = now()
        controller = ControllerStatus(
            __version__, self._metrics.certificate_ends(), self._dispatcher.waiting, self._dispatcher.failing
        )
        found_alerts, more = alerts(cluster, found, sees, policies.quotas, controller, at)
        jobs: Counter[str] = Counter()
        for project in filter(sees, found.jobs_of):
            jobs.update(found.jobs_of[project])
        dispatcher, ends = self._dispatcher, controller.certificate_ends
        given_up = dispatcher.given_up.items() if sees(EVERY_PROJECT) else ()
        deliveries = cluster_pb2.Deliveries(
            waiting=dispatcher.waiting,
            delivered=dispatcher.delivered,
            failing=dispatcher.failing,
            given_up=[cluster_pb2.GivenUp(to=to, count=count, reason=why) for to, (count, why) in given_up],
        )
        everything = sees(EVERY_PROJECT)
        stored = await TURNS.begin().through(self._driver.stored.shown(caller, sees, everything=everything))
        await self._driver.settled()
        leadership = await self._leadership()
        return cluster_pb2.GetStatusResponse(
            cluster=self._name,
            version=__version__,
            started=timestamp(self._started),
            epoch=cluster.epoch,
            hosts={str(state): count for state, count in found.hosts.items()},
            gpus={str(state): count for state, count in found.gpus.items()},
            jobs={state: jobs.get(state, 0) for state in found.jobs},
            agents=found.versions,
            attention=[_to_proto(each) for each in found_alerts],
            attention_more=more,
            motd=motd_to_proto(cluster.people.motd),
            leadership=leadership,
            certificates=[cluster_pb2.CertificateEnd(name=name, end=timestamp(end)) for name, end in ends.items()],
            deliveries=deliveries,
            topology=self._topology(),
            stored=[
                cluster_pb2.StoredBytes(subject=use.subject, jobs=use.jobs, bytes=use.size, limit_bytes=use.limit)
                for use in stored
            ],
        )

    async def _overview(self) -> Overview:
        """The cluster as it is now; a count that took long serves calls that come soon after."""
        async with self._counting:
            at, known = now(), self._counted
            if known is not None and at.mono < known[0]:
                return known[1]
            slices = TURNS.begin()
            self.hosts.look()
            found = await slices.through(counting(self._driver.cluster, at, self.hosts.count))
            took_s = slices.worked_s
            kept = at.mono_in(min(COUNTED_FOR * took_s, KEPT_S))
            self._counted = (kept, found) if took_s > COUNT_S else None
            return found

    async def _leadership(self) -> cluster_pb2.Leadership | None:
        store = self._driver.store
        if not self._shares_a_database:
            return None
        standbys: list[Standby] = await asyncio.wrap_future(store.call(store.standbys))
        return cluster_pb2.Leadership(
            database=store.engine.name,
            leader=socket.gethostname(),
            standbys=[each.machine for each in standbys],
            standby_details=[
                cluster_pb2.Standby(
                    machine=each.machine,
                    behind_events=max(store.sequence - each.sequence, 0),
                    differing_settings=each.differing,
                )
                for each in standbys
            ],
            risk=store.engine.risk(),
        )

    def _registry(self) -> Registry:
        return Registry(self._name, self._driver.cluster.people, self._driver.reactor.policies.admins)

    @unary
    async def SumGoodput(
        self, request: cluster_pb2.SumGoodputRequest, context: Context
    ) -> cluster_pb2.SumGoodputResponse:
        sees = self._registry().sees(caller_name(context))
        return await sum_goodput(self._driver, request, sees)

    @unary
    async def ListShares(
        self, request: cluster_pb2.ListSharesRequest, context: Context
    ) -> cluster_pb2.ListSharesResponse:
        cluster, policies = self._driver.cluster, self._driver.reactor.policies
        sees = self._registry().sees(caller_name(context))
        shares = [each for each in project_shares(cluster, now().wall) if sees(each.project)]
        found = [share_to_proto(each, quota_of(policies.quotas, each.project)) for each in shares]
        above = (words for name, words in above_quotas(cluster, policies.quotas).items() if sees(name))
        answer = cluster_pb2.ListSharesResponse(
            shares=found,
            ordered=bool(cluster.shares.weights),
            warning="; ".join(filter(None, (warning(cluster), *itertools.islice(above, 4)))),
        )
        answer.half_life.FromNanoseconds(round(cluster.shares.half_life_s * 1e9))
        await self._driver.settled()
        return answer

    @unary
    async def SetShare(
        self, request: cluster_pb2.SetShareRequest, context: Context
    ) -> cluster_pb2.SetShareResponse:
        by, weight = caller_name(context), request.weight if request.HasField("weight") else None
        name = await self._driver.ask(lambda token: ShareAsked(token, by, request.project, weight))
        found = [each for each in project_shares(self._driver.cluster, now().wall) if each.project == name]
        quota = quota_of(self._driver.reactor.policies.quotas, name)
        return cluster_pb2.SetShareResponse(share=share_to_proto(found[0], quota) if found else None)

    @unary
    async def SetGuarantee(
        self, request: cluster_pb2.SetGuaranteeRequest, context: Context
    ) -> cluster_pb2.SetGuaranteeResponse:
        by, cluster = caller_name(context), self._driver.cluster
        name = await self._driver.ask(lambda token: GuaranteeAsked(token, by, request.project, request.gpus))
        found = next((each for each in project_shares(cluster, now().wall) if each.project == name), None)
        quota = quota_of(self._driver.reactor.policies.quotas, name)
        share = share_to_proto(found, quota) if found is not None else None
        return cluster_pb2.SetGuaranteeResponse(share=share, warning=warning(cluster))

    @unary
    async def ListQuotas(
        self, request: cluster_pb2.ListQuotasRequest, context: Context
    ) -> cluster_pb2.ListQuotasResponse:
        registry = self._registry()
        return await quotas.list_quotas(self._driver, registry, caller_name(context))

    @unary
    async def SetQuota(
        self, request: cluster_pb2.SetQuotaRequest, context: Context
    ) -> cluster_pb2.SetQuotaResponse:
        return await quotas.set_quota(self._driver, self._registry(), caller_name(context), request)

    @unary
    async def ListReservations(
        self, request: cluster_pb2.ListReservationsRequest, context: Context
    ) -> cluster_pb2.ListReservationsResponse:
        return await reservations.list_reservations(self._driver, self._registry(), caller_name(context))

    @unary
    async def CreateReservation(
        self, request: cluster_pb2.CreateReservationRequest, context: Context
    ) -> cluster_pb2.CreateReservationResponse:
        return await reservations.create_reservation(self._driver, self._registry(), caller_name(context), request)

    @unary
    async def DeleteReservation(
        self, request: cluster_pb2.DeleteReservationRequest, context: Context
    ) -> cluster_pb2.DeleteReservationResponse:
        return await reservations.delete_reservation(self._driver, caller_name(context), request.name)

    @streaming
    async def WatchChanges(
        self, request: cluster_pb2.WatchChangesRequest, context: Context
    ) -> AsyncGenerator[cluster_pb2.WatchChangesResponse, None]:
        caller, changes = caller_name(context), self._driver.changes
        bell = self._driver.watch("")
        try:
            read, first, until = request.cursor or changes.newest, True, changes.newest
            while True:
                bell.clear()
                answer = self._told(caller, read, until)
                if first or answer.jobs or answer.hosts or answer.all or answer.plans:
                    yield answer
                read, first = until, False
                if until == changes.newest:
                    await bell.wait()
                # All at the same moments, so that what is made for one of them is made for all.
                await asyncio.sleep(CHANGES_EVERY_S - time.monotonic() % CHANGES_EVERY_S)
                until = self._as_of(round(time.monotonic() / CHANGES_EVERY_S))
        finally:
            self._driver.unwatch("", bell)

    def _as_of(self, moment: int) -> int:
        """The position of the log up to which all streams go at this moment."""
        if self._moment[0] != moment:
            self._moment = moment, self._driver.changes.newest
            self._telling.clear()
        return self._moment[1]

    def _told(self, caller: str, read: int, until: int) -> cluster_pb2.WatchChangesResponse:
        """The changes after ``read``, made once for all who see and have read the same."""
        key = read, until, self._registry().seen(caller)
        if key not in self._telling:
            self._telling[key] = self._changed(caller, self._driver.changes.since(read), until)
        return self._telling[key]

    def _changed(self, caller: str, found: set[str] | None, cursor: int) -> cluster_pb2.WatchChangesResponse:
        """The part of the changed entities that a caller may know of; all, where they are None or many."""
        if found is None:
            return cluster_pb2.WatchChangesResponse(cursor=cursor, all=True)
        cluster = self._driver.cluster
        sees = self._registry().sees(caller)
        jobs, hosts, gone, plans = [], [], False, False
        for entity in sorted(found):
            kind, _, name = entity.partition("/")
            job = cluster.jobs.head(name) if kind == "job" else None
            gone |= kind == "job" and (job is None or job.deleted)
            if job is not None and sees(job.project):
                jobs.append(name)
            elif kind == "host":
                hosts.append(name)
            plans |= kind in ("schedule", "template") and sees(name.rpartition("/")[0])
            # The message of the day, or what a user may see; quotas, reservations, what is wrong with the cluster.
            gone |= kind in ("people", "cluster")
        if gone or len(jobs) + len(hosts) > CHANGES_MOST:
            return cluster_pb2.WatchChangesResponse(cursor=cursor, all=True)
        return cluster_pb2.WatchChangesResponse(cursor=cursor, jobs=jobs, hosts=hosts, plans=plans)

    @unary
    async def GetMetrics(
        self, request: cluster_pb2.GetMetricsRequest, context: Context
    ) -> cluster_pb2.GetMetricsResponse:
        await self._metrics.load()
        text, content_type = self._metrics.page(request.accept)
        return cluster_pb2.GetMetricsResponse(content_type=content_type, text=text)


def _to_proto(found: Alert) -> cluster_pb2.Attention:
    message = cluster_pb2.Attention(
        kind=cluster_pb2.AttentionKind.Value(f"ATTENTION_KIND_{found.kind.value}"),
        subject=found.subject,
        message=found.message,
    )
    if found.since is not None:
        message.since.CopyFrom(timestamp(found.since))
    return message


class Health(health.aio.HealthServicer):  # type: ignore[misc]
    """The standard health service, which tells the time as well: a doctor compares clocks with it."""

    async def Check(
        self, request: health_pb2.HealthCheckRequest, context: Any
    ) -> health_pb2.HealthCheckResponse | None:
        """Whether the controller serves, and in the answer's metadata its wall clock in seconds."""
        await context.send_initial_metadata(((TIME_KEY, f"{time.time():.6f}"),))
        answer: health_pb2.HealthCheckResponse | None = await super().Check(request, context)
        return answer
