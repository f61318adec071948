"""Which log lines are progress.

A line is progress when it has a shape not seen before in this generation, or when a number in it, other than a
clock, goes on: beyond all that this shape has shown at that place, up as a step count or down as a loss, or, as a count
that starts over with each epoch does, one way line after line. One that often turns is a gauge (memory in use, a
temperature, a noisy loss): progress only of a rank at work that printed it itself, in a line that counts nothing. A
count of attempts is none, nor is a number with a point that grows by one a second, whatever it is called. With a step
pattern of the job's own, only the number it finds is looked at. Who printed a line: see ``pipeline.speakers``.

Whether the program has begun its work is a stricter question (``WorkCount``): every start prints lines of new shapes.
"""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass

from holdfast.hang.pipeline.step_pattern import MAX_STEP_LINE, StepPattern, compiled_earlier
from holdfast.training.known_step import known_step

# Bounds on memory. Shapes beyond the bound are held to be old: a log that prints ever new words must not be eternal
# progress. A program's own log statements are far fewer.
MAX_SHAPES = 512
MAX_NUMBERS = 16
MAX_LINE = 512
# So many changes one way, within the greatest and the least ever, make a count that has started over; a reading that
# wanders (a temperature, memory in use) turns back sooner as a rule.
RISES = 3
# A number that has changed either way in more than this share of its changes is a gauge. A count that starts over
# with each epoch and rises at least ``RISES`` times in between falls no more often.
GAUGE_SHARE = 0.25
# So few changes tell a gauge from a count yet: a gauge that climbs at first is taken for a count until then.
GAUGE_CHANGES = 4
# Over so long a number with a point is known for a clock, by times that are so far off at most, and a share of it.
CLOCK_S, CLOCK_OFF_S, CLOCK_SHARE = 20.0, 2.0, 0.01

_COUNTED = (
    r"(?:steps?|it|iters?|iterations?|epochs?|(?:mini-?)?batch(?:es)?|updates?|rounds?|episodes?|games?|trials?"
    r"|gen(?:eration)?s?|trees?|samples?|examples?|images?|tokens?|frames?|timesteps?)\b"
)
_ITS_NUMBER = r"[\s:=#]{0,3}\d{1,15}"
_VALUE = r"[\s:=]{1,3}-?\d{1,15}(?:\.\d{1,15})?(?![\d.]|\s?(?:s|secs?|seconds?|mins?|minutes?|ms)\b)"
# The rest of a duration of several units: 1h02m03s.
_UNITS = r"\s?[dhm](?:\s?\d{1,9}\s?[hms]){1,3}\b"
_CLOCKS = re.compile(
    r"(?<![a-z])(?=[a-z])(?:"
    # A step and the name of what follows: "step 10 min 0.3", "step 10 min_reward 0.3".
    rf"(?P<kept>{_COUNTED}{_ITS_NUMBER}(?=\s{{1,4}}(?:min|h|s|min[ _][a-z]{{3,20}}){_VALUE}))"
    r"|(?:mon|tue|wed|thu|fri|sat|sun)\s+[a-z]{3}\s+\d+"  # ctime
    r"|[iwef]\d{4}(?=\s{1,2}\d\d:\d\d)"  # severity and date of glog
    # A clock's word and its number, unless that counts work: "elapsed_s: 30", but "after 100 steps".
    r"|(?:up[ _]?time|run[ _]?time|elapsed|alive|idle|waited|waiting|after)(?![a-z])"
    rf"(?![^\d\n]{{0,12}}(?:(?<![a-z]){_COUNTED}{_ITS_NUMBER}|\d{{1,15}}(?:[.,]\d{{1,9}})?\s{{0,2}}{_COUNTED}))"
    rf"\D{{0,12}}\d+(?:\.\d+)?(?:{_UNITS})?"
    r"|(?:re-?tr(?:y|ies|ying|ied)|attempts?|tr(?:y|ies)|reconnect(?:s|ing)?|heartbeats?|pulse|ping"
    r"|poll(?:s|ing|ed)?)\b[^\d\n]{0,12}\d+"  # a count of attempts, or of signs of life
    r")|(?=\d)(?:"
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)?"  # dates, ISO times
    r"|\b(?:20\d\d[01]\d[0-3]\d[-_T ]?[0-2]\d:?[0-5]\d:?[0-6]\d(?:[.,]\d{1,9})?Z?(?![\d.])"  # without dashes
    r"|\d{1,3}:\d\d(?::\d\d)?(?:[.,]\d+)?\b"  # times of day, elapsed times
    r"|(?<!\d\.)[0-2]\d\.[0-5]\d\.[0-5]\d(?![\d.])"  # times of day with dots
    r"|1[5-9]\d{8}(?:\d{3}|\d{6}|\d{9})?(?:\.\d+)?\b"  # seconds to nanoseconds since 1970
    r"|\d+(?:st|nd|rd|th)?\s+(?:retr(?:y|ies)|attempts?|tries|polls?|pings?|heartbeats?)\b"  # the count before it
    rf"|\d{{1,9}}{_UNITS}"
    r"|\d+(?:\.\d+)?\s*(?:s|secs?|seconds?|mins?|minutes?|h|hrs?|hours?|days?|ms|msecs?|milliseconds?"
    "|us|\N{MICRO SIGN}s|\N{GREEK SMALL LETTER MU}s|usecs?|microseconds?|ns|nanoseconds?)"
    r"\b(?!\s{0,4}=)))",  # durations; in "10 s=0.5" the letter is another number's name
    re.IGNORECASE,
)
_OPAQUE = re.compile(
    r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"  # UUIDs
    r"|\b0x[0-9a-f]+\b"
    r"|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,}\b",  # hashes
    re.IGNORECASE,
)
_CONTROL = re.compile(r"\x1b(?:\[[0-?]{0,32}[ -/]{0,4}[@-~]|[@-Z\\^_])")
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3}){1,5}(?![\d,])")
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?", re.IGNORECASE)
# Stands in a shape for a number sign of the line's own, such as those of a bar in ASCII: there ``#`` is a number.
SIGN = "\N{MUSIC SHARP SIGN}"

# A number that grows without a word of training beside it is work after so long, and so many rises: what a start
# counts (channels, layers, process ids) comes in one go.
COUNT_S = 60.0
COUNT_RISES = 3
_SIZES = re.compile(r"\d+(?:\.\d+)?\s*(?:[kmgt]?i?b|bytes|%)(?![a-z0-9])", re.IGNORECASE)
STEP_WORD = r"(?<![a-z])(?:steps?|it|iters?|iterations?|epochs?|batch(?:es)?|updates?|rounds?|episodes?)"
_STEP_BEFORE = re.compile(STEP_WORD + rf"[\s:=\[({SIGN}#/,'\"-]{{0,4}}(?=#)", re.IGNORECASE)
_COUNTS = re.compile(rf"(?<![a-z]){_COUNTED}[\s:=\[({SIGN}#/,'\"-]{{0,4}}#|#\s{{0,2}}{_COUNTED}", re.IGNORECASE)
_BAR = re.compile(r"(\d{1,15})/\d{1,15} \[(?:\d{1,9}:\d\d|<t>)")
ROWS = re.compile(r"\d examples/s")
"""In a bar of the library datasets, which prepares rows before the training, whatever its label."""
BYTES = re.compile(
    r"\[\d{1,9}:\d\d(?::\d\d)?<[^\]]{0,24}\d\s?[kMGT]?i?B/s|\d/\d{1,9}(?:\.\d{1,9})?\s?[kKMGT]i?B(?![A-Za-z])"
)
"""A bar of bytes, such as that of a download: by its rate, or by what it is a part of."""
TRAINS = re.compile(r"(?<![a-z])(?:step|iter|epoch|batch|train|fit|update)", re.IGNORECASE)
_PREPARING = (
    r"\b(?:(?:un)?(?:load|download|fetch|mapp|resolv|extract|build|compil|prepar|filter|shard|cach|index|import"
    r"|install|check|connect|wait|warm|tokeniz|tokenis|generat|pack|initiali[sz]|read|convert|sort|group)ing"
    r"|map|warm-?up"
)
PREPARING = re.compile(rf"{_PREPARING})\b", re.IGNORECASE)
PREPARES = re.compile(rf"{_PREPARING}|pid|port|process|thread|rank)\b", re.IGNORECASE)
_SPEAKER = re.compile(
    r"(?<![a-z])(?:local|global|world)?[ _]?(?:rank|process|proc|pid|thread)[ _]?[:=]?[ ]?"
    + SIGN
    + r"?#(?:/#)?\W{0,4}",
    re.IGNORECASE,
)
_SPEAKS = re.compile(
    r"(?<![a-z])(?:rank|process|proc|pid|thread|worker|actor|learner|env|chain|client|agent|replica)"
    rf"[\s:=_\[(/{SIGN}\"'-]{{0,4}}#",
    re.IGNORECASE,
)
"""Before and with the number of who prints a line, where several print lines of one shape."""


_NEVER = (0.0, -math.inf)


@dataclass(slots=True)
class _Place:
    """History of one number in a shape of lines."""

    lowest: float
    highest: float
    last: float
    # Changes in a row that were rises; less than 0: that were falls.
    run: int = 0
    rises: int = 0
    falls: int = 0
    # A value of ``CLOCK_S`` ago or more and its time, and the newest that will be one; of a number with a point.
    old: tuple[float, float] = _NEVER
    newer: tuple[float, float] = _NEVER

    def goes_on(self, value: float) -> bool:
        """Take the next value in; whether it tells of work done."""
        if value > self.last:
            self.rises, self.run = self.rises + 1, max(self.run, 0) + 1
        elif value < self.last:
            self.falls, self.run = self.falls + 1, min(self.run, 0) - 1
        else:
            self.run = 0
        beyond = not self.lowest <= value <= self.highest
        self.last, self.lowest, self.highest = value, min(value, self.lowest), max(value, self.highest)
        return (beyond or abs(self.run) >= RISES) and not self.is_gauge

    def grows(self, value: float) -> bool:
        """Take the next value in; whether it tells of work counted upwards."""
        return self.goes_on(value) and self.run > 0

    @property
    def changes(self) -> int:
        """How often it was another than before."""
        return self.rises + self.falls

    @property
    def is_gauge(self) -> bool:
        """Whether it often turns."""
        return self.changes >= GAUGE_CHANGES and min(self.rises, self.falls) > GAUGE_SHARE * self.changes

    def is_clock(self, at_s: float) -> bool:
        """Whether its newest value, read at that time, has grown by one a second."""
        if at_s - self.newer[1] >= CLOCK_S:
            self.old, self.newer = self.newer, (self.last, at_s)
        value, since_s = self.old
        passed_s = at_s - since_s
        return abs(self.last - value - passed_s) <= CLOCK_OFF_S + CLOCK_SHARE * passed_s < math.inf


class _Shape:
    """Numbers of the lines of one shape, of all who print it together."""

    __slots__ = ("first", "places", "pointed", "several", "speaks")

    def __init__(self, shape: str, numbers: tuple[float, ...], pointed: tuple[int, ...], rank: int) -> None:
        self.places = _places(numbers)
        self.pointed = pointed
        places = (shape.count("#", 0, found.end()) - 1 for found in _SPEAKS.finditer(shape))
        self.speaks = tuple(index for index in places if index < len(numbers))
        self.first = self.speaker(numbers, rank)
        self.several = False

    def speaker(self, numbers: tuple[float, ...], rank: int) -> tuple[float, ...]:
        """Return the rank that printed a line, and whom the line itself names."""
        return rank, *(numbers[index] for index in self.speaks)

    def goes_on(self, numbers: tuple[float, ...], at_s: float) -> bool:
        """Take a line's numbers in; whether one of them goes on and is no clock."""
        moved = _moved(self.places, numbers)
        clocks = [index for index in self.pointed if self.places[index].is_clock(at_s)]
        return any(index not in clocks for index in moved)

    def wanders(self, numbers: tuple[float, ...]) -> bool:
        """Whether a line changes a gauge, and has no count that stands still beside it."""
        changed = any(place.last != value for place, value in zip(self.places, numbers, strict=True))
        return changed and all(place.is_gauge or not place.changes for place in self.places)


def _places(numbers: tuple[float, ...]) -> list[_Place]:
    return [_Place(value, value, value) for value in numbers]


def _moved(places: list[_Place], numbers: tuple[float, ...]) -> list[int]:
    """The places that go on; every one is brought up to date."""
    return [index for index, (place, value) in enumerate(zip(places, numbers, strict=True)) if place.goes_on(value)]


def plain(line: str) -> str:
    """A line without what colours it or moves the cursor."""
    return _CONTROL.sub("", line) if "\x1b" in line else line


def ungrouped(line: str) -> str:
    """A line with 12000 for 12,000."""
    return _GROUPED.sub(lambda found: found[0].replace(",", ""), line) if "," in line else line


def normalised(line: str) -> tuple[str, tuple[float, ...]]:
    """A line's shape, with clocks, identifiers and numbers taken out, and the numbers that are no clocks."""
    return _normalised(line[:MAX_LINE])[:2]


@functools.lru_cache(maxsize=512)  # several readers ask for each line in turn
def _normalised(line: str) -> tuple[str, tuple[float, ...], tuple[int, ...]]:
    """A line's shape, its numbers, and the places of those with a point."""
    text = _OPAQUE.sub("<id>", _CLOCKS.sub(_clock, line.strip()))
    found = _NUMBER.findall(text)[:MAX_NUMBERS]
    pointed = tuple(index for index, number in enumerate(found) if "." in number)
    return _NUMBER.sub("#", text.replace("#", SIGN)), tuple(float(number) for number in found), pointed


def names_its_count(line: str) -> bool:
    """Whether a line names what it counts: steps, epochs, samples and the like, or a bar."""
    line = plain(line)[:MAX_LINE]
    return _BAR.search(line) is not None or _COUNTS.search(_normalised(line)[0]) is not None


def _clock(found: re.Match[str]) -> str:
    return found["kept"] or "<t>"


class LineReader:
    """Reads the output of one worker in one generation; a new generation gets a new reader.

    Ranks that count on their own, and actors or environments that their lines name, are far apart: together their
    numbers fall as often as they rise, so those of each are followed, too. It remembers at most twice ``MAX_SHAPES`` ×
    ``MAX_NUMBERS`` numbers. Raises ``BadPattern`` for a pattern that is none.
    """

    def __init__(self, step_pattern: str = "") -> None:
        self._pattern = compiled_earlier(step_pattern) if step_pattern else None
        self._shapes: dict[str, _Shape] = {}
        self._of_each: dict[tuple[str, tuple[float, ...]], list[_Place]] = {}
        self.step: float | None = None
        self._last: dict[int, float] = {}
        self._taken_up: float | None = None
        # Of the newest line with a step: what the pattern's second group found.
        self.total: float | None = None
        self.steps_read = 0

    def take_up(self, step: float | None) -> None:
        """Go on where a reader of this generation has read ``step`` last: to read it again is no progress."""
        self.step = self._taken_up = step

    def is_progress(self, line: str, rank: int = 0, *, at_s: float = 0.0, works: bool = False) -> bool:
        """Whether this line of a rank tells of work done since the lines before it.

        ``at_s`` is when it was read; ``works``: its rank is at work, and has printed it itself.
        """
        if self._pattern is not None:
            return self._is_step(self._pattern, line, rank)
        shape, numbers, pointed = _normalised(plain(line)[:MAX_LINE])
        if not shape:
            return False
        known = self._shapes.get(shape)
        if known is None:
            return self._is_new(shape, numbers, pointed, rank)
        wanders = works and known.wanders(numbers)
        goes_on = known.goes_on(numbers, at_s)
        speaker = known.speaker(numbers, rank)
        known.several |= speaker != known.first
        return (known.several and self._own_goes_on((shape, speaker), numbers)) or goes_on or wanders

    def _own_goes_on(self, whose: tuple[str, tuple[float, ...]], numbers: tuple[float, ...]) -> bool:
        own = self._of_each.get(whose)
        if own is not None:
            return bool(_moved(own, numbers))
        if len(self._of_each) < MAX_SHAPES:
            self._of_each[whose] = _places(numbers)
        return False

    def _is_new(self, shape: str, numbers: tuple[float, ...], pointed: tuple[int, ...], rank: int) -> bool:
        if len(self._shapes) >= MAX_SHAPES:
            return False
        self._shapes[shape] = _Shape(shape, numbers, pointed, rank)
        return True

    def _is_step(self, pattern: StepPattern, line: str, rank: int) -> bool:
        """Progress by the job's own pattern: its first group is the step, and another one than the rank's last is.

        A second group is the total; it is for display alone. A number that can't be a step is progress without one.
        """
        found = pattern.search(line[:MAX_STEP_LINE])
        if found is None and "\x1b" in line:
            found = pattern.search(plain(line)[:MAX_STEP_LINE])
        if found is None:
            return False
        number = _NUMBER.search(found.group(1) if pattern.groups and found.group(1) else found.group(0))
        if number is None:
            return False
        step = float(number.group(0))
        # Less is progress too: a step count that starts over, or a job that resumed from an older checkpoint.
        moved = step != self._last.get(rank, self._taken_up)
        self._last[rank], self.step = step, known_step(step)
        self.steps_read += 1
        last = _NUMBER.search(found.group(2) or "") if pattern.groups > 1 else None
        self.total = known_step(float(last.group(0))) if last else None
        return moved


@dataclass(slots=True)
class _Counted:
    """One shape of lines, as the first rank that printed it goes on printing it."""

    rank: int
    first_s: float
    places: list[_Place]
    rises: int = 0


class WorkCount:
    """Whether the lines of one worker in one generation count work: steps or a bar that grow, or any number for long.

    What a start prints is none: banners, warnings, process ids, sizes, and what is counted while something is loaded,
    downloaded or prepared. It remembers at most ``MAX_SHAPES`` × ``MAX_NUMBERS`` numbers.
    """

    def __init__(self) -> None:
        self.began = False
        self._counted: dict[tuple[str, int], _Counted] = {}
        """By shape and count of numbers: a bar's shape is made of its label, and may be that of another line."""

    def take(self, rank: int, line: str, at_s: float) -> None:
        """One more line of a rank, read at ``at_s``."""
        if self.began:
            return
        line = plain(line)
        found = _bar(line) or _steps(line)
        if found is None or BYTES.search(line, 0, MAX_LINE):
            return
        shape, numbers, counts, named = found
        key = shape, len(numbers)
        known = self._counted.get(key)
        if known is None:
            if len(self._counted) < MAX_SHAPES:
                self._counted[key] = _Counted(rank, at_s, _places(numbers))
            return
        if known.rank != rank:
            return
        grown = [place.grows(value) for place, value in zip(known.places, numbers, strict=True)]
        if any(grown[index] for index in counts):
            known.rises += 1
            self.began = named or (known.rises >= COUNT_RISES and at_s - known.first_s >= COUNT_S)
            if self.began:
                self._counted.clear()


_Found = tuple[str, tuple[float, ...], frozenset[int], bool]
"""A line's shape, its numbers, the places of those that may count, and whether its words say that they count work."""


def without_speaker(shape: str) -> str:
    """A shape of lines without the words that say which process prints it, as in ``[rank #] step #``."""
    return _SPEAKER.sub(" ", shape).strip("[]() :|-")


def _bar(line: str) -> _Found | None:
    found = _BAR.search(line[:MAX_LINE])
    if found is None:
        return None
    label, _ = normalised(line[: found.start()].partition("%")[0].rstrip("0123456789. "))
    label = without_speaker(label)
    if PREPARES.search(label) or ROWS.search(line, found.end(), MAX_LINE):
        return f"bar {label}", (), frozenset(), False
    return f"bar {label}", (float(found[1]),), frozenset({0}), not label or bool(TRAINS.search(label))


def _steps(line: str) -> _Found | None:
    shape, numbers = normalised(_SIZES.sub("<size>", line[:MAX_LINE]))
    steps = list(_STEP_BEFORE.finditer(shape))
    before = without_speaker(shape[: steps[0].start()]) if steps else shape
    if not numbers or PREPARES.search(before):
        return None
    named = {shape.count("#", 0, step.end()) for step in steps}
    whole = {index for index, value in enumerate(numbers) if value.is_integer() or index in named}
    return shape, numbers, frozenset(whole), bool(steps)
