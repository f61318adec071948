"""Draw the limits in ``docs/security.md`` from the code that holds them: ``python docs/draw_limits.py [--check]``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from holdfast._base.identity import Kind
from holdfast_controller.shell.calls import bounds, field_bounds

PAGE = Path(__file__).with_name("security.md")
BEGIN, END = "<!-- drawn by docs/draw_limits.py -->", "<!-- drawn until here -->"
C, A, H = "holdfast_controller", "holdfast_agent", "holdfast"
STEP = f"{C}.core.step.step:Policies"
BYTES, COUNT, SECONDS, SHARE = "bytes", "count", "seconds", "share"
Row = tuple[str, str, str, str]
"""The limit, its constant (module:NAME), the constant's unit, and what happens beyond it."""

CALLS: list[Row] = [
    ("a message over gRPC", f"{C}.shell.calls.bounds:MESSAGE_BYTES", BYTES, "refused"),
    (
        "what is sent of a call before it is read",
        f"{C}.shell.calls.receiving:UNREAD_BYTES",
        BYTES,
        "waits in the client",
    ),
    ("requests of one caller that come at a time", f"{C}.shell.calls.receiving:COMING_MOST", COUNT, "wait"),
    (
        "time for a request, the wait for its turn included",
        f"{C}.shell.calls.receiving:RECEIVE_S",
        SECONDS,
        "refused",
    ),
    ("a request that counts as large", f"{C}.shell.calls.receiving:LARGE_BYTES", BYTES, "counts"),
    (
        "large requests of one caller in progress, of calls and of streams each",
        f"{C}.shell.calls.receiving:LARGE_MOST",
        COUNT,
        "wait",
    ),
    (
        "a message of a caller without a certificate",
        f"{C}.shell.enrolment.service:MAX_MESSAGE_BYTES",
        BYTES,
        "refused",
    ),
    ("calls of such callers at once", f"{C}.shell.enrolment.service:MAX_CALLS", COUNT, "refused"),
    (
        "calls of such callers in a burst, of one address",
        f"{C}.shell.enrolment.service:CALLS_BURST",
        COUNT,
        "wait",
    ),
    ("such calls a second", f"{C}.shell.enrolment.service:CALLS_PER_S", COUNT, "wait"),
    ("calls in progress on one connection", f"{C}.shell.main.grpc_server:MAX_STREAMS", COUNT, "wait in the client"),
    ("calls of one user in a burst", f"{C}.shell.calls.caller_limits:CALLS_BURST", COUNT, "wait"),
    ("calls of one user a second", f"{C}.shell.calls.caller_limits:CALLS_PER_S", COUNT, "wait"),
    ("calls that a refused one counts as", f"{C}.shell.calls.caller_limits:REFUSED_COSTS", COUNT, "wait"),
    ("calls that a stream counts as", f"{C}.shell.calls.caller_limits:STREAM_COSTS", COUNT, "wait"),
    ("calls of one user that wait", f"{C}.shell.calls.caller_limits:DELAYED_MOST", COUNT, "refused"),
    ("the time for calls of one party while others call", f"{C}.shell.calls.slices:SHORT_SHARE", SHARE, "wait"),
    ("messages of one host a second", f"{C}.shell.services.host_pacing:MESSAGES_PER_S", COUNT, "wait on the host"),
    ("bytes of one host a second", f"{C}.shell.services.host_pacing:BYTES_PER_S", BYTES, "wait on the host"),
    (
        "bytes a second that nothing asked for",
        f"{C}.shell.services.streams.transfers:UNASKED_PER_S",
        BYTES,
        "wait on the host",
    ),
    ("readings of one user on one host", f"{C}.shell.services.streams.transfers:READINGS_OF_ONE", COUNT, "refused"),
    (
        "workers of one host that one user has dumped at once",
        f"{C}.shell.services.streams.transfers:EXAMINATIONS_OF_ONE",
        COUNT,
        "refused",
    ),
    (
        "refused join tokens that wait at once",
        f"{C}.shell.enrolment.service:DELAYED_MOST",
        COUNT,
        "refused at once",
    ),
    (
        "an answer of the identity provider",
        f"{C}.shell.enrolment.id_tokens:MAX_BYTES",
        BYTES,
        "sign-ins are refused",
    ),
    ("time for it", f"{C}.shell.enrolment.id_tokens:FETCH_S", SECONDS, "sign-ins are refused"),
    (
        "time between two requests for a key that it may have added",
        f"{C}.shell.enrolment.id_tokens:UNKNOWN_KEY_S",
        SECONDS,
        "the token is refused",
    ),
    ("groups in an ID token", f"{C}.shell.enrolment.id_tokens:MAX_GROUPS", COUNT, "refused"),
    ("users of an identity provider", f"{C}.core.access.sign_in:MAX_USERS", COUNT, "refused"),
    ("templates of one user", f"{C}.core.scheduling.templates:MOST_OF_ONE", COUNT, "refused"),
    ("all their versions together", f"{C}.core.scheduling.templates:MOST_BYTES", BYTES, "refused"),
    (
        "packaged code of one user, of the room for all",
        f"{C}.shell.bundles.bundle_store:OF_ONE_USER",
        SHARE,
        "refused",
    ),
    ("a text in the audit log", f"{C}.shell.base.audit_files:TEXT_BYTES", BYTES, "cut"),
    ("series of one metric", "holdfast._daemon.metrics.series:SERIES_MOST", COUNT, "counted together"),
    (
        "connections over gRPC, of all files that the controller may open",
        f"{C}.shell.main.grpc_server:CONNECTIONS_SHARE",
        SHARE,
        "closed",
    ),
    (
        "of these, connections on which no caller with a certificate has called",
        f"{C}.shell.calls.connection_bounds:SHARE",
        SHARE,
        "of those who hold most, the oldest are closed",
    ),
    (
        "handshakes of one address a second on which no call follows, over gRPC",
        f"{H}._daemon.tls_door:PER_S",
        COUNT,
        "the kernel drops requests for a connection",
    ),
    (
        "connections of one user or host",
        f"{C}.shell.calls.connection_bounds:OF_ONE_PARTY",
        COUNT,
        "the oldest are closed",
    ),
    (
        "connections of callers without a certificate",
        f"{C}.shell.enrolment.service:MAX_CONNECTIONS",
        COUNT,
        "closed",
    ),
    ("a body over HTTP", f"{C}.shell.rest.body:MAX_BODY", BYTES, "413"),
    ("time for a body", f"{C}.shell.rest.body:BODY_S", SECONDS, "408"),
    ("line and headers of an HTTP request", f"{C}.shell.rest.listener:MAX_HEAD", BYTES, "431"),
    ("time for them", f"{C}.shell.rest.listener:HEAD_S", SECONDS, "closed"),
    ("connections over HTTP", f"{C}.shell.rest.listener:MAX_CONNECTIONS", COUNT, "closed"),
    ("handshakes of one address a second, over HTTP", f"{H}._daemon.tls_door:PER_S", COUNT, "wait"),
    ("of one address in a burst", f"{H}._daemon.tls_door:BURST", COUNT, "wait"),
    ("of one address that wait or are not over", f"{H}._daemon.tls_door:OF_ONE", COUNT, "closed"),
    ("of all addresses", f"{H}._daemon.tls_door:OF_ALL", COUNT, "closed"),
    (
        "requests of one address to the page in a burst, signed in nowhere",
        f"{C}.shell.web.browsers:OUTSIDERS_BURST",
        COUNT,
        "the connection is closed",
    ),
    (
        "such requests a second",
        f"{C}.shell.web.browsers:OUTSIDERS_PER_S",
        COUNT,
        "the connection is closed",
    ),
    ("calls over HTTP at once", f"{C}.shell.rest.guards:MAX_CALLS", COUNT, "503"),
    ("calls over HTTP of one caller", f"{C}.shell.rest.guards:MAX_CALLS_OF_ONE", COUNT, "503"),
    ("streams over HTTP at once", f"{C}.shell.rest.guards:MAX_STREAMS", COUNT, "503"),
    ("streams over HTTP of one caller", f"{C}.shell.rest.guards:MAX_STREAMS_OF_ONE", COUNT, "503"),
    ("time in which a reader over HTTP takes nothing", f"{C}.shell.rest.guards:SEND_S", SECONDS, "cut off"),
    ("a page of a list", f"{C}.shell.calls.slices:PAGE_BYTES", BYTES, "ends early, with a token"),
    ("a list without a page's size", f"{C}.shell.calls.slices:WHOLE_BYTES", BYTES, "ends early, with a token"),
    ("work for a long answer at a time", f"{C}.shell.calls.slices:SLICE_S", SECONDS, "pauses"),
    ("a portion of a history", f"{C}.shell.store.store:READ_BYTES", BYTES, "the next portion follows"),
    ("decisions that wait for the disk", f"{C}.shell.driver:MAX_PENDING", COUNT, "calls are refused"),
    ("heartbeats that wait for the disk", f"{C}.shell.driver:MAX_UNCONFIRMED", COUNT, "go unanswered"),
]
JOBS: list[Row] = [
    ("a job file, and a job's spec", f"{H}.spec.parse.text:MAX_BYTES", BYTES, "refused"),
    ("its lists and mappings in each other", f"{H}.spec.parse.text:MAX_DEPTH", COUNT, "refused"),
    ("arguments together, in characters", f"{H}.spec.rules.job:MAX_ARGS_CHARS", COUNT, "refused"),
    ("ranks", f"{H}.spec.rules.job:MAX_RANKS", COUNT, "refused"),
    ("a step pattern, in characters", f"{H}.hang.pipeline.step_pattern:MAX_CHARS", COUNT, "refused"),
    ("a step pattern, compiled", f"{H}.hang.pipeline.step_pattern:MAX_BYTES", BYTES, "refused"),
    ("a filter of a list, in characters", f"{C}.shell.calls.job_filter:MAX_CHARS", COUNT, "refused"),
    ("its terms", f"{C}.shell.calls.job_filter:MAX_TERMS", COUNT, "refused"),
    ("jobs of an array", f"{H}.spec.rules.arrays:ELEMENTS_MOST", COUNT, "refused"),
    (
        "their specs, labels and annotations together",
        f"{C}.core.scheduling.submit:MOST_ARRAY_CHARS",
        BYTES,
        "refused",
    ),
    ("jobs that wait or run", f"{STEP}.max_jobs", COUNT, "refused; `max_jobs`"),
    (
        "jobs of one user that wait",
        f"{STEP}.waiting_jobs_per_user",
        COUNT,
        "refused; `waiting_jobs_per_user`",
    ),
    (
        "jobs of one project that wait",
        f"{STEP}.waiting_jobs_per_project",
        COUNT,
        "refused; a quota's `waiting_jobs`",
    ),
    ("secrets of one holder", f"{C}.core.access.secrets:MAX_OF_ONE", COUNT, "refused"),
    ("secrets", f"{C}.core.access.secrets:MAX_SECRETS", COUNT, "refused"),
    ("users", f"{C}.core.access.users:MAX_USERS", COUNT, "refused"),
    ("join tokens", f"{C}.core.access.users:MAX_TOKENS", COUNT, "refused"),
    ("evidence of the hangs of one job", f"{C}.shell.store.kept_rows:EVIDENCE_BYTES", BYTES, "the oldest goes"),
    ("samples of the hangs of one job", f"{C}.shell.store.kept_rows:SAMPLES_BYTES", BYTES, "the oldest go"),
]
HOST: list[Row] = [
    ("a line of output, for the hang detector", f"{A}.core.proc.output_lines:LINE_MAX_BYTES", BYTES, "cut"),
    ("output that is looked at for hangs at a time", f"{A}.shell.sampling.output:BYTES_MOST", BYTES, "skipped"),
    ("lines of a worker that are, at a time", f"{A}.shell.sampling.output:LINES_MOST", COUNT, "skipped"),
    ("last lines of a rank's errors", f"{A}.shim.last_lines:TAIL_BYTES", BYTES, "cut at the front"),
    ("a rank's error file", f"{A}.shim.error_file:MOST_BYTES", BYTES, "not read"),
    ("a secret in a file", f"{A}.shim.secret_files:MAX_BYTES", BYTES, "the launch fails"),
    ("a tail of a log, read backwards", f"{A}.shell.output.log_reader:TAIL_MOST_BYTES", BYTES, "begins there"),
    ("time for that", f"{A}.shell.output.log_reader:TAIL_MOST_S", SECONDS, "begins there"),
    ("a chunk of a log", f"{A}.shell.session.output_reader:CHUNK_BYTES", BYTES, "the next one follows"),
    ("lines in one of a search", f"{A}.shell.output.line_search:PIECE_LINES", COUNT, "the next one follows"),
    (
        "a reader's bytes under way",
        f"{C}.shell.services.streams.reading:WINDOW_BYTES",
        BYTES,
        "waits for the reader",
    ),
    ("a search's", f"{C}.shell.services.streams.reading:SEARCH_BYTES", BYTES, "waits for the reader"),
    ("time that a search works", f"{A}.shell.session.output_reader:SEARCH_S", SECONDS, "says how far it came"),
    ("readings at once on one host", f"{A}.shell.session.transfer:READINGS_MAX", COUNT, "refused"),
    ("readings at once of one job there", f"{A}.shell.session.transfer:READINGS_OF_ONE_JOB", COUNT, "refused"),
    ("time for one read of the disk", f"{A}.shell.session.output_reader:READ_S", SECONDS, "given up"),
    ("what a program of an installation prints", f"{A}.shell.base.programs:PRINTED_MOST_BYTES", BYTES, "ended"),
    ("a process's environment", f"{A}.shell.base.programs:ENVIRON_MOST_BYTES", BYTES, "cut"),
    ("a flight recorder's dump", f"{A}.shell.evidence.flight_dump:MOST_BYTES", BYTES, "not read"),
    ("an answer of NCCL's RAS", f"{A}.shell.evidence.records:RAS_MAX_BYTES", BYTES, "cut"),
    ("a message to or from a shim", f"{A}.shell.shims.shim_link:MESSAGE_MAX_BYTES", BYTES, "disconnected"),
    (
        "memory of a tool that reads a rank's stacks",
        f"{A}.shell.evidence.tools:MEMORY_BYTES",
        BYTES,
        "the tool fails",
    ),
    (
        "descriptors of a process that are looked at",
        f"{A}.shell.sampling.saved_files:DESCRIPTORS_MOST",
        COUNT,
        "left out",
    ),
    (
        "mappings of a process that are looked through",
        f"{A}.shell.evidence.dumps:MAPPINGS_MOST",
        COUNT,
        "left out",
    ),
    ("entries of a compiler's cache that are looked at", f"{A}.shim.build_locks:ENTRIES_MOST", COUNT, "left out"),
    ("time for that", f"{A}.shim.build_locks:BOUND_S", SECONDS, "left out"),
    ("a path in packaged code", f"{H}.bundles.archive:PATH_MAX_BYTES", BYTES, "refused"),
]


def value(place: str) -> Any:
    """The constant at module:NAME."""
    module, _, name = place.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def shown(amount: float, unit: str) -> str:
    if unit == SECONDS:
        return f"{amount:g} s" if amount >= 1 else f"{amount * 1000:g} ms"
    if unit == COUNT:
        return f"{amount:,}"
    if unit == SHARE:
        return f"{amount:.0%}"
    for size, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if amount >= size and amount % size == 0:
            return f"{int(amount) // size:,} {name}"
    return f"{amount:,} bytes"


def table(rows: list[Row]) -> str:
    lines = [f"| {what} | {shown(value(place), unit)} | {beyond} |" for what, place, unit, beyond in rows]
    return "\n".join(("| limit | | beyond it |", "|---|---|---|", *lines)) + "\n"


def of_callers() -> str:
    calls = value(f"{C}.shell.calls.caller_limits:CALLS_MOST")
    streams = value(f"{C}.shell.calls.caller_limits:STREAMS_MOST")
    sending = value(f"{C}.shell.calls.caller_limits:SENDING_MOST")
    counts = (calls, streams, sending)
    lines = [
        f"| {kind.value} | {' | '.join(str(each[kind]) for each in counts)} |" for kind in (Kind.USER, Kind.HOST)
    ]
    return (
        "\n".join(
            ("| one | calls in progress | streams open | calls that send a stream |", "|---|---|---|---|", *lines)
        )
        + "\n"
    )


def of_fields() -> str:
    lines = []
    for name, bound in field_bounds.TABLE.items():
        most = [f"{bound.whole:,} bytes in all"] if bound.whole else []
        most += [f"{bound.bytes:,} bytes"] if bound.bytes != field_bounds.STRING_BYTES or bound.cut else []
        most += [f"{bound.items:,} entries"] if bound.items != field_bounds.ITEMS else []
        most += [f"{bound.low:,} to {bound.high:,}"] if bound.high is not None else []
        most += ["any number"] if bound.low < 0 else []
        beyond = {"": "refused", "start": "cut", "end": "cut at the front"}[bound.cut]
        field = f"`{name}`" if "." in name else f"`{name}` of any message"
        lines.append(f"| {field} | {', '.join(most) or f'{bound.bytes:,} bytes'} | {beyond} |")
    return "\n".join(("| field | at most | beyond it |", "|---|---|---|", *lines)) + "\n"


def limits() -> str:
    """The drawn part of the page."""
    days = bounds.LONGEST_S // 86_400
    return f"""{BEGIN}
What a caller, a host or a worker controls has a bound. `docs/draw_limits.py` draws these tables from the constants in
the code; tests walk the contract, the HTTP routes and the agent's reads, and fail for one without a bound.

### Calls
{of_callers()}
{table(CALLS)}
What a host may store in an hour is in [access](admins/access.md#hosts).

### Jobs and users
{table(JOBS)}
### On hosts
What the agent reads of workers, and of what they can write to.

{table(HOST)}
### Fields of messages
A text has {field_bounds.STRING_BYTES:,} bytes at most and a list {field_bounds.ITEMS:,} entries, unless this table says
otherwise. A time lies between 1970 and 8999, a duration has {days:,} days at most, numbers of users are not
negative. All of a message is held to that before any handler. What a user sends beyond is refused, with the
field's name. So is what names something in a host's message; what only explains is cut. A job's spec has the
bounds in the [schema of job files](users/job.schema.json).

{of_fields()}{END}"""


def page() -> str:
    """The whole page, with the limits as the code has them now."""
    text = PAGE.read_text()
    head, _, rest = text.partition(BEGIN)
    return head + limits() + rest.partition(END)[2]


def main() -> None:
    """Write the page; with ``--check`` say whether it is current instead."""
    if "--check" in sys.argv:
        raise SystemExit(PAGE.read_text() != page())
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
