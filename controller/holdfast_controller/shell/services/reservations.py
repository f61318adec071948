"""Reservations of hosts as calls of ``ClusterService`` take and answer them."""

from __future__ import annotations

from holdfast._base.job_file.label_match import MATCH_FIX, read_match
from holdfast._base.projects import EVERY_PROJECT
from holdfast._base.proto_values import seconds
from holdfast.errors import InvalidInput, Violation
from holdfast.v1 import cluster_pb2
from holdfast_controller.core.access.rules import Registry
from holdfast_controller.core.lifecycle.other_hosts import schedulable_hosts
from holdfast_controller.core.model.clock import NEVER, Wall, named
from holdfast_controller.core.model.gang import HostSelector
from holdfast_controller.core.model.hosts.reservations import Reservation
from holdfast_controller.core.scheduling.host_reservations import ReservedNow, reserved_now
from holdfast_controller.core.step.reservation_commands import ReservationAsked, ReservationDeletionAsked
from holdfast_controller.shell.convert.job_to_proto import timestamp
from holdfast_controller.shell.driver import Driver, now


async def list_reservations(
    driver: Driver, registry: Registry, caller: str
) -> cluster_pb2.ListReservationsResponse:
    """All that aren't over; whose, reason and maker only where the caller is that user or may see the project."""
    cluster, sees = driver.cluster, registry.sees(caller)
    found = reserved_now(cluster, schedulable_hosts(cluster), now())
    answer = cluster_pb2.ListReservationsResponse(
        reservations=[
            _to_proto(
                each,
                registry,
                whole=each.reservation.user == caller or sees(each.reservation.project or EVERY_PROJECT),
            )
            for each in found
        ]
    )
    await driver.settled()
    return answer


async def create_reservation(
    driver: Driver, registry: Registry, by: str, request: cluster_pb2.CreateReservationRequest
) -> cluster_pb2.CreateReservationResponse:
    """Make it; the answer has the hosts that it has at first."""
    wanted = request.reservation
    if not wanted.HasField("end"):
        raise InvalidInput([Violation("end", "is missing", "name the time until which the hosts are reserved")])
    start = named(seconds(wanted.start)) if wanted.HasField("start") else NEVER
    try:
        match = read_match(wanted.match)
    except ValueError as error:
        raise InvalidInput([Violation("match", str(error), MATCH_FIX)]) from None
    hosts, labels = frozenset(wanted.hosts), tuple(sorted(wanted.labels.items()))
    selector = HostSelector(hosts=hosts, labels=labels, match=match)
    asked = Reservation(
        name=wanted.name,
        project=wanted.project,
        start=start,
        end=Wall(seconds(wanted.end)),
        selector=selector,
        count=wanted.count,
        gpus=wanted.gpus,
        gpu_type=wanted.gpu_type,
        reason=wanted.reason,
        by=by,
        user=wanted.user,
    )
    name = await driver.ask(lambda token: ReservationAsked(token, asked))
    cluster = driver.cluster
    found = reserved_now(cluster, schedulable_hosts(cluster), now())
    made = next((_to_proto(each, registry, whole=True) for each in found if each.reservation.name == name), None)
    return cluster_pb2.CreateReservationResponse(reservation=made)


async def delete_reservation(driver: Driver, by: str, name: str) -> cluster_pb2.DeleteReservationResponse:
    """End it at once."""
    await driver.ask(lambda token: ReservationDeletionAsked(token, by, name))
    return cluster_pb2.DeleteReservationResponse()


def _to_proto(found: ReservedNow, registry: Registry, *, whole: bool) -> cluster_pb2.Reservation:
    made = found.reservation
    return cluster_pb2.Reservation(
        name=made.name,
        project=made.project if whole else "",
        start=timestamp(made.start),
        end=timestamp(made.end),
        hosts=sorted(made.selector.hosts),
        labels=dict(made.selector.labels),
        count=made.count,
        gpus=made.gpus,
        gpu_type=made.gpu_type,
        reason=made.reason if whole else "",
        created_by=made.by if whole else "",
        chosen_hosts=found.hosts,
        lack=found.lack,
        match=",".join(map(str, made.selector.match)),
        user=made.user if whole else "",
        jobs_of_others=found.jobs_of_others,
        unknown_user=whole and bool(made.user) and not registry.knows(made.user),
    )
