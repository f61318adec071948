"""Evidence as text for people: who is where, the odd ones first, then each rank with what else is known of it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from holdfast.hang.evidence.evidence import (
    OUTER_FRAMES,
    Dump,
    Evidence,
    GpuEvidence,
    Look,
    Movement,
    ProcessEvidence,
    RankEvidence,
    ThreadStack,
    diagnosis,
)
from holdfast.hang.evidence.flight_recorder import rank_spans
from holdfast.hang.evidence.frames import Frame
from holdfast.hang.evidence.stacks import Group, RankStack

DEEPEST = 24
"""So many frames of a group's stack are shown; all of them with ``full``."""
_MOVEMENT = {
    Movement.SAME: "the same in both looks",
    Movement.MOVING: "moving",
    Movement.UNKNOWN: "seen once",
}
_STATES = {"R": "runs", "S": "sleeps", "D": "in the kernel (D)", "T": "stopped", "t": "traced", "Z": "zombie"}
_MARKERS = ("/site-packages/", "/dist-packages/")


def render(parts: Iterable[Evidence], width: int = 100, *, full: bool = False) -> str:
    """The evidence of a job's workers, ending in a newline. ``full`` adds every thread of every rank.

    No line is wider than ``width`` unless a single word is.
    """
    parts = sorted(parts, key=lambda part: _natural(part.worker))
    if not parts:
        return "No evidence was taken.\n"
    lines = [*_summary(parts, width, full)]
    for part in parts:
        lines += ["", *_worker(part, width, full)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


# -- All ranks together ------------------------------------------------------------------------------------------


def _summary(parts: Sequence[Evidence], width: int, full: bool) -> Iterator[str]:
    found = diagnosis(parts, 0.0)
    processes = {(part.worker, rank.rank): rank for part in parts for rank in part.ranks}
    sentence = found.words or "No rank's stack could be read"
    yield from _paragraph(sentence + ".", width)
    for group in reversed(found.groups):
        yield ""
        yield from _group(group, [processes[s.worker, s.rank] for s in group.stacks], width, full)
    unread = [part.stacks(0)[i] for part in parts for i, rank in enumerate(part.ranks) if not _has_stack(rank)]
    if unread:
        yield ""
        yield "No stack:"
        for stack in unread:
            yield from _wrapped(f"{stack.name}: {stack.problem or 'unknown'}", "  ", width)


def _has_stack(rank: RankEvidence) -> bool:
    mains = (look.python.main for look in rank.process.looks)
    return any(main is not None and main.frames for main in mains)


def _group(group: Group, ranks: Sequence[RankEvidence], width: int, full: bool) -> Iterator[str]:
    moves = {rank.process.movement for rank in ranks}
    movement = _MOVEMENT[moves.pop()] if len(moves) == 1 else "some moving, some the same"
    states = {look.vector.state for rank in ranks for look in rank.process.looks[-1:]}
    if states <= {"T", "Z"} and states:
        movement = f"{' or '.join(sorted(_STATES[state] for state in states))}, {movement}"
    yield from _paragraph(f"{_names(group.stacks)} ({movement}):", width)
    frames = group.stacks[0].frames
    last = ranks[0].process.last
    cut = last.python.main.frames_cut if last is not None and last.python.main is not None else 0
    yield from _stack(frames, cut, width, "  ", None if full else DEEPEST)


def _names(stacks: Sequence[RankStack]) -> str:
    """A phrase such as: workerpool0-0 ranks 0, 2-3 and workerpool0-1 rank 4."""
    by_worker: dict[str, list[int]] = {}
    for stack in sorted(stacks, key=lambda stack: (_natural(stack.worker), stack.rank)):
        by_worker.setdefault(stack.worker, []).append(stack.rank)
    named = [
        f"{worker} rank{'s' if len(ranks) > 1 else ''} {rank_spans(ranks)}" for worker, ranks in by_worker.items()
    ]
    return named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    """Sort key that puts worker 10 after worker 9."""
    parts = (part for part in name.replace("-", " - ").split())
    return tuple((int(part), "") if part.isdecimal() and len(part) < 10 else (-1, part) for part in parts)


# -- One worker --------------------------------------------------------------------------------------------------


def _worker(part: Evidence, width: int, full: bool) -> Iterator[str]:
    when = datetime.fromtimestamp(part.taken_at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    head = f"{part.worker} on {part.host}, generation {part.generation}, {when}"
    longer = f"{head}, taken in {part.took_s:.1f} s"
    yield longer if len(longer) <= width else head
    for note in part.notes:
        yield from _wrapped(f"note: {note}", "  ", width)
    for rank in sorted(part.ranks, key=lambda rank: (not rank.suspect, rank.rank)):
        yield from _rank(rank, width, full)
    for gpu in part.gpus:
        yield from _wrapped(_gpu(gpu), "  ", width)
    if part.ras:
        yield "  NCCL says:"
        yield from (f"    | {line}"[:width] for line in part.ras.splitlines() if line.strip())


def _rank(rank: RankEvidence, width: int, full: bool) -> Iterator[str]:
    name = f"rank {rank.rank}{', suspect' if rank.suspect else ''}"
    yield from _wrapped(f"{name}: {_words(rank.process, command=rank.suspect or full)}", "  ", width)
    for note in rank.notes:
        yield from _wrapped(note, "      ", width)
    if rank.recorder:
        yield from _wrapped(f"flight recorder: {rank.recorder}", "      ", width)
    if rank.flight is not None:
        yield from _wrapped(f"collectives: {rank.flight.words}", "      ", width)
    if rank.suspect or full:
        yield from _details(rank.process, "      ", width)
        for child in rank.children:
            yield from _wrapped(f"child {_words(child)}", "      ", width)
            if child.last is not None:
                yield from _threads(child.last.python, "        ", width)
        if rank.children_cut:
            yield f"      and {rank.children_cut} more children"
    for name, lines in (("stdout", rank.stdout), ("stderr", rank.stderr)):
        if lines:
            yield f"      last lines of {name}:"
            yield from (f"        | {line}"[:width] for line in (lines if rank.suspect or full else lines[-3:]))


def _words(process: ProcessEvidence, *, command: bool = True) -> str:
    """A phrase such as: pid 5, sleeps in futex_wait (futex), 0.00 cores, 0 switches, `python train.py`."""
    words = [f"pid {process.pid}"]
    if process.looks:
        vector = process.looks[-1].vector
        if vector.problem:
            words.append(vector.problem)
        else:
            words.append(_state(process.looks[-1]))
    if process.cores is not None:
        words.append(f"{process.cores:.2f} cores")
    if process.switches is not None:
        words.append(f"{process.switches} switch{'' if process.switches == 1 else 'es'}")
    if process.command and command:
        words.append(f"`{process.command}`")
    return ", ".join(words)


def _state(look: Look) -> str:
    vector = look.vector
    words = _STATES.get(vector.state, f"state {vector.state}")
    if vector.wchan and vector.state != "R":
        words += f" in {vector.wchan}"
    if vector.syscall:
        words += f" ({vector.syscall})"
    return words + (f", traced by pid {vector.tracer}" if vector.tracer else "")


def _details(process: ProcessEvidence, indent: str, width: int) -> Iterator[str]:
    """Stacks that the groups above don't show: other threads, C frames, the kernel's."""
    last = process.last
    if last is None:
        return
    yield from _threads(last.python, indent, width, main=False)
    natives = [look.native for look in process.looks if look.native is not None]
    for native in natives[-1:]:
        if native.problem:
            yield from _wrapped(f"native: {native.problem}", indent, width)
        elif native.main is not None:
            yield f"{indent}native frames of the main thread:"
            yield from _stack(_from_module(native.main.frames), 0, width, indent + "  ", DEEPEST)
    if last.vector.kernel_stack:
        yield from _wrapped("in the kernel: " + " < ".join(last.vector.kernel_stack), indent, width)


def _from_module(frames: Sequence[Frame]) -> Sequence[Frame]:
    """The frames without the interpreter's own start, which is the same everywhere."""
    depths = [depth for depth, frame in enumerate(frames) if frame.function == "<module>"]
    return frames[: depths[-1] + 1] if depths else frames


def _threads(dump: Dump, indent: str, width: int, *, main: bool = True) -> Iterator[str]:
    if dump.problem:
        yield from _wrapped(dump.problem, indent, width)
    for thread in dump.threads:
        if main or not thread.main:
            yield f"{indent}{_thread_name(thread)}:"
            yield from _stack(thread.frames, thread.frames_cut, width, indent + "  ", DEEPEST)
    if dump.threads_cut:
        yield f"{indent}and {dump.threads_cut} more threads"


def _thread_name(thread: ThreadStack) -> str:
    marks = [mark for mark, on in (("holds the GIL", thread.holds_gil), ("runs", thread.active)) if on]
    name = "main thread" if thread.main else f"thread {thread.name or thread.tid}"
    return name + (f" ({', '.join(marks)})" if marks else "")


def _gpu(gpu: GpuEvidence) -> str:
    words = [f"GPU {gpu.index} {gpu.uuid}"]
    if gpu.used_bytes is not None:
        words.append(f"{gpu.used_bytes / (1 << 30):.1f} of {gpu.memory_bytes / (1 << 30):.0f} GiB in use")
    if gpu.pids is not None:
        words.append(f"pids {', '.join(map(str, gpu.pids))}" if gpu.pids else "no process")
    return ", ".join([*words, gpu.problem] if gpu.problem else words)


# -- Lines -------------------------------------------------------------------------------------------------------


def _stack(frames: Sequence[Frame], cut: int, width: int, indent: str, most: int | None) -> Iterator[str]:
    """Innermost first, the place beside the function. Runs of the same function become one line."""
    rows = [(f.function, _place(f)) for f in frames]
    gap = len(rows) - OUTER_FRAMES if cut else None
    if most is not None and len(rows) > most:
        cut += len(rows) - most
        rows, gap = rows[: most - OUTER_FRAMES] + rows[-OUTER_FRAMES:], most - OUTER_FRAMES
    column = min(max((len(function) for function, _ in rows), default=0), 36)
    repeats = 0
    for index, (function, place) in enumerate(rows):
        if index == gap:
            yield f"{indent}… {cut} more frame{'s' if cut > 1 else ''}"
        if index + 1 < len(rows) and rows[index + 1] == (function, place) and index + 1 != gap:
            repeats += 1
            continue
        times = f" × {repeats + 1}" if repeats else ""
        repeats = 0
        room = max(16, width - len(indent) - column - 2 - len(times))
        shown = place if len(place) <= room else "…" + place[len(place) - room + 1 :]
        yield f"{indent}{_fitted(function, column).ljust(column)}  {shown}{times}"


def _fitted(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 1] + "…"


def _place(frame: Frame) -> str:
    """The file, without where a library is installed, and the line where there is one."""
    path = frame.file
    for marker in _MARKERS:
        path = path.rpartition(marker)[2]
    _, found, tail = path.partition("/lib/python3")
    if found:
        path = tail.partition("/")[2]
    return f"{path}:{frame.line}" if frame.line else path


def _paragraph(text: str, width: int) -> list[str]:
    """Only its first line begins where a line of ours may: a program's words don't look like the next one."""
    return textwrap.wrap(text, width, subsequent_indent="  ", break_on_hyphens=False)


def _wrapped(text: str, indent: str, width: int) -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=indent + "  ", break_on_hyphens=False
    )
