"""Every constant of the detector, each with its source, and how a job's own settings override them.

"Law" below is the project's rule set for hangs, written from public sources and measurements. "Corpus" is the set
of 9,948 public benchmark runs that ``bench/hangs/corpus.py`` scores; it prints the effect of leaving each out, too.
"""

from __future__ import annotations

from holdfast._base.dataclass import dataclass, replace
from holdfast._base.job_file.choices import HangAction


@dataclass(frozen=True, slots=True)
class HangSettings:
    """A job's own wishes; None means learned or the default. An explicit value always governs."""

    action: HangAction = HangAction.NOTIFY
    # Silence of the output after which a hang is noticed and, unless ``ceiling_s`` says otherwise, acted on.
    timeout_s: float | None = None
    # The least silence, whatever the job's progress rate.
    floor_s: float | None = None
    # Silence after which a hang is acted on even though only one family of signals shows it.
    ceiling_s: float | None = None
    startup_timeout_s: float | None = None
    lone_work_timeout_s: float | None = None
    # How long all ranks may wait for something outside the job.
    external_timeout_s: float | None = None
    step_pattern: str = ""


@dataclass(frozen=True, slots=True)
class Tuning:
    """Constants of the detector, in seconds, shares of one (``_share``), percent (``_pct``) or bytes."""

    # -- How long is too long -------------------------------------------------------------------------------------
    # Output alone: the knee of false notices against median notice time on the corpus; below it they rise at once.
    silence_floor_s: float = 180.0
    # Two families agree. Law: R2's 30 s. A floor any higher misses "noticed in 45 s".
    still_floor_s: float = 30.0
    # Output alone: 2 × the longest gap of the current stretch, since a job that skips one of its regular lines is
    # silent for that long. 1.5 gives a sixth more runs with a false notice.
    silence_factor: float = 2.0
    # Gaps within 1.3 × of each other are of one size; one longer than 1.3 × anything survived begins a new stretch.
    # Regular gaps vary by a few percent; of the slow evaluations on the corpora most are announced by a gap of 1.4
    # to 2 × the usual. No cliff between 1.2 and 1.4.
    gap_spread: float = 1.3
    # A gap shorter than this begins no stretch: steps of seconds vary by more than their own length.
    stretch_gap_min_s: float = 30.0
    # Law: 3 × where two families agree; 2 × for spin-wait, whose signature is the stronger one.
    still_factor: float = 3.0
    spin_factor: float = 2.0
    # Law: "all blocked: 30 min"; of measured starts p50 was 45 s, p99 814 s, the longest 1,635 s.
    startup_s: float = 1800.0
    # Law: a later generation starts within 3 × what the earlier one took, at least 3 min.
    restart_factor: float = 3.0
    restart_min_s: float = 180.0
    # A stretch's cadence is known by three gaps of one size (law: "first progress and three gaps"), one of which may
    # be that before it, over so long a time: initialisation prints regularly too, for seconds. No cliff from 20 to 60.
    settle_span_s: float = 30.0
    # Lines of one burst are no rate: the corpus' initialisation prints within 5 s at a time.
    settle_gap_min_s: float = 5.0
    # Without such gaps it is known after so long, at least this share of the gap that began the stretch: else the first
    # steps after a load of an hour pass for its rate. No cliff from 60 s to 240 s, nor from 1/4 to 1.
    settle_age_s: float = 90.0
    settle_share: float = 1 / 4
    # Acting on silence alone: the default of managed services, 30 min (range 10-720).
    ceiling_s: float = 1800.0
    # Before the rate is known, and after a break of it; as long as lone work may take. In start-up output alone is
    # noticed no sooner either: of 9,948 public runs 85 print nothing for 30 to 60 min before their first block
    # of work is done, and ten for longer.
    startup_ceiling_s: float = 3600.0
    # Between the two: 10 × the longest gap survived since start-up. Jobs with gaps of minutes end with an evaluation
    # of half an hour, jobs with gaps of seconds hardly ever; 5 gives four times as many false kills on the corpora.
    ceiling_factor: float = 10.0
    # Law: lone work is noticed at max(5 min, 3 × the longest survived), acted on at 60 min.
    lone_notice_s: float = 300.0
    lone_act_s: float = 3600.0
    lone_factor: float = 3.0
    # Law: a checkpoint may pause for 15 min since its last byte; its writer gets 2 min before a kill.
    checkpoint_pause_s: float = 900.0
    checkpoint_grace_s: float = 120.0
    # An explicit timeout of the job.
    timeout_s: float | None = None
    # Names of the constants that the job itself has set: nothing that is learned moves these.
    given: frozenset[str] = frozenset()

    # All ranks stand still and nothing outside the job can end it, before the job's rate is known: imports of a busy
    # machine pause for tens of seconds on a disk, and twice the floor was enough at load averages above 20.
    start_still_s: float = 60.0
    # A service, a file or a child outside the gang that ranks wait for: published pauses of healthy jobs (a save of
    # 549 s, remote evaluation, a registry's back-off) stay below ten minutes.
    external_s: float = 600.0
    # A rank in a lock while its peers go on may be a server between two requests.
    alone_s: float = 300.0
    # Wake-ups a second that timeouts of polls explain: a queue's get wakes every 5 s.
    poll_switches_s: float = 0.5

    # -- What counts as work, as blocked, as spinning -------------------------------------------------------------
    # Law, R0: work in the last 30 s vetoes; half a core is busy; blocked is under 2 % CPU and 10 % of own switches.
    work_window_s: float = 30.0
    busy_cpu_share: float = 0.5
    # Helpers that a rank waits for work from a tenth of a core on: a companion that only reports uses a few percent.
    helper_cpu_share: float = 0.1
    blocked_cpu_share: float = 0.02
    blocked_switch_share: float = 0.10
    # Switches a second below which a rank of unknown progress rate counts as blocked. Law: 46 per 5 s healthy, 0 hung.
    blocked_switches_unknown: float = 1.0
    # What a main thread runs when it has got what it waited for; to ask again takes some tenths of a millisecond, a
    # signal's handler a few. Two within a minute are a program that goes on, however slowly.
    stride_s: float = 0.005
    strides_apart_s: float = 60.0
    # So long after each the rank moves: two looks of the controller.
    stride_shows_s: float = 10.0
    # Lines that come in three such spans of steps, one after the other, come all along: heartbeats are half a minute
    # apart at most as a rule, and what a phase prints comes with that phase alone.
    beside_s: float = 60.0
    # A log line or heartbeat dirties one 4 KiB page; sixteen of them in a sample are more than talk.
    work_bytes: float = 65536.0
    # A page fault that waits for storage; a handful comes from any wake-up after long sleep.
    work_major_faults: float = 8.0
    # Law, R2: utilisation at least 95, memory utilisation at most 5, power band at most 0.3, links at most 5 %.
    spin_util_pct: float = 95.0
    spin_memory_util_pct: float = 5.0
    spin_power_share: float = 0.3
    spin_links_share: float = 0.05
    # Law, R3: utilisation at most 5. The idle slope: within a tenth of the job's own band above the floor.
    idle_util_pct: float = 5.0
    idle_power_share: float = 0.1
    # Signals whose steady level is below these have no contrast to lose. 20 W: twice the idle wander of one card.
    contrast_power_w: float = 20.0
    contrast_memory_util_pct: float = 10.0
    contrast_link_bytes_s: float = 1e6

    # -- The ladder -----------------------------------------------------------------------------------------------
    # A rank found stopped, dead or on a lost GPU, before it is reported: longer than a stop-and-continue by hand.
    odd_s: float = 10.0
    # Two families must agree "and persist" (law): so long from notice to act at least. Ours: as long again as
    # the floor, which spares pauses of up to a minute and leaves acting under 90 s at the median.
    persist_s: float = 30.0
    # Law: diagnosed within 30 s of the suspicion.
    diagnose_s: float = 30.0
    # Something that is seen to move ends a hang once it has moved for so long: two looks. One wake-up doesn't.
    moves_s: float = 4.0
    # Stacks older than this are taken again before they are acted on.
    rediagnose_stale_s: float = 120.0
    # Repeated diagnosis backs off from one minute to a quarter of an hour: dumps are cheap, not free.
    rediagnose_first_s: float = 60.0
    rediagnose_last_s: float = 900.0
    # Law: jobs suspect within 3 min may have a common cause. Ours: if they share a host or a labelled place.
    common_cause_s: float = 180.0
    # So many that share nothing known, and no fewer than go on, have one too: the whole cluster's.
    common_cause_cluster_jobs: float = 3.0
    # So long at most is nothing killed because of it, unless ranks wait for storage in the kernel. Switches restart
    # within minutes, and after ten the peers' own watchdogs (NCCL's: 10 min) would have given up as well.
    common_cause_hold_s: float = 600.0
    # Then one job at a time is relaunched. Ours: a start takes 45 s at the median, and a hang a minute to be seen.
    common_cause_turn_s: float = 300.0
    # Where one job moves again by itself, the others may need a moment longer. Ours: as long as a hang is watched.
    common_cause_settle_s: float = 60.0
    # A job relaunched then and found hanging again within half an hour tells that the fault is still there.
    common_cause_again_s: float = 1800.0
    # Three missed heartbeats of 5 s: a worker not heard of is blind, and time without samples is no silence.
    stale_s: float = 15.0


def tuned(settings: HangSettings, tuning: Tuning | None = None) -> Tuning:
    """The constants with the job's explicit values in their places."""
    base = tuning or Tuning()
    chosen: dict[str, float] = {}
    if settings.floor_s is not None:
        chosen |= {"silence_floor_s": settings.floor_s, "still_floor_s": settings.floor_s}
    if settings.timeout_s is not None:
        # From the first moment on, and in later generations too.
        limits = ("timeout_s", "ceiling_s", "startup_s", "startup_ceiling_s", "restart_min_s")
        chosen |= dict.fromkeys(limits, settings.timeout_s)
        # Work vetoes no longer than until the notice, which half of the timeout is left to.
        chosen["work_window_s"] = min(base.work_window_s, settings.timeout_s / 2)
    if settings.ceiling_s is not None:
        chosen |= {"ceiling_s": settings.ceiling_s, "startup_ceiling_s": settings.ceiling_s}
    if settings.startup_timeout_s is not None:
        chosen |= dict.fromkeys(("startup_s", "startup_ceiling_s", "restart_min_s"), settings.startup_timeout_s)
    if settings.external_timeout_s is not None:
        chosen["external_s"] = settings.external_timeout_s
    if settings.lone_work_timeout_s is not None:
        chosen["lone_act_s"] = settings.lone_work_timeout_s
    return replace(base, **chosen, given=frozenset(chosen)) if chosen else base
