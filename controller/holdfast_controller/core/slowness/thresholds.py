"""Every constant by which a job is called slow and a rank is named, with its source.

"Evaluation" is ``bench/stragglers``, which prints what comes of the constants on gangs that they weren't chosen on.
"""

from __future__ import annotations

from holdfast._base.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Tuning:
    """Times in seconds; shares and ratios of one."""

    # -- Whether -----------------------------------------------------------------------------------------------------
    # A slot of steps. Steps are read from the output every 2 s, so half a minute has them to 7 %, and ten slots are
    # within the five minutes in which a straggler should be named.
    slot_s: float = 30.0
    # Slots whose median is the pace of now, and that of a time to compare with. Six see through two slots with an
    # evaluation or a save in them; ten are five minutes, the least that a job has to have run well before.
    recent: int = 6
    reference: int = 10
    # Slower than the best by less is as usual: published studies count a job as straggling from 10 % on.
    slower: float = 0.10
    # Or by less than so many of the job's own spreads from slot to slot: three deviations of one slot are one and a
    # half of a median of six; the least of many medians lies about one below their mean.
    spreads: float = 2.5
    # By so much, and the spreads, ranks are looked at, and the job is called slow if one of them is named: in a noisy
    # gang a rank that is a fifth slower makes steps take 3 to 9 % longer.
    noticed: float = 0.03
    # Slots without a step for longer are no pace but a pause: an evaluation, or a hang, which others look for.
    pause_s: float = 300.0

    # -- Who ---------------------------------------------------------------------------------------------------------
    # Slots at the end, all of them slow, over which a rank's time is judged.
    window: int = 4
    # A sign counts that was seen at so many of the last looks, a slot apart. Published design: the same host in three
    # windows. Near its threshold a sign comes and goes: of a rank that made steps a fifth longer three in a row took
    # three minutes more.
    looks: int = 3
    of_looks: int = 5
    # Robust deviations from the others' median. Published design: |z| >= 4.
    deviations: float = 4.0
    # What two ranks without any difference may differ by, beside the spread of the others: shares of time come from
    # looks, 60 in a window, or from the kernel's own times, and clocks in steps of 15 MHz.
    share_floor: float = 0.03
    ratio_floor: float = 0.01
    # A sign explains so much of the time that a step takes longer, or it is beside the point.
    explains: float = 0.5
    # The clock's part of the slowness: half of it, and never less than what throttling is counted from.
    clock_least: float = 0.05
    # A rank with less work clocks down because it is idle: the utilization of the slow one is not below the others'.
    util_margin_pct: float = 10.0
    # Ranks whose own steps are farther apart than this are no gang that keeps in step.
    apart_steps: float = 0.03
    # The others of ranks that don't keep in step go on as before within this.
    others_as_before: float = 0.05


TUNING = Tuning()
