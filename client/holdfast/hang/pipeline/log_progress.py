"""Which log lines are progress.

A line is progress when it has a shape not seen before in this generation, or when a number in it, other than a
clock, grows: exceeds the greatest this shape has shown at that place, or, as a step count that starts over with
each epoch does, keeps growing line after line. A number that often falls is a gauge (memory in use, a temperature)
and never progress, nor is one that counts attempts. A heartbeat that continues while the job hangs has an old shape
and no such number. With a step pattern of the job's own, only the number it finds is looked at.

Whether the program has begun its work is a stricter question (``WorkCount``): every start prints lines of new shapes.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from holdfast.hang.pipeline.step_pattern import MAX_STEP_LINE, StepPattern, compiled_earlier
from holdfast.training.known_step import known_step

# Bounds on memory. Shapes beyond the bound are held to be old: a log that prints ever new words must not be eternal
# progress. A program's own log statements are far fewer.
MAX_SHAPES = 512
MAX_NUMBERS = 16
MAX_LINE = 512
# So many rises in a row, below the greatest ever, make a count that has started over; a reading that wanders (a
# temperature, memory in use) turns back sooner as a rule.
RISES = 3
# A number that has fallen in more than this share of its changes is a gauge. A count that starts over with each
# epoch and rises at least ``RISES`` times in between falls no more often.
GAUGE_SHARE = 0.25
# So few changes tell a gauge from a count yet: a gauge that climbs at first is taken for a count until then.
GAUGE_CHANGES = 4

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


@dataclass(slots=True)
class _Place:
    """History of one number in a shape of lines."""

    highest: float
    last: float
    rises: int = 0
    changes: int = 0
    falls: int = 0

    def grows(self, value: float) -> bool:
        """Take the next value in; whether it tells of work done."""
        self.rises = self.rises + 1 if value > self.last else 0
        self.changes += value != self.last
        self.falls += value < self.last
        beyond = value > self.highest
        self.last, self.highest = value, max(value, self.highest)
        return (beyond or self.rises >= RISES) and not self._is_gauge

    @property
    def _is_gauge(self) -> bool:
        return self.changes >= GAUGE_CHANGES and self.falls > GAUGE_SHARE * self.changes


class _Shape:
    """Numbers of the lines of one shape, of all who print it together."""

    __slots__ = ("first", "places", "several", "speaks")

    def __init__(self, shape: str, numbers: tuple[float, ...], rank: int) -> None:
        self.places = _places(numbers)
        places = (shape.count("#", 0, found.end()) - 1 for found in _SPEAKS.finditer(shape))
        self.speaks = tuple(index for index in places if index < len(numbers))
        self.first = self.speaker(numbers, rank)
        self.several = False

    def speaker(self, numbers: tuple[float, ...], rank: int) -> tuple[float, ...]:
        """Return the rank that printed a line, and whom the line itself names."""
        return rank, *(numbers[index] for index in self.speaks)


def _places(numbers: tuple[float, ...]) -> list[_Place]:
    return [_Place(value, value) for value in numbers]


def _grow(places: list[_Place], numbers: tuple[float, ...]) -> bool:
    # Every place is brought up to date, so no short cut at the first that grows.
    return bool([place for place, value in zip(places, numbers, strict=True) if place.grows(value)])


def plain(line: str) -> str:
    """A line without what colours it or moves the cursor."""
    return _CONTROL.sub("", line) if "\x1b" in line else line


def ungrouped(line: str) -> str:
    """A line with 12000 for 12,000."""
    return _GROUPED.sub(lambda found: found[0].replace(",", ""), line) if "," in line else line


def normalised(line: str) -> tuple[str, tuple[float, ...]]:
    """A line's shape, with clocks, identifiers and numbers taken out, and the numbers that are no clocks."""
    return _normalised(line[:MAX_LINE])


@functools.lru_cache(maxsize=512)  # several readers ask for each line in turn
def _normalised(line: str) -> tuple[str, tuple[float, ...]]:
    text = _OPAQUE.sub("<id>", _CLOCKS.sub(_clock, line.strip()))
    numbers = tuple(float(found) for found in _NUMBER.findall(text)[:MAX_NUMBERS])
    return _NUMBER.sub("#", text.replace("#", SIGN)), numbers


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

    def is_progress(self, line: str, rank: int = 0) -> bool:
        """Whether this line of a rank tells of work done since the lines before it."""
        if self._pattern is not None:
            return self._is_step(self._pattern, line, rank)
        shape, numbers = normalised(plain(line))
        if not shape:
            return False
        known = self._shapes.get(shape)
        if known is None:
            return self._is_new(shape, numbers, rank)
        grows = _grow(known.places, numbers)
        speaker = known.speaker(numbers, rank)
        known.several |= speaker != known.first
        return (known.several and self._own_grows((shape, speaker), numbers)) or grows

    def _own_grows(self, whose: tuple[str, tuple[float, ...]], numbers: tuple[float, ...]) -> bool:
        own = self._of_each.get(whose)
        if own is not None:
            return _grow(own, numbers)
        if len(self._of_each) < MAX_SHAPES:
            self._of_each[whose] = _places(numbers)
        return False

    def _is_new(self, shape: str, numbers: tuple[float, ...], rank: int) -> bool:
        if len(self._shapes) >= MAX_SHAPES:
            return False
        self._shapes[shape] = _Shape(shape, numbers, rank)
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
                self._counted[key] = _Counted(rank, at_s, [_Place(value, value) for value in numbers])
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
