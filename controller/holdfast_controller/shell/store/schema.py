"""The store's tables. Change them only by a migration under ``migrations/``.

``checksum`` is over all other columns of its row (``records.with_checksum``); that of an answer leaves its number out.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Float, Index, Integer, LargeBinary, MetaData, Table, Text

metadata = MetaData()
Number = BigInteger().with_variant(Integer(), "sqlite")
"""Of 64 bits: an unsigned checksum, and the numbers that restores leave out, are beyond 32."""
Words = Text().with_variant(Text(collation="C"), "postgresql")
"""Compared byte by byte, as SQLite does."""

meta = Table(
    "meta",
    metadata,
    Column("key", Words, primary_key=True),
    Column("value", Words, nullable=False),
    Column("checksum", Number, nullable=False, server_default="0"),
)
"""``epoch``: the term of the controller that may write; ``beat``: its commits without events; ``secret_key``;
``snapshot_sequence`` and ``…_layout``.
"""

events = Table(
    "events",
    metadata,
    Column("sequence", Number, primary_key=True, autoincrement=False),
    Column("entity", Words, nullable=False),
    Column("type", Words, nullable=False),
    Column("version", Number, nullable=False),
    Column("at", Float, nullable=False),
    Column("state", Words, nullable=False),
    Column("message", Words, nullable=False),
    Column("payload", Words, nullable=False),
    Column("checksum", Number, nullable=False),
    Index("events_of_entity", "entity", "sequence"),
)
"""The one log of the cluster."""

snapshots = Table(
    "snapshots",
    metadata,
    Column("entity", Words, primary_key=True),
    Column("payload", Words, nullable=False),
    Column("checksum", Number, nullable=False),
)
"""Entities as of ``meta.snapshot_sequence``: a cache that makes starts fast."""

heads = Table(
    "heads",
    metadata,
    Column("entity", Words, primary_key=True),
    Column("payload", Words, nullable=False),
    Column("checksum", Number, nullable=False),
)
"""Heads of jobs that have ended, as their snapshots have them: a start reads these, and not those snapshots."""

watches = Table(
    "watches",
    metadata,
    Column("job", Words, primary_key=True),
    Column("payload", Words, nullable=False),
    Column("checksum", Number, nullable=False),
)
"""State of the hang detector by job: a cache, which may be lost."""

answers = Table(
    "answers",
    metadata,
    Column("number", Number, primary_key=True, autoincrement=False),
    Column("by", Words, nullable=False),
    Column("request_id", Words, nullable=False),
    Column("digest", Words, nullable=False),
    Column("subject", Words, nullable=False),
    Column("checksum", Number, nullable=False, server_default="0"),
)
"""What calls with an id of their caller's were answered; ``number`` counts up. The newest are kept."""

evidence = Table(
    "evidence",
    metadata,
    Column("job", Words, primary_key=True),
    Column("hang", Number, primary_key=True),
    Column("worker", Words, primary_key=True),
    Column("content", LargeBinary, nullable=False),
    Column("checksum", Number, nullable=False, server_default="0"),
)
"""What was found of a worker before a hang was acted on: compressed JSON of ``holdfast.hang.evidence.evidence``."""

samples = Table(
    "samples",
    metadata,
    Column("job", Words, primary_key=True),
    Column("hang", Number, primary_key=True),
    Column("worker", Words, primary_key=True),
    Column("content", LargeBinary, nullable=False),
    Column("checksum", Number, nullable=False, server_default="0"),
)
"""What was sampled of a worker before a hang was noticed: gzipped lines of ``holdfast.hang.records.recording``."""

dumps = Table(
    "dumps",
    metadata,
    Column("job", Words, primary_key=True),
    Column("hang", Number, primary_key=True),
    Column("worker", Words, primary_key=True),
    Column("content", LargeBinary, nullable=False),
    Column("checksum", Number, nullable=False, server_default="0"),
)
"""Dumps of flight recorders of a worker's ranks, taken when a hang was noticed: ``_session.hang_wire.pack_dumps``."""

deleted_jobs = Table(
    "deleted_jobs",
    metadata,
    Column("job", Words, primary_key=True),
    Column("purged", Number, nullable=False),
    Column("swept", Boolean, nullable=False),
    Column("checksum", Number, nullable=False, server_default="0"),
)
"""Jobs that were deleted. ``purged``: the log's position by which nothing more happens to it, 0 before; ``swept``:
nothing else of it is in the store."""

progress = Table(
    "progress",
    metadata,
    Column("job", Words, primary_key=True),
    Column("payload", Words, nullable=False),
    Column("checksum", Number, nullable=False),
)
"""Progress of running generations for the goodput ledger, by job: a cache, which may be lost."""

statements = Table(
    "statements",
    metadata,
    Column("job", Words, primary_key=True),
    Column("ended", Number, nullable=False),
    Column("payload", Words, nullable=False),
    Column("checksum", Number, nullable=False),
)
"""Closing statements of the goodput ledger by job, JSON; ``ended`` is in ms since the epoch."""


def _days(name: str, *dimensions: str) -> Table:
    return Table(
        name,
        metadata,
        Column("day", Number, primary_key=True),
        *(Column(dimension, Words, primary_key=True) for dimension in dimensions),
        Column("model", Words, primary_key=True),
        Column("ranks", Boolean, primary_key=True),
        Column("category", Words, primary_key=True),
        Column("payer", Words, primary_key=True),
        Column("ms", Number, nullable=False),
        sqlite_with_rowid=False,
    )


host_days = _days("host_days", "host")
"""Settled time of the goodput ledger by UTC day (counted since the epoch) and host, in GPU-ms, or rank-ms."""
owner_days = _days("owner_days", "project", "owner")
"""The same by project and owner. No job is named in it, so it outlives its jobs."""

host_facts = Table(
    "host_facts",
    metadata,
    Column("day", Number, primary_key=True),
    Column("host", Words, primary_key=True),
    Column("since", Number, primary_key=True),
    Column("what", Words, primary_key=True),
    Column("busy", Boolean, primary_key=True),
    Column("count", Number, nullable=False),
    Column("ms", Number, nullable=False),
    sqlite_with_rowid=False,
)
"""Failures, repairs and time in service of hosts by UTC day, in the record that began at ``since`` (ms)."""

secrets = Table(
    "secrets",
    metadata,
    Column("holder", Words, primary_key=True),
    Column("name", Words, primary_key=True),
    Column("sealed", LargeBinary, nullable=False),
)
"""Values of secrets, sealed by a key that is not in the store: see ``vault``."""

outbox = Table(
    "letters",
    metadata,
    Column("sequence", Number, primary_key=True, autoincrement=False),
    Column("sink", Words, primary_key=True),
    Column("job", Words, nullable=False),
    Column("kind", Words, nullable=False),
    Column("body", Words, nullable=False),
    Column("checksum", Number, nullable=False, server_default="0"),
)
"""Notifications waiting to be delivered; ``sink`` is a channel or a job's own receiver. Named before 0.1."""

certificates = Table(
    "certificates",
    metadata,
    Column("party", Words, primary_key=True),
    Column("issued_at", Float, nullable=False),
    Column("issuer", Words, nullable=False),
    Column("trusts", Words, nullable=False),
    Column("checksum", Number, nullable=False, server_default="0"),
)
"""The newest certificate of each host and user; ``party`` is kind/NAME, the others are hashes of CAs."""

web_sessions = Table(
    "web_sessions",
    metadata,
    Column("digest", Words, primary_key=True),
    Column("id", Words, nullable=False),
    Column("user", Words, nullable=False),
    Column("began_at", Float, nullable=False),
    Column("used_at", Float, nullable=False),
    Column("address", Words, nullable=False),
    Column("agent", Words, nullable=False),
    Column("checksum", Number, nullable=False, server_default="0"),
)
"""Browsers that are signed in to the web page; ``digest`` is the hash of their cookie."""
