"""Whether requirements of packaged code can be installed, and where they come from. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast._base.dataclass import dataclass
from holdfast.doctor.findings import Finding, ok, warning


@dataclass(frozen=True, slots=True)
class PackageFacts:
    """Facts on installations. ``sources`` is in words; ``problem`` says why nothing can be installed, if so."""

    sources: str = ""
    problem: str = ""
    installer: bool = True
    """uv can be started."""


def check(facts: PackageFacts) -> Iterator[Finding]:
    """Check the installer, then pip's configuration of the host."""
    why = "Jobs with requirements go to other hosts, and the first one has this host cordoned."
    if not facts.installer:
        yield warning("packages.installer", "uv can't be started", why, "Install the agent's package again.")
    else:
        yield ok("packages.installer", "uv is there")
    if facts.problem:
        fix = "Fix what it names: /etc/pip.conf, variables of the agent's service, or [packages] in agent.toml"
        yield warning("packages.sources", facts.problem, why, fix)
    else:
        yield ok("packages.sources", facts.sources)
