"""How far a worker is, of how much, as its program or its output says. Only what is shown of a job follows from it.

A total is believed while the steps rise towards it. One below the step, or beside a step that has fallen without a
word of a resumption (a count of each epoch's own), is no total of the job's.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.hang.pipeline.log_progress import (
    BYTES,
    PREPARES,
    PREPARING,
    ROWS,
    STEP_WORD,
    TRAINS,
    normalised,
    ungrouped,
    without_speaker,
)

COUNTS_MOST = 32
TOTALS_MOST = 3
"""Unfinished counts with the same words before them and different totals; with more, the total is known by none."""
MAX_LINE = 512
MAX_LABEL = 80
_COUNT = re.compile(
    r"(?<![\d./-])(\d{1,15})(?:\s{0,6}/\s{0,6}|\s{1,6}(?:out )?of\s{1,6})(\d{1,15})(?![\d/]|[.,:]\d)"
)
_BAR_AFTER = re.compile(r" \[\d{1,9}:\d\d|\s{0,2}\[?[━╸╺█=>#.-]{3}")
_BAR_BEFORE = re.compile(r"[━╸╺█▉▊▋▌▍▎▏]{2}\s{0,3}\Z")
_WORD_BEFORE = re.compile(STEP_WORD + r"[\s:=\[(#,'\"-]{0,12}\Z", re.IGNORECASE)
_STEP_BEFORE = re.compile(
    r"(?<![a-z])(?:steps?|iters?|iterations?|it|updates?)[\s:=\[(#,'\"-]{0,12}\Z", re.IGNORECASE
)
_EPOCH_BEFORE = re.compile(r"(?<![a-z])epochs?[\s:=\[(#,'\"-]{0,12}\Z", re.IGNORECASE)
_STEP_BESIDE = re.compile(
    r"(?<![a-z])(?:steps?|iters?|iterations?)[\s:=#'\"-]{0,4}(\d{1,15})(?![\d/]|[.,:]\d|\s{0,6}/|\s{1,6}(?:out )?of\s)",
    re.IGNORECASE,
)
_BRACKET_BEFORE = re.compile(r"\[\s{0,12}\Z")
_OF_EACH = re.compile(
    r"(?<![a-z])(?:ep(?:och)?|fold|stage|trial|part|file|chunk|shard|run)s?(?:\(train\))?\W{0,4}#", re.IGNORECASE
)
_NUMBER_BEFORE = re.compile(r"(?<![\w.,:-])(\d{1,6})[\])]?:?\s{0,4}\[\s{0,12}\Z")
"""A whole number right before the bracket of a count, as in timm's ``Train: 0 [  50/2502``."""
_PLACE = re.compile(r"(?<![a-z])(?:gpu|cuda|device|node|host|worker|replica)s?\W{0,4}#\Z", re.IGNORECASE)
_ASIDE = re.compile(
    r"(?<![a-z])(?:eval|valid|val(?![a-z])|test|predict|infer|sanity|generat|sampl(?:e|ing)(?![a-z]))",
    re.IGNORECASE,
)
_DRAWN = "━╸╺█▉▊▋▌▍▎▏| "
_BEFORE = ("", " ", "|", "\t")
"""Before the count of a bar: nothing, or one of these."""


@dataclass
class StepCount:
    """The newest step of each rank, and the total reported beside it. Mutable; made of plain values."""

    newest: dict[str, float] = field(default_factory=dict)
    # The step that the count must exceed before it is believed again.
    fell_from: float | None = None
    total: float | None = None

    def take(self, rank: int, step: float | None, total: float | None) -> None:
        """One more step of a rank; None is one that could not be read."""
        before = self.newest.pop(str(rank), None)
        if step is not None:
            self.newest[str(rank)] = step
        if before is not None and (step is None or step < before):
            self.fell_from = before if self.fell_from is None else max(before, self.fell_from)
        elif self.fell_from is not None and step is not None and step > self.fell_from:
            self.fell_from = None
        self.total = total

    def resume(self) -> None:
        """The program has said that its steps fall, and why."""
        self.newest.clear()
        self.fell_from = None

    def total_beside(self, step: float | None) -> float | None:
        """The total, where it is one for that step."""
        if self.total is None or step is None or self.fell_from is not None:
            return None
        return self.total if math.isfinite(self.total) and self.total >= max(step, 1.0) else None


class Shown(NamedTuple):
    """How far the output is, where that is known; ``is_step`` where it calls that a step."""

    done: float | None
    total: float | None
    is_step: bool


@dataclass
class Counted:
    """A count with its total, and the words before it."""

    rank: int
    label: str
    done: float
    total: float
    # Its total is that of an epoch, say, and not the job's.
    of_each: bool = False
    is_step: bool = False
    # Beside a count of epochs: the step in the same line, and whether all epochs have equally many; None until a
    # second epoch tells.
    step: float | None = None
    even: bool | None = None

    @property
    def counts_on(self) -> bool:
        """Whether it is the job's, and not full."""
        return not self.of_each and self.done < self.total

    @property
    def shown(self) -> Shown | None:
        """The step beside a count of epochs where that has a total too, else the count itself; None for not yet."""
        if self.done <= 0 or (self.step is not None and self.even is None):
            return None
        if self.step is not None and self.even:
            return Shown(self.step, round(self.total * self.step / self.done), is_step=True)
        return Shown(self.done, self.total, self.is_step)

    def go_on(self, new: Counted) -> None:
        """Take in the same count in a later line."""
        self.of_each |= new.done < self.done or new.done > self.total
        if self.even is not False and (new.done, new.step) != (self.done, self.step):
            self.even = (
                self.step is not None
                and new.step is not None
                and new.done > self.done
                and new.step * self.done == self.step * new.done
            )
        self.done, self.step = new.done, new.step


@dataclass
class LineCounts:
    """Counts with totals in lines: bars (tqdm, rich, Keras), ``Epoch 3/10``, ``step 120 of 5000``, ``[ 120/5000]``.

    Of those that aren't full, the one that began first tells most of the job: an inner loop's count begins after the
    outer one's, and an evaluation's after the training's. One that starts over, or that names what it is of
    (``Epoch 3``, ``Train: 3 [``), is of each epoch: its total isn't the job's. Nor are counts of loading and of
    evaluating. Of ``step=1760 epoch=40/200`` the step is shown, of 8800, once a second epoch has had equally many.
    """

    counts: tuple[Counted, ...] = ()

    def take(self, rank: int, line: str) -> None:
        """One more line of a rank's output, whether it holds a count or not."""
        line = line[:MAX_LINE]
        if "/" not in line and " of " not in line:
            return
        line = ungrouped(line)
        for found in _COUNT.finditer(line):
            label, of_each = _label(line, found)
            if label is not None:
                count = Counted(rank, label[:MAX_LABEL], float(found[1]), float(found[2]), of_each)
                before = line[: found.start()]
                # A bar has its label before the percentage.
                count.is_step = (_STEP_BEFORE.search(before) or _STEP_BEFORE.search(label)) is not None
                if _EPOCH_BEFORE.search(before) and (beside := _STEP_BESIDE.search(line)):
                    count.step = float(beside[1])
                self._note(count)

    def shown(self) -> Shown | None:
        """The count that tells most of the job; None where none does."""
        whole = [count for count in self.counts if not count.of_each]
        best = next((count for count in whole if count.counts_on), whole[-1] if whole else None)
        return best.shown if best else None

    def _note(self, new: Counted) -> None:
        alike = [count for count in self.counts if (count.rank, count.label) == (new.rank, new.label)]
        known = next((count for count in alike if count.total == new.total), None)
        if known is not None:
            known.go_on(new)
            return
        if not 0 <= new.done <= new.total or new.total < 2:
            return
        if len(self.counts) >= COUNTS_MOST:
            over = next((count for count in self.counts if not count.counts_on), None)
            if over is None:
                return
            self.counts = tuple(count for count in self.counts if count is not over)
        self.counts = (*self.counts, new)
        new.of_each |= any(count.of_each for count in alike)
        alike = [count for count in (*alike, new) if count.counts_on]
        if len(alike) > TOTALS_MOST:
            for count in alike:
                count.of_each = True


def _label(line: str, found: re.Match[str]) -> tuple[str | None, bool]:
    """The words before a count, ``#`` for each number, and whether they name what it is of; None: not of steps."""
    before, after = line[: found.start()], line[found.end() :]
    is_bar = bool((before[-1:] in _BEFORE and _BAR_AFTER.match(after)) or _BAR_BEFORE.search(before))
    if is_bar:
        before = before.partition("%")[0].rstrip("0123456789.").rstrip(_DRAWN).strip(": ")
    elif not _WORD_BEFORE.search(before):
        bracketed = _BRACKET_BEFORE.search(before) and after.lstrip()[:1] in ("]", "(")
        if not bracketed or not TRAINS.search(line):
            return None, False
    label, _ = normalised(before)
    if is_bar:
        label = without_speaker(label)
    prepares = PREPARES if is_bar else PREPARING
    if prepares.search(label) or _ASIDE.search(label) or (is_bar and (ROWS.search(after) or BYTES.search(line))):
        return None, False
    # A bar's label is short: a number in it counts what the bar is of.
    if is_bar:
        return label, "#" in label
    return label, bool(_OF_EACH.search(label)) or _is_of_numbered(before, found[1])


def _is_of_numbered(before: str, done: str) -> bool:
    """Whether a bracketed count is that of the number before it, as ``Train: 0 [  50/2502`` is of epoch 0."""
    number = _NUMBER_BEFORE.search(before)
    if number is None or number[1] == done:
        return False
    label = without_speaker(normalised(before)[0])
    return label.endswith("#") and _PLACE.search(label) is None
