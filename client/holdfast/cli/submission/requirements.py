"""From what a user gives as requirements to the lines that a job carries."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast.errors import InvalidInput, Violation

FILES_DEEP = 10
_COMMENT = re.compile(r"(^|\s)#.*$")
_INCLUDE = re.compile(r"(?:-r[=\s]?|--requirement[=\s])\s*(\S.*)")
_NEEDS_FILES = re.compile(r"-[ec]|--(editable|constraint)\b|(-f|--find-links)[=\s]*+(?!\w+://|/)\S")
_LOCAL = re.compile(r"\.{0,2}/|(?!\w+://)[^\s@;]+\.(whl|zip|tar\.gz)(?=$|[\s;\[])")


def lines_of(given: Sequence[str], folder: Path) -> list[str]:
    """Each of ``given`` is a requirement, or the path of a file of them (from here, or from the folder).

    The folder's own requirements.txt comes first. Raises ``InvalidInput``.
    """
    own = folder / "requirements.txt"
    lines = list(_read(own)) if os.path.isfile(own) else []
    for item in given:
        file = next((path for path in (Path(item), folder / item) if os.path.isfile(path)), None)
        if file is not None:
            lines += [] if file.resolve() == own.resolve() else _read(file)
        elif item.endswith(".txt"):
            raise _wrong("--requirements", f"there is no file {item}")
        elif item.strip().startswith("-") and _NEEDS_FILES.match(item.strip()):
            problem = f"{item.strip()} names a file, which hosts don't have"
            raise _wrong("--requirements", problem, "give wheels and folders with --extra-packages")
        elif _LOCAL.match(item.strip()) or item.strip() in (".", ".."):
            problem = f"{item.strip()} is of this machine, which hosts don't have"
            raise _wrong("--requirements", problem, f"to send it along: --extra-packages {item.strip()}")
        else:
            lines.append(item.strip())
    return list(dict.fromkeys(line for line in lines if line))


def _read(file: Path, depth: int = 0) -> Iterator[str]:
    if depth > FILES_DEEP:
        raise _wrong(str(file), "files of requirements include each other too deep")
    try:
        text = _text(file.read_bytes())
    except (OSError, UnicodeDecodeError) as error:
        raise _wrong(str(file), f"can't be read: {error}") from None
    for line in _joined(text):
        line = " ".join(_COMMENT.sub("", line).split())
        if included := _INCLUDE.fullmatch(line):
            yield from _read(file.parent / included[1], depth + 1)
        elif _NEEDS_FILES.match(line) or _LOCAL.match(line):
            problem = f"the line {line!r} names a file, which hosts don't have"
            raise _wrong(str(file), problem, "give wheels and folders with --extra-packages, versions in the lines")
        elif line:
            yield line


def _joined(text: str) -> list[str]:
    """The lines, those that go on after a backslash as one. A comment ends with its line, as it does to pip."""
    lines = (line.rstrip("\\") if line.lstrip().startswith("#") else line for line in text.split("\n"))
    return "\n".join(lines).replace("\\\n", " ").splitlines()


def _text(data: bytes) -> str:
    """The text of a file, as pip reads it: programs of Windows say at its beginning how it is encoded."""
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return data.decode("utf-16" if wide else "utf-8-sig").replace("\r\n", "\n")


def _wrong(place: str, problem: str, fix: str = "") -> InvalidInput:
    return InvalidInput([Violation(place, problem, fix)], what="The list of requirements")
