"""The controller's metric families. ``docs/admins/metrics.md`` explains each; a test compares the two.

Counters begin at 0 when the controller starts, as Prometheus expects; only the position in the
event log and the time of GPUs continue.
No label holds the name of a user, a project or a job.
"""

from __future__ import annotations

from holdfast._daemon.metrics import daemon
from holdfast._daemon.metrics.series import LONG_SECONDS, counter, gauge, histogram

# --- counted as events are committed ------------------------------------------------------------------------------

JOBS_SUBMITTED = counter("holdfast_jobs_submitted_total", "Jobs submitted.")
JOBS_ENDED = counter("holdfast_jobs_ended_total", "Jobs that have reached a final state.", "state")
JOB_WAIT = histogram(
    "holdfast_job_wait_seconds",
    "From a job's submission, or the last end that it waited for, until there were hosts for all its workers.",
    bounds=LONG_SECONDS,
)
JOB_START = histogram(
    "holdfast_job_start_seconds",
    "From the placement of a job until all its ranks were started; restarts in place are no part of it.",
    bounds=(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0),
)
JOB_RESTARTS = counter(
    "holdfast_job_restarts_total",
    "Restarts after a failure or a user's command: in_place, worker (one alone, in place) or reschedule.",
    "reason",
    "how",
)
RECOVERY = histogram(
    "holdfast_recovery_duration_seconds",
    "Where the time of a recovery went, from the failure until the ranks were as far as before.",
    "phase",
    bounds=(0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 7200.0),
)
WARM_STARTS = counter(
    "holdfast_warm_starts_total",
    "Recoveries of jobs that ask for warm starts, by how all ranks were started: in_process (some), warm or cold.",
    "start",
)
RECOVERY_LOST = histogram(
    "holdfast_recovery_lost_seconds",
    "From a failure until all ranks ran again.",
    bounds=(0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 7200.0),
)
RANK_EXITS = counter("holdfast_rank_exits_total", "Exits of ranks, by the recorded reason.", "reason")
LATE_EXITS = counter("holdfast_late_exits_total", "Exits that were reported after a rank's exit had been recorded.")
HANG_NOTICES = counter("holdfast_hang_notices_total", "Hangs that users were notified of, by rule.", "rule")
HANG_VERDICTS = counter(
    "holdfast_hang_verdicts_total",
    "Outcomes of hangs, by the job's action on hangs; OVER: it progressed again by itself.",
    "action",
    "outcome",
)
HANG_COMMON_CAUSES = counter("holdfast_hang_common_causes_total", "Causes that made several jobs hang at once.")
HOSTS_LOST = counter("holdfast_hosts_lost_total", "Hosts taken as lost because their lease ran out.")
HOST_FAILURES = counter(
    "holdfast_host_failures_total", "Failures of hosts in service; signs within 10 minutes are one.", "kind"
)
HOST_CHECKS = counter("holdfast_host_checks_total", "Active checks of hosts that have ended.", "outcome")
HOST_REPAIR = histogram(
    "holdfast_host_repair_seconds",
    "From a failure of a host until it was over: the lost host was back, the GPU was well again.",
    bounds=(60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 12 * 3600.0, 86_400.0, 3 * 86_400.0, 7 * 86_400.0),
)
HOST_REFUSALS = counter("holdfast_host_refusals_total", "Agents that were refused for their version or epoch.")
HOST_THROTTLED = counter(
    "holdfast_host_messages_throttled_total",
    "Messages held back because their host exceeds what a host may store.",
    "kind",
)
PLACES_FENCED = counter("holdfast_places_fenced_total", "Workers taken as gone without their host's report.")
NOTIFICATIONS_GIVEN_UP = counter(
    "holdfast_notifications_given_up_total", "Notifications that could not be delivered."
)

# --- read from the model ------------------------------------------------------------------------------------------

JOBS = gauge("holdfast_jobs", "Jobs that the controller knows.", "state")
QUEUE = gauge("holdfast_queue_jobs", "Jobs that wait for hosts.")
QUEUE_OLDEST = gauge("holdfast_queue_oldest_wait_seconds", "Since when the oldest waiting job waits; 0: none does.")
QUEUE_SMALLEST = gauge(
    "holdfast_queue_smallest_gpus", "Fewest GPUs that a waiting job asks for; absent where none waits."
)
HANG_SUSPECTS = gauge("holdfast_hang_suspects", "Jobs that are suspected to hang at present.")
HANGS_OPEN = gauge("holdfast_hangs_open", "Hangs that users were notified of and that are still open.")
HOSTS = gauge("holdfast_hosts", "Hosts; each counts in one state.", "state")
GPUS = gauge("holdfast_gpus", "GPUs of all hosts; each counts in one state.", "state")
HOST_SILENT = gauge("holdfast_host_silent_seconds", "Time since the last message of a host that is silent.", "host")
HOST_QUARANTINED = gauge(
    "holdfast_host_withheld_shares",
    "Workers' shares of a host that no job may use because they are not proven empty.",
    "host",
)
FINDINGS = gauge(
    "holdfast_host_health_findings", "Findings about the health of hosts' hardware that stand, by class.", "class"
)
SESSIONS = gauge("holdfast_sessions", "Hosts whose agents are connected.")
AGENTS = gauge("holdfast_agents", "Hosts, by the version of their agent.", "version")
LOG_EVENTS = counter("holdfast_log_events_total", "Position in the event log, over the cluster's whole life.")
EPOCH = gauge("holdfast_epoch", "Term of this controller; goes up with each start.")

# --- of the goodput ledger -----------------------------------------------------------------------------------------

GPU_SECONDS = counter(
    "holdfast_gpu_seconds_total",
    "Time of allocated GPUs that is settled, by what it was spent on and who pays, over the cluster's whole life.",
    "category",
    "payer",
)
LEMONS = gauge(
    "holdfast_hosts_lemon", "Hosts that fail more often than the others, by the lower bound of what is known."
)
SPARES = gauge(
    "holdfast_spares_ready", "Spares that no work is on but SPOT jobs, by the table of settings.", "spares"
)
GPU_SECONDS_OPEN = gauge(
    "holdfast_gpu_seconds_open",
    "Time of allocated GPUs that is not settled: that of running generations. Up to a minute old.",
    "category",
    "payer",
)

# --- measured by the shell ----------------------------------------------------------------------------------------

COMMIT = histogram("holdfast_commit_duration_seconds", "From the start of a commit until its events are on disk.")
COMMIT_EVENTS = histogram(
    "holdfast_commit_events",
    "Events in a commit.",
    bounds=(1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0),
)
COMMIT_PENDING = gauge("holdfast_commit_pending", "Decisions that wait for the disk.")
RPC = histogram("holdfast_rpc_duration_seconds", "Unary calls, from their admission to their answer.", "method")
RPCS = counter("holdfast_rpc_total", "Calls that have ended, refused ones too, by gRPC status.", "method", "code")
OPEN_STREAMS = gauge("holdfast_open_streams", "Streams that are open now.", "method")
LOOP_LAG = histogram("holdfast_event_loop_lag_seconds", "Delay of the event loop's timers.")
STORE = gauge("holdfast_store_bytes", "Size of the store: the database and its write-ahead log.", "file")
NOTIFICATIONS_WAITING = gauge("holdfast_notifications_waiting", "Notifications that are not delivered yet.")
NOTIFICATIONS_FAILING = gauge("holdfast_notification_receivers_failing", "Receivers whose last delivery failed.")
NOTIFICATIONS_DELIVERED = counter("holdfast_notifications_delivered_total", "Notifications that were delivered.")
AUDIT_REFUSALS = counter("holdfast_audit_refusals_total", "Calls that were refused because of who made them.")
AUDIT_UNWRITTEN = counter(
    "holdfast_audit_unwritten_total", "Audit log entries that were only counted, for summaries."
)
SERIES_WRITABLE = gauge("holdfast_series_writable", "1 while ranks' figures can be kept.")
SERIES_STORE = gauge("holdfast_series_bytes", "Size of the ranks' figures that are kept.")
SERIES_KEPT = counter("holdfast_series_kept_total", "Minutes and recordings of workers that were kept.")
SERIES_DROPPED = counter(
    "holdfast_series_dropped_total",
    "Minutes and recordings that agents dropped, for want of a controller that takes them.",
)
AUDIT_NOT_COPIED = counter(
    "holdfast_audit_not_copied_total", "Lines of the audit log that the syslog server could not be sent."
)

LEDGER = (GPU_SECONDS, GPU_SECONDS_OPEN)
COUNTED = (
    JOBS_SUBMITTED, JOBS_ENDED, JOB_WAIT, JOB_START, JOB_RESTARTS, RECOVERY, RECOVERY_LOST, WARM_STARTS, RANK_EXITS,
    LATE_EXITS, HANG_NOTICES, HANG_VERDICTS, HANG_COMMON_CAUSES, HOSTS_LOST, HOST_FAILURES, HOST_REPAIR, HOST_REFUSALS,
    HOST_CHECKS, PLACES_FENCED, NOTIFICATIONS_GIVEN_UP,
)  # fmt: skip
READ = (
    JOBS, QUEUE, QUEUE_OLDEST, QUEUE_SMALLEST, HANG_SUSPECTS, HANGS_OPEN, HOSTS, GPUS, HOST_SILENT, HOST_QUARANTINED,
    FINDINGS, LEMONS, SPARES, SESSIONS, AGENTS, LOG_EVENTS, EPOCH,
)  # fmt: skip
MEASURED = (
    COMMIT, COMMIT_EVENTS, COMMIT_PENDING, RPC, RPCS, OPEN_STREAMS, LOOP_LAG, STORE, NOTIFICATIONS_WAITING,
    NOTIFICATIONS_FAILING, NOTIFICATIONS_DELIVERED, AUDIT_REFUSALS, AUDIT_UNWRITTEN, AUDIT_NOT_COPIED, HOST_THROTTLED,
    SERIES_WRITABLE, SERIES_STORE, SERIES_KEPT, SERIES_DROPPED,
)  # fmt: skip
FAMILIES = (*daemon.FAMILIES, *COUNTED, *READ, *LEDGER, *MEASURED)
