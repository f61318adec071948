"""How long a job may stand still or silent before a rule notices it, and before it is acted on."""

from __future__ import annotations

import math

from holdfast.hang.judge.snapshot import View

MOST_DOUBLINGS = 3
"""The time to act on a wait doubles with each restart that led back to it, so often at most."""


def act_after_s(view: View, usual_s: float, signature: str, since_s: float) -> float:
    """The time from which a finding is acted on: the rule's own, or the job's timeout.

    The rule's own doubles with each restart that led back to the same wait, but not beyond a limit that the job gives.
    """
    tuning = view.tuning
    if tuning.timeout_s is not None:
        return tuning.timeout_s
    most_s = math.inf
    if not view.started and "startup_s" in tuning.given:
        most_s = tuning.startup_s
    elif "ceiling_s" in tuning.given:
        most_s = tuning.ceiling_s
    doubled_s = usual_s * float(2 ** min(view.times_before(signature, since_s), MOST_DOUBLINGS))
    return max(usual_s, min(doubled_s, most_s))


def notice_after_s(view: View, usual_s: float) -> float:
    """The rule's own time to a notice; half of a shorter timeout, so that the evidence is in when it is over."""
    if view.tuning.timeout_s is not None:
        return min(usual_s, view.tuning.timeout_s / 2)
    return usual_s


def short_s(view: View, factor: float) -> float:
    """How long all may stand still for what nothing outside can end: the floor, or what the job has survived."""
    tuning = view.tuning
    floor_s = tuning.still_floor_s if view.started else max(tuning.still_floor_s, tuning.start_still_s)
    patience_s = max(floor_s, factor * view.watch.still_longest_s)
    if view.helped:
        patience_s *= 2
    return max(patience_s, tuning.checkpoint_pause_s) if view.writing else patience_s


def startup_s(view: View) -> float:
    """How long start-up may take while all ranks stand still: forked children that tokenise look like helpers."""
    return view.startup_limit_s * (2 if view.helped else 1)


def long_s(view: View) -> float:
    """How long all may wait for something outside the job: the setting, or what the job has survived."""
    patience_s = max(view.tuning.external_s, view.tuning.still_factor * view.watch.external_longest_s)
    return max(patience_s, view.tuning.checkpoint_pause_s) if view.writing else patience_s


def silence_limit_s(view: View) -> float:
    """The silence of the output, in seconds, that is noticed whatever else is seen."""
    limit_s = view.watch.output.notice_after_s(view.tuning)
    if not view.started and view.tuning.timeout_s is None:
        limit_s = max(limit_s, view.startup_limit_s)
    if view.writing:
        limit_s = max(limit_s, view.tuning.checkpoint_pause_s)
    return notice_after_s(view, limit_s)
