"""``make advisories``: fails where an advisory about a package of ``uv.lock`` is known and a release fixes it.

The data is asked for at the public database of advisories. Where it can't be had, this says so and does not fail: a
build without network is no worse for it. An advisory that no release fixes yet is printed, and does not fail either.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
WITHIN_S = 120.0


def main(*more: str) -> int:
    """Ask, print, and return the exit status; ``more`` goes to ``uv audit``."""
    command = [str(Path(sys.executable).with_name("uv")), "audit", "--locked", "--output-format", "json"]
    features = ["--preview-features", "audit-command,json-output"]
    try:
        ran = subprocess.run(
            [*command, *features, *more], cwd=ROOT, capture_output=True, text=True, timeout=WITHIN_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return _unchecked(str(error))
    try:
        found: list[dict[str, Any]] = json.loads(ran.stdout)["vulnerabilities"]
    except (ValueError, KeyError, TypeError):
        return _unchecked(next((line for line in ran.stderr.splitlines() if line.startswith("error")), "no answer"))
    fixable = [each for each in found if each["fix_versions"]]
    for each in found:
        package, fixed = each["dependency"], ", ".join(each["fix_versions"]) or "none yet"
        print(f"{package['name']} {package['version']}: {each['id']}: {each['summary']} (fixed in: {fixed})")
    print(f"advisories: {len(found)} known of the packages in uv.lock, {len(fixable)} fixed by a release")
    if fixable:
        print("Take them: make lock UPGRADE=--upgrade, then make test")
    return 1 if fixable else 0


def _unchecked(why: str) -> int:
    print(f"advisories: not checked: no data ({why})")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
