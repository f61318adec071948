"""Events and entities as JSON, and back. A stored type is known by its name and version.

To change an event's fields, raise its version here and add an upcast from the old payload to the new one; to rename
its class, add the old name to ``_STORED_NAMES``. The log itself is never rewritten.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable
from typing import Any, get_args

from pydantic import TypeAdapter

from holdfast._base.codec import from_plain, to_plain
from holdfast_controller.core import events as ev
from holdfast_controller.core.model.accounts.shares import Shares
from holdfast_controller.core.model.accounts.users import People
from holdfast_controller.core.model.hang import KeptWatch
from holdfast_controller.core.model.hosts.host import Host
from holdfast_controller.core.model.hosts.reservations import HostReservations
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.schedules import Schedule, Template, key_of
from holdfast_controller.shell.store.records import Record
from holdfast_controller.shell.store.release_0_1 import NEWER, as_released

_STORED_NAMES: dict[type[Any], str] = {
    ev.ReconciliationEnded: "DoubtEnded",
    ev.OrphanFound: "StrangerFound",
    ev.OrphanExited: "StrangerEnded",
    ev.OrphanStopRequested: "StrangerDismissed",
    ev.OrphanGone: "StrangerGone",
}
"""Events that release 0.1 stored under other names than those of today's classes; the log keeps the old ones."""


def stored_name(event_type: type[Any]) -> str:
    """The name that events of this type have in the log."""
    return _STORED_NAMES.get(event_type, event_type.__name__)


EVENT_TYPES: dict[str, type[Any]] = {stored_name(cls): cls for cls in get_args(ev.Event)}
VERSIONS: dict[str, int] = dict.fromkeys(EVENT_TYPES, 1) | dict.fromkeys(NEWER, 2)
Payload = dict[str, Any]
UPCASTS: dict[tuple[str, int], Callable[[Payload], Payload]] = {(name, 1): newer for name, newer in NEWER.items()}
"""By (type, old version): the payload of the next version."""

Entity = Job | Host | People | Shares | HostReservations | Schedule | Template
_ENTITIES: dict[str, TypeAdapter[Any]] = {
    "job": TypeAdapter(Job),
    "host": TypeAdapter(Host),
    "people": TypeAdapter(People),
    "shares": TypeAdapter(Shares),
    "hostreservations": TypeAdapter(HostReservations),
    "schedule": TypeAdapter(Schedule),
    "template": TypeAdapter(Template),
}


@functools.cache
def _adapter(name: str) -> TypeAdapter[Any]:
    """Type adapter of an event, made at its first use: making all of them would be a tenth of a start."""
    return TypeAdapter(EVENT_TYPES[name])


@functools.cache
def layout() -> str:
    """A fingerprint of the entities' fields in this build; snapshots with another one are not read."""
    schemas = {kind: adapter.json_schema() for kind, adapter in _ENTITIES.items()}
    return hashlib.sha256(json.dumps(schemas, sort_keys=True).encode()).hexdigest()[:16]


def entity_of(event: ev.Event) -> str:
    """The entity that an event is about: ``job/ID``, ``host/NAME``, ``people``, ``cluster`` and such."""
    if isinstance(event, ev.RankExited):  # most events are
        return f"job/{event.job_id}"
    if isinstance(event, ev.ClusterEvent):
        return "cluster"
    if isinstance(event, ev.PeopleEvent):
        return "people"
    if isinstance(event, ev.ScheduleEvent):
        return f"schedule/{key_of(event.project, event.name)}"
    if isinstance(event, ev.TemplateEvent):
        return f"template/{key_of(event.project, event.name)}"
    job_id = getattr(event, "job_id", None)
    return f"job/{job_id}" if job_id is not None else f"host/{event.host}"  # type: ignore[union-attr]


def dump_event(event: ev.Event) -> str:
    """The event's fields as JSON."""
    return _adapter(stored_name(type(event))).dump_json(event).decode()


def record(sequence: int, event: ev.Event, state: str, message: str) -> Record:
    """The entry of the log that holds an event."""
    name = stored_name(type(event))
    return Record(sequence, entity_of(event), name, VERSIONS[name], event.at, state, message, dump_event(event))


def load_event(name: str, version: int, payload: str) -> ev.Event:
    """The event of a stored payload, upcast from older versions. Raises ``KeyError`` for an unknown type or version."""
    while version < VERSIONS[name]:
        payload = json.dumps(UPCASTS[name, version](json.loads(payload)))
        version += 1
    if version > VERSIONS[name]:
        raise KeyError(f"{name} version {version}")
    event: ev.Event = _adapter(name).validate_json(payload)
    return event


def payload_of_0_1(name: str, version: int, payload: str) -> Payload:
    """A stored event's fields as release 0.1 named and wrote them, for its clients."""
    fields: Payload = json.loads(payload)
    return fields if version == 1 else as_released(name, fields)


def dump_entity(entity: Entity) -> str:
    """An entity as JSON."""
    return _ENTITIES[type(entity).__name__.lower()].dump_json(entity).decode()


def name_of(entity: Entity) -> str:
    """The entity's name in the log, as ``entity_of`` gives it for its events."""
    match entity:
        case Job():
            return f"job/{entity.id}"
        case Host():
            return f"host/{entity.name}"
        case People():
            return "people"
        case Shares():
            return "shares"
        case HostReservations():
            return "hostreservations"
        case Schedule():
            return f"schedule/{key_of(entity.project, entity.name)}"
        case Template():
            return f"template/{key_of(entity.project, entity.name)}"


def dump_watch(kept: KeptWatch) -> str:
    """The stored part of a job's watch, as JSON."""
    return json.dumps(to_plain(kept), separators=(",", ":"))


def load_watch(payload: str) -> KeptWatch:
    """The watch that ``dump_watch`` wrote. Raises ``ValueError`` for anything else, and for another version's."""
    return from_plain(KeptWatch, json.loads(payload))


def load_entity(kind: str, payload: str) -> Any:
    """The entity as stored; ``kind`` is its type's name in small letters."""
    return _ENTITIES[kind].validate_json(payload)
