"""Events and entities as JSON, and back. A stored type is known by its name and version.

To change an event's fields, raise its version here and add an upcast from the old payload to the new one; to rename
its class, add the old name to ``_STORED_NAMES``. The log itself is never rewritten.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import json
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter

from holdfast._base.codec import from_plain, to_plain
from holdfast_controller.core import events as ev
from holdfast_controller.core.model.accounts.shares import Shares
from holdfast_controller.core.model.accounts.users import People
from holdfast_controller.core.model.goodput import ProgressWatch
from holdfast_controller.core.model.hang import KeptWatch
from holdfast_controller.core.model.hosts.host import Host
from holdfast_controller.core.model.hosts.reservations import HostReservations
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.jobs import JobHead
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
_ENTITIES: dict[str, type[Any]] = {cls.__name__.lower(): cls for cls in get_args(Entity)}


_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}


def _adapter(stored: type[Any]) -> TypeAdapter[Any]:
    """The adapter of what is stored. Made at its first use: to make all of them would be a tenth of a start."""
    if (found := _ADAPTERS.get(stored)) is None:
        found = _ADAPTERS[stored] = TypeAdapter(stored)
    return found


def prepare() -> None:
    """Make the adapters that the first snapshot needs: it takes tens of milliseconds."""
    for stored in (Job, Host):
        _adapter(stored)


@functools.cache
def layout() -> str:
    """A fingerprint of the fields of entities and heads in this build; what is stored with another one isn't read."""
    return fingerprint(*get_args(Entity), JobHead)


def fingerprint(*kinds: type[Any]) -> str:
    """The fingerprint of dataclasses' fields and of all types in them. JSON schemas would take six times as long."""
    known: dict[Any, list[str]] = {}
    for kind in kinds:
        _describe(kind, known)
    described = [[_name(kind), *about] for kind, about in known.items()]
    return hashlib.sha256(json.dumps(described).encode()).hexdigest()[:16]


def _describe(kind: Any, known: dict[Any, list[str]]) -> None:
    """Note what a type has: fields of a dataclass or a named tuple, members of an enum; and all types in it."""
    for inner in get_args(kind):
        _describe(inner, known)
    if not isinstance(kind, type) or kind in known:
        return
    if issubclass(kind, enum.Enum):
        known[kind] = [f"{each.name}={each.value!r}" for each in kind]
    elif is_dataclass(kind) or hasattr(kind, "_fields"):
        hints = get_type_hints(kind)
        names = [each.name for each in fields(kind)] if is_dataclass(kind) else list(hints)
        known[kind] = [f"{name}: {_name(hints[name])}" for name in names]
        for name in names:
            _describe(hints[name], known)


def _name(kind: Any) -> str:
    """A type without the modules of its classes: one that moves to another module is stored as before."""
    name = getattr(get_origin(kind) or kind, "__name__", str(kind))
    return f"{name}[{', '.join(map(_name, inner))}]" if (inner := get_args(kind)) else str(name)


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
    return _adapter(type(event)).serializer.to_json(event).decode()  # ``dump_json`` takes its time for its options


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
    event: ev.Event = _adapter(EVENT_TYPES[name]).validate_json(payload)
    return event


def payload_of_0_1(name: str, version: int, payload: str) -> Payload:
    """A stored event's fields as release 0.1 named and wrote them, for its clients."""
    fields: Payload = json.loads(payload)
    return fields if version == 1 else as_released(name, fields)


def dump_entity(entity: Entity) -> str:
    """An entity as JSON."""
    return _adapter(type(entity)).dump_json(entity).decode()


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


def dump_head(head: JobHead) -> str:
    """A head as JSON."""
    return _adapter(JobHead).dump_json(head).decode()


def load_head(payload: str) -> JobHead:
    """The head that ``dump_head`` wrote."""
    head: JobHead = _adapter(JobHead).validate_json(payload)
    return head


def dump_watch(kept: KeptWatch) -> str:
    """The stored part of a job's watch, as JSON."""
    return json.dumps(to_plain(kept), separators=(",", ":"))


def load_watch(payload: str) -> KeptWatch:
    """The watch that ``dump_watch`` wrote. Raises ``ValueError`` for anything else, and for another version's."""
    return from_plain(KeptWatch, json.loads(payload))


def dump_progress(watch: ProgressWatch) -> str:
    """The progress of a running generation, as JSON."""
    return _adapter(ProgressWatch).dump_json(watch).decode()


def load_progress(payload: str) -> ProgressWatch:
    """The progress that ``dump_progress`` wrote. Raises ``ValueError`` for anything else."""
    watch: ProgressWatch = _adapter(ProgressWatch).validate_json(payload)
    return watch


def load_entity(kind: str, payload: str) -> Any:
    """The entity as stored; ``kind`` is its type's name in small letters."""
    return _adapter(_ENTITIES[kind]).validate_json(payload)
