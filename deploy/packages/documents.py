"""The copyright and the changelog of a package, in Debian's forms: ``documents.py PACKAGE VERSION SITE OUT``.

Run by build.py; SITE is what the package carries, OUT where the two files go.
"""

from __future__ import annotations

import gzip
import re
import sys
import textwrap
import time
import tomllib
from email.parser import HeaderParser
from pathlib import Path

HERE = Path(__file__).resolve().parent
WIDTH = 78


def main() -> int:
    """Write the two files."""
    package, version, site, out = sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])
    common = tomllib.loads((HERE / "parts.toml").read_text())["common"]
    (out / "copyright").write_text(copyright_of(site, common["license"]))
    releases = changelog((HERE.parents[1] / "CHANGELOG.md").read_text(), package, version, common["maintainer"])
    (out / "changelog.gz").write_bytes(gzip.compress(releases.encode(), 9, mtime=0))
    return 0


def copyright_of(site: Path, license_name: str) -> str:
    """Whose the package's files are: ours, and those of each project that it carries, by their own metadata."""
    ours = [
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/",
        "Upstream-Name: holdfast",
        "Comment: The texts of the licences are beside each project, in its .dist-info folder below /opt/holdfast.",
        "",
        "Files: *",
        "Copyright: 2026 The Holdfast authors",
        f"License: {license_name}",
        " On Debian systems: /usr/share/common-licenses/Apache-2.0",
    ]
    for path in sorted(site.glob("*.dist-info/METADATA")):
        found = HeaderParser().parsestr(path.read_text(errors="replace"))
        if found["Name"] == "holdfast":
            continue
        classifiers = [
            c.rpartition(" :: ")[2] for c in found.get_all("Classifier", []) if c.startswith("License ::")
        ]
        licence = found["License-Expression"] or ", ".join(classifiers) or found["License"] or "see its .dist-info"
        author = (
            found["Author"] or found["Author-email"] or found["Maintainer"] or f"the authors of {found['Name']}"
        )
        ours += ["", f"Files: opt/holdfast/*/site-packages/{found['Name']}*"]
        ours += [f"Copyright: {_line(author)}", f"License: {_line(licence)}"]
    return "\n".join(ours) + "\n"


def changelog(markdown: str, package: str, version: str, maintainer: str) -> str:
    """The releases of CHANGELOG.md. What is not released yet is that of ``version``."""
    entries: list[tuple[str, str, list[str]]] = []
    for section in re.split(r"^## ", markdown, flags=re.M)[1:]:
        heading, _, text = section.partition("\n")
        found, _, date = heading.partition(" - ")
        known = [each[0] for each in entries]
        number = version if found.strip() == "Unreleased" else found.strip()
        points = re.findall(r"^- (.*(?:\n  .*)*)", text, re.M)
        if points and number not in known:
            day = date.strip() or time.strftime("%Y-%m-%d", time.gmtime())
            entries.append((number, day, points))
    return "\n".join(_entry(package, maintainer, *entry) for entry in entries)


def _entry(package: str, maintainer: str, version: str, date: str, points: list[str]) -> str:
    lines = [f"{package} ({version}) unstable; urgency=medium", ""]
    for point in points:
        words = _line(re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", point).replace("`", ""))
        lines += _wrapped(words)
    day = time.strftime("%a, %d %b %Y 00:00:00 +0000", time.strptime(date, "%Y-%m-%d"))
    return "\n".join([*lines, "", f" -- {maintainer}  {day}", ""])


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="  * ", subsequent_indent="    ", break_on_hyphens=False)


def _line(text: str) -> str:
    return " ".join(text.split())[:2000]


if __name__ == "__main__":
    sys.exit(main())
