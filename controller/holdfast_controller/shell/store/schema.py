"""The store's tables. Change them only by a migration under ``migrations/``.

``checksum`` is over all other columns of its row (``records.with_checksum``); that of an answer leaves its number out.
"""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Float, Index, Integer, LargeBinary, MetaData, Table, Text

metadata = MetaData()

meta = Table(
    "meta",
    metadata,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
    Column("checksum", Integer, nullable=False, server_default="0"),
)
"""``epoch``: the term of the controller that may write; ``beat``: its commits without events; ``secret_key``;
``snapshot_sequence`` and ``…_layout``.
"""

events = Table(
    "events",
    metadata,
    Column("sequence", Integer, primary_key=True, autoincrement=False),
    Column("entity", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("at", Float, nullable=False),
    Column("state", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("payload", Text, nullable=False),
    Column("checksum", Integer, nullable=False),
    Index("events_of_entity", "entity", "sequence"),
)
"""The one log of the cluster."""

snapshots = Table(
    "snapshots",
    metadata,
    Column("entity", Text, primary_key=True),
    Column("payload", Text, nullable=False),
    Column("checksum", Integer, nullable=False),
)
"""Entities as of ``meta.snapshot_sequence``: a cache that makes starts fast."""

watches = Table(
    "watches",
    metadata,
    Column("job", Text, primary_key=True),
    Column("payload", Text, nullable=False),
    Column("checksum", Integer, nullable=False),
)
"""State of the hang detector by job: a cache, which may be lost."""

answers = Table(
    "answers",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("by", Text, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("checksum", Integer, nullable=False, server_default="0"),
)
"""What calls with an id of their caller's were answered; ``number`` counts up. The newest are kept."""

evidence = Table(
    "evidence",
    metadata,
    Column("job", Text, primary_key=True),
    Column("hang", Integer, primary_key=True),
    Column("worker", Text, primary_key=True),
    Column("content", LargeBinary, nullable=False),
    Column("checksum", Integer, nullable=False, server_default="0"),
)
"""What was found of a worker before a hang was acted on: compressed JSON of ``holdfast.hang.evidence.evidence``."""

samples = Table(
    "samples",
    metadata,
    Column("job", Text, primary_key=True),
    Column("hang", Integer, primary_key=True),
    Column("worker", Text, primary_key=True),
    Column("content", LargeBinary, nullable=False),
    Column("checksum", Integer, nullable=False, server_default="0"),
)
"""What was sampled of a worker before a hang was noticed: gzipped lines of ``holdfast.hang.records.recording``."""

dumps = Table(
    "dumps",
    metadata,
    Column("job", Text, primary_key=True),
    Column("hang", Integer, primary_key=True),
    Column("worker", Text, primary_key=True),
    Column("content", LargeBinary, nullable=False),
    Column("checksum", Integer, nullable=False, server_default="0"),
)
"""Dumps of flight recorders of a worker's ranks, taken when a hang was noticed: ``_session.hang_wire.pack_dumps``."""

deleted_jobs = Table(
    "deleted_jobs",
    metadata,
    Column("job", Text, primary_key=True),
    Column("purged", Integer, nullable=False),
    Column("swept", Boolean, nullable=False),
    Column("checksum", Integer, nullable=False, server_default="0"),
)
"""Jobs that were deleted. ``purged``: the log's position by which nothing more happens to it, 0 before; ``swept``:
nothing else of it is in the store."""

progress = Table(
    "progress",
    metadata,
    Column("job", Text, primary_key=True),
    Column("payload", Text, nullable=False),
    Column("checksum", Integer, nullable=False),
)
"""Progress of running generations for the goodput ledger, by job: a cache, which may be lost."""

statements = Table(
    "statements",
    metadata,
    Column("job", Text, primary_key=True),
    Column("ended", Integer, nullable=False),
    Column("payload", Text, nullable=False),
    Column("checksum", Integer, nullable=False),
)
"""Closing statements of the goodput ledger by job, JSON; ``ended`` is in ms since the epoch."""


def _days(name: str, *dimensions: str) -> Table:
    return Table(
        name,
        metadata,
        Column("day", Integer, primary_key=True),
        *(Column(dimension, Text, primary_key=True) for dimension in dimensions),
        Column("model", Text, primary_key=True),
        Column("ranks", Boolean, primary_key=True),
        Column("category", Text, primary_key=True),
        Column("payer", Text, primary_key=True),
        Column("ms", Integer, nullable=False),
        sqlite_with_rowid=False,
    )


host_days = _days("host_days", "host")
"""Settled time of the goodput ledger by UTC day (counted since the epoch) and host, in GPU-ms, or rank-ms."""
owner_days = _days("owner_days", "project", "owner")
"""The same by project and owner. No job is named in it, so it outlives its jobs."""

host_facts = Table(
    "host_facts",
    metadata,
    Column("day", Integer, primary_key=True),
    Column("host", Text, primary_key=True),
    Column("since", Integer, primary_key=True),
    Column("what", Text, primary_key=True),
    Column("busy", Boolean, primary_key=True),
    Column("count", Integer, nullable=False),
    Column("ms", Integer, nullable=False),
    sqlite_with_rowid=False,
)
"""Failures, repairs and time in service of hosts by UTC day, in the record that began at ``since`` (ms)."""

secrets = Table(
    "secrets",
    metadata,
    Column("holder", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("sealed", LargeBinary, nullable=False),
)
"""Values of secrets, sealed by a key that is not in the store: see ``vault``."""

outbox = Table(
    "letters",
    metadata,
    Column("sequence", Integer, primary_key=True, autoincrement=False),
    Column("sink", Text, primary_key=True),
    Column("job", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("checksum", Integer, nullable=False, server_default="0"),
)
"""Notifications waiting to be delivered; ``sink`` is a channel or a job's own receiver. Named before 0.1."""

certificates = Table(
    "certificates",
    metadata,
    Column("party", Text, primary_key=True),
    Column("issued_at", Float, nullable=False),
    Column("issuer", Text, nullable=False),
    Column("trusts", Text, nullable=False),
    Column("checksum", Integer, nullable=False, server_default="0"),
)
"""The newest certificate of each host and user; ``party`` is kind/NAME, the others are hashes of CAs."""

web_sessions = Table(
    "web_sessions",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("id", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("began_at", Float, nullable=False),
    Column("used_at", Float, nullable=False),
    Column("address", Text, nullable=False),
    Column("agent", Text, nullable=False),
    Column("checksum", Integer, nullable=False, server_default="0"),
)
"""Browsers that are signed in to the web page; ``digest`` is the hash of their cookie."""
