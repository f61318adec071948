"""Evidence as JSON: how it travels and how it is kept.

Keys are camelCase and defaults are left out. Frames repeat a lot, from rank to rank and from look to look, so each
is written once, in the list ``frames``, and stacks hold their numbers in it. ``encode`` never makes more than
``MAX_BYTES``: what has to go goes in the order of ``_CUTS``, and a note says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from holdfast._base.codec import Format, from_plain, to_plain
from holdfast._base.dataclass import replace
from holdfast._base.printable import spaced_line
from holdfast.hang.evidence.evidence import Dump, Evidence, Look, ProcessEvidence, RankEvidence, thread_stack
from holdfast.hang.evidence.frames import Frame

MAX_BYTES = 512 << 10
VERSION = 1
_OF_LINES = ("ras", "rasAfter")
_FORM = Format(camel=True, without_defaults=True, digits=3, skip_unknown=True)


def encode(evidence: Evidence, max_bytes: int = MAX_BYTES) -> str:
    """JSON of at most ``max_bytes`` bytes of UTF-8. Raises ``ValueError`` where not even the frame fits."""
    text = _written(evidence)
    for cut in _CUTS:
        if len(text.encode()) <= max_bytes:
            return text
        evidence = cut(evidence)
        text = _written(_noted(evidence))
    while len(text.encode()) > max_bytes and evidence.ranks:
        # Suspects are the last to go.
        ranked = sorted(evidence.ranks, key=lambda rank: not rank.suspect)
        evidence = replace(evidence, ranks=tuple(ranked[: len(ranked) // 2]))
        text = _written(_noted(evidence))
    if len(text.encode()) > max_bytes:
        raise ValueError(f"evidence without ranks still needs more than {max_bytes} bytes")
    return text


def decode(text: str) -> Evidence:
    """Return the evidence that ``encode`` wrote. Unknown keys are ignored. Raises ``ValueError``.

    Its texts are safe to show: a host may have written them by itself.
    """
    try:
        data = _cleaned(json.loads(text))
        if data.get("version") != VERSION:
            raise ValueError(f"evidence of version {data.get('version')!r}, which this program does not know")
        frames = [Frame(str(function), str(file), int(line)) for function, file, line in data["frames"]]
        return from_plain(Evidence, data, replace(_FORM, read={Frame: frames.__getitem__}))
    except (AttributeError, IndexError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"no evidence: {error!r}") from error


def _cleaned(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _cleaned(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [_cleaned(each) for each in value]
    if not isinstance(value, str):
        return value
    if key in _OF_LINES:
        return "\n".join(map(spaced_line, value.split("\n")))
    return spaced_line(value)


def _written(evidence: Evidence) -> str:
    frames: dict[Frame, int] = {}
    number: dict[type, Callable[[Any], int]] = {Frame: lambda frame: frames.setdefault(frame, len(frames))}
    body = to_plain(evidence, replace(_FORM, write=number))
    table = [[frame.function, frame.file, frame.line] for frame in frames]
    whole = {"version": VERSION, **body, "frames": table}
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace").decode()


# -- What goes when it is too much -------------------------------------------------------------------------------

_NOTE = "some of it was left out, to keep within bounds"


def _noted(evidence: Evidence) -> Evidence:
    return evidence if _NOTE in evidence.notes else replace(evidence, notes=(*evidence.notes, _NOTE))


def _processes(evidence: Evidence, change: Callable[[ProcessEvidence], ProcessEvidence]) -> Evidence:
    def of_rank(rank: RankEvidence) -> RankEvidence:
        return replace(rank, process=change(rank.process), children=tuple(map(change, rank.children)))

    return replace(evidence, ranks=tuple(map(of_rank, evidence.ranks)))


def _looks(evidence: Evidence, change: Callable[[Look], Look]) -> Evidence:
    return _processes(evidence, lambda p: replace(p, looks=tuple(map(change, p.looks))))


def _dumps(evidence: Evidence, threads: int, frames: int) -> Evidence:
    def of_dump(dump: Dump) -> Dump:
        kept = tuple(thread_stack(thread, frames) for thread in dump.threads[:threads])
        return replace(dump, threads=kept, threads_cut=dump.threads_cut + len(dump.threads) - len(kept))

    def of_look(look: Look) -> Look:
        native = of_dump(look.native) if look.native is not None else None
        return replace(look, python=of_dump(look.python), native=native)

    return _looks(evidence, of_look)


def _fewer_children(evidence: Evidence, most: int) -> Evidence:
    def of_rank(rank: RankEvidence) -> RankEvidence:
        cut = max(0, len(rank.children) - most)
        return replace(rank, children=rank.children[:most], children_cut=rank.children_cut + cut)

    return replace(evidence, ranks=tuple(map(of_rank, evidence.ranks)))


def _fewer_lines(evidence: Evidence) -> Evidence:
    ranks = (replace(rank, stdout=rank.stdout[-5:], stderr=rank.stderr[-5:]) for rank in evidence.ranks)
    return replace(evidence, ranks=tuple(ranks), ras=evidence.ras[:4096], ras_after=evidence.ras_after[:4096])


def _fewer_groups(evidence: Evidence, most: int) -> Evidence:
    def of_rank(rank: RankEvidence) -> RankEvidence:
        if rank.flight is None:
            return rank
        cut = rank.flight.groups_cut + len(rank.flight.groups[most:])
        return replace(rank, flight=replace(rank.flight, groups=rank.flight.groups[:most], groups_cut=cut))

    return replace(evidence, ranks=tuple(map(of_rank, evidence.ranks)))


def _without_kernel_stacks(evidence: Evidence) -> Evidence:
    return _looks(evidence, lambda look: replace(look, vector=replace(look.vector, kernel_stack=())))


_CUTS: tuple[Callable[[Evidence], Evidence], ...] = (
    lambda evidence: _dumps(evidence, threads=16, frames=64),
    lambda evidence: _dumps(_fewer_groups(_fewer_children(evidence, 4), 4), threads=4, frames=64),
    lambda evidence: _dumps(_fewer_lines(evidence), threads=2, frames=32),
    lambda evidence: _dumps(
        _without_kernel_stacks(_fewer_groups(_fewer_children(evidence, 0), 1)), threads=1, frames=16
    ),
)
