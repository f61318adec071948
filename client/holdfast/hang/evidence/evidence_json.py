"""Evidence as JSON: how it travels and how it is kept.

Keys are camelCase and defaults are left out. Frames repeat a lot, from rank to rank and from look to look, so each
is written once, in the list ``frames``, and stacks hold their numbers in it. ``encode`` never makes more than
``MAX_BYTES``: what has to go goes in the order of ``_CUTS``, and a note says so.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import types
import typing
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from holdfast.hang.evidence.evidence import Dump, Evidence, Look, ProcessEvidence, RankEvidence, thread_stack
from holdfast.hang.evidence.stacks import Frame

MAX_BYTES = 512 << 10
VERSION = 1


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
    """What ``encode`` has written. Keys it doesn't know are passed over. Raises ``ValueError``."""
    try:
        data = json.loads(text)
        if data.get("version") != VERSION:
            raise ValueError(f"evidence of version {data.get('version')!r}, which this program does not know")
        frames = [Frame(str(function), str(file), int(line)) for function, file, line in data["frames"]]
        return typing.cast(Evidence, _read(Evidence, data, frames))
    except (AttributeError, IndexError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"no evidence: {error!r}") from error


# -- Writing -----------------------------------------------------------------------------------------------------


def _written(evidence: Evidence) -> str:
    frames: dict[Frame, int] = {}
    body = _plain(evidence, frames)
    table = [[frame.function, frame.file, frame.line] for frame in frames]
    whole = {"version": VERSION, **body, "frames": table}
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace").decode()


def _plain(value: Any, frames: dict[Frame, int]) -> Any:
    if isinstance(value, Frame):
        return frames.setdefault(value, len(frames))
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, tuple):
        return [_plain(item, frames) for item in value]
    if isinstance(value, float):
        return round(value, 3)
    if not dataclasses.is_dataclass(value):
        return value
    fields = ((field, getattr(value, field.name)) for field in dataclasses.fields(value))
    return {_camel(field.name): _plain(item, frames) for field, item in fields if item != field.default}


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


# -- Reading -----------------------------------------------------------------------------------------------------


def _read(kind: Any, data: Any, frames: list[Frame]) -> Any:
    if kind is Frame:
        return frames[_checked(int, data)]
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        inner = next(part for part in typing.get_args(kind) if part is not types.NoneType)
        return None if data is None else _read(inner, data, frames)
    if origin is tuple:
        return tuple(_read(typing.get_args(kind)[0], item, frames) for item in _checked(list, data))
    if not dataclasses.is_dataclass(kind):
        return float(data) if kind is float and isinstance(data, int) else _checked(kind, data)
    hints = typing.get_type_hints(kind)
    given = _checked(dict, data)
    named = {name: _camel(name) for name in hints}
    return typing.cast(Any, kind)(
        **{n: _read(hints[n], given[key], frames) for n, key in named.items() if key in given}
    )


def _checked(kind: type, data: Any) -> Any:
    if not isinstance(data, kind):
        raise TypeError(f"{data!r:.80} is no {kind.__name__}")
    return data


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


def _without_kernel_stacks(evidence: Evidence) -> Evidence:
    return _looks(evidence, lambda look: replace(look, vector=replace(look.vector, kernel_stack=())))


_CUTS: tuple[Callable[[Evidence], Evidence], ...] = (
    lambda evidence: _dumps(evidence, threads=16, frames=64),
    lambda evidence: _dumps(_fewer_children(evidence, 4), threads=4, frames=64),
    lambda evidence: _dumps(_fewer_lines(evidence), threads=2, frames=32),
    lambda evidence: _dumps(_without_kernel_stacks(_fewer_children(evidence, 0)), threads=1, frames=16),
)
