"""Findings as people read them: one line for each check, then what is wrong with its reason and its fix. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping

from holdfast._base.printable import one_line, spaced_line
from holdfast.doctor.findings import Finding, Status, counts

WIDTH = 100
"""Where output is no terminal."""
_WORDS = {Status.OK: "ok", Status.UNKNOWN: "?", Status.WARNING: "warning", Status.ERROR: "ERROR"}
_STYLES = {Status.OK: "32", Status.UNKNOWN: "2", Status.WARNING: "33", Status.ERROR: "1;31"}
_STATUS_WIDTH = max(map(len, _WORDS.values()))


def coloured(terminal: bool, environ: Mapping[str, str]) -> bool:
    """Whether colour is welcome: a terminal, and no ``NO_COLOR``."""
    return terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def page(subject: str, findings: Iterable[Finding], *, width: int = WIDTH, colour: bool = False) -> str:
    """The whole page. Lines keep within ``width``, save what is to be typed, which is never broken."""
    every = list(findings)
    wrong = [f for f in every if f.status in (Status.WARNING, Status.ERROR)]
    parts = ["".join(_lines(every, width, colour))]
    parts += ["".join(_explained(finding, width, colour)) for finding in wrong]
    blind = sorted({line for f in every if f.status is Status.UNKNOWN for line in f.fix})
    summary = _wrapped(f"{subject}: {_summary(every)}", width, "", "  ")
    parts.append(summary + "".join(f"  {spaced_line(line)}\n" for line in blind))
    return "\n".join(parts)


def _lines(findings: list[Finding], width: int, colour: bool) -> Iterator[str]:
    names = max((len(finding.check) for finding in findings), default=0)
    for finding in findings:
        word = _WORDS[finding.status].ljust(_STATUS_WIDTH)
        start = f"{word}  {finding.check.ljust(names)}  "
        text = _wrapped(finding.saw, width, start, " " * len(start))
        yield _styled(word, _STYLES[finding.status], colour) + text[len(word) :]


def _explained(finding: Finding, width: int, colour: bool) -> Iterator[str]:
    word = _WORDS[finding.status]
    head = _wrapped(f"{finding.check}: {finding.saw}", width, f"{word}  ", "  ")
    yield _styled(word, _STYLES[finding.status], colour) + head[len(word) :]
    yield _wrapped(finding.why, width, "  ", "  ")
    for line in finding.fix:
        yield f"    {spaced_line(line)}\n"


def _summary(findings: list[Finding]) -> str:
    found = counts(findings)
    told = [_plural(len(findings), "check")]
    told += [
        _plural(found[status], word) for status, word in ((Status.ERROR, "error"), (Status.WARNING, "warning"))
    ]
    if found[Status.UNKNOWN]:
        told.append(f"{found[Status.UNKNOWN]} could not be looked at")
    return ", ".join(told)


def _plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _wrapped(text: str, width: int, first: str, later: str) -> str:
    lines = textwrap.wrap(
        one_line(text),
        max(width, len(first) + 20),
        initial_indent=first,
        subsequent_indent=later,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "".join(f"{line}\n" for line in lines or [first.rstrip()])


def _styled(text: str, style: str, colour: bool) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if colour else text
