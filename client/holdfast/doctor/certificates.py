"""Whether the three PEM files are there, belong together, are guarded, and last. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast._base.dataclass import dataclass
from holdfast.doctor.findings import Finding, error, needs_root, ok, unknown, warning

DAY_S = 86_400.0
_OTHERS = 0o077


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """Facts read from ``ca``, ``cert`` and ``key``. Times are seconds since the epoch, 0 where not known."""

    ca: str
    cert: str
    key: str
    now: float
    unreadable: tuple[tuple[str, str], ...] = ()
    """(path, why) of each file that can't be read."""
    denied: bool = False
    """One of them only for want of rights."""
    problem: str = ""
    """Why ``cert`` is no certificate of a cluster."""
    identity: str = ""
    begins_at: float = 0.0
    ends_at: float = 0.0
    renew_at: float = 0.0
    ca_ends_at: float = 0.0
    key_mode: int = 0o600
    key_owner: int = 0
    own_uid: int = 0
    pairs: str = ""
    """Why the key is not the certificate's; empty where it is."""
    signed: str = ""
    """Why the CA didn't sign the certificate; empty where it did."""
    renews: bool = False
    """An address for renewal is set."""
    wanted: str = ""
    """The identity that the settings ask for, as KIND/NAME; empty: any."""


def check(facts: CertificateFacts, *, again: str) -> Iterator[Finding]:
    """``again`` is the command that gets a new certificate."""
    if facts.unreadable:
        path, why = facts.unreadable[0]
        if facts.denied:
            yield needs_root("certificates.files", f"{path}: {why}")
        else:
            yield error("certificates.files", f"{path}: {why}", "Every link is mutual TLS.", again)
        return
    yield ok("certificates.files", f"{facts.ca}, {facts.cert}, {facts.key}")
    yield _key(facts)
    if facts.problem:
        yield error("certificates.identity", facts.problem, "The controller knows callers by it.", again)
        return
    yield _identity(facts, again)
    yield _pair(facts, again)
    yield _end(facts, again)
    yield _authority(facts)


def _key(facts: CertificateFacts) -> Finding:
    if facts.key_mode & _OTHERS:
        why = "Who reads it can act as this party until the certificate ends."
        saw = f"{facts.key} has mode {facts.key_mode:04o}: others may read it"
        return error("certificates.key", saw, why, f"chmod 0600 {facts.key}")
    if facts.key_owner != facts.own_uid:
        saw = f"{facts.key} belongs to uid {facts.key_owner}, not {facts.own_uid}"
        why = "That user can act as this party."
        return warning("certificates.key", saw, why, f"chown {facts.own_uid} {facts.key}")
    return ok("certificates.key", f"mode {facts.key_mode:04o}, its owner's alone")


def _identity(facts: CertificateFacts, again: str) -> Finding:
    if facts.wanted and not facts.identity.endswith(f"/{facts.wanted}"):
        why = "The controller refuses a caller whose certificate names another party."
        saw = f"{facts.cert} is of {facts.identity}, the settings say {facts.wanted}"
        return error("certificates.identity", saw, why, f"Correct name in the settings, or: {again}")
    return ok("certificates.identity", facts.identity)


def _pair(facts: CertificateFacts, again: str) -> Finding:
    if facts.pairs or facts.signed:
        saw = facts.pairs or facts.signed
        return error("certificates.chain", saw, "No handshake with the controller will succeed.", again)
    return ok("certificates.chain", "the key is the certificate's, and the CA has signed it")


def _end(facts: CertificateFacts, again: str) -> Finding:
    left_s = facts.ends_at - facts.now
    if facts.begins_at > facts.now:
        saw = f"begins only in {span(facts.begins_at - facts.now)}"
        return error(
            "certificates.end", saw, "Probably this machine's clock is behind.", "timedatectl set-ntp true"
        )
    if left_s <= 0:
        saw = f"ended {span(-left_s)} ago"
        return error("certificates.end", saw, "The controller refuses every caller with it.", again)
    saw = f"ends in {span(left_s)}"
    if facts.renews and facts.now > facts.renew_at + (facts.ends_at - facts.renew_at) / 2:
        why = "It is renewed by itself after two thirds of its life, and hasn't been."
        mend = "Check that the agent runs and that the address of enrolment answers."
        return warning("certificates.end", f"{saw}, and should have been renewed", why, mend, notify=True)
    if not facts.renews and left_s < 14 * DAY_S:
        return warning(
            "certificates.end",
            f"{saw}, and nothing renews it (enrolment is not set)",
            "It will end.",
            again,
            notify=True,
        )
    return ok("certificates.end", f"{saw}{', renewed by itself' if facts.renews else ''}")


def _authority(facts: CertificateFacts) -> Finding:
    left_s = facts.ca_ends_at - facts.now
    if not facts.ca_ends_at:
        return unknown("certificates.ca", f"{facts.ca} can't be understood")
    if left_s < 90 * DAY_S:
        why = "With the CA every certificate of the cluster ends."
        saw = f"the CA ends in {span(left_s)}" if left_s > 0 else f"the CA ended {span(-left_s)} ago"
        finding = error if left_s <= 0 else warning
        return finding(
            "certificates.ca", saw, why, "Make a new CA on the controller and have all hosts and users join again."
        )
    return ok("certificates.ca", f"ends in {span(left_s)}")


def span(seconds: float) -> str:
    """Such as ``3 days``, ``5 h``, ``20 s``."""
    for unit_s, word in ((2 * DAY_S, "days"), (7200.0, "h"), (120.0, "min")):
        if seconds >= unit_s:
            return f"{seconds // {'days': DAY_S, 'h': 3600.0, 'min': 60.0}[word]:.0f} {word}"
    return f"{seconds:.0f} s"
