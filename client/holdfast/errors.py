"""Every error that Holdfast raises on purpose: one tree, each with a stable reason and what to do next.

``reason`` is for programs (it travels in ``google.rpc.ErrorInfo``), the message for people. Errors about a
field carry its path as the user wrote it, such as ``jobSpec.workerPoolSpecs[0].replicaCount``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

__all__ = [
    "ERRORS_BY_REASON",
    "AccountDenied",
    "AddressUnavailable",
    "BundleRefused",
    "ConfigError",
    "CursorExpired",
    "DeadlineExceeded",
    "Denied",
    "HoldfastError",
    "InvalidInput",
    "InvalidSpec",
    "JobFailed",
    "MissingPackages",
    "NeverFits",
    "NotFound",
    "StorageFull",
    "StoreError",
    "TooMany",
    "Unauthenticated",
    "Unavailable",
    "Violation",
    "WaitTimeout",
    "WrongState",
    "WrongVersion",
]


class HoldfastError(Exception):
    """Base of all. ``str()`` is a sentence for people."""

    reason = "INTERNAL"

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.message} {self.fix}".strip()


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing wrong with one field."""

    path: str
    problem: str
    fix: str = ""

    def __str__(self) -> str:
        text = f"{self.path}: {self.problem}" if self.path else self.problem
        return f"{text} ({self.fix})" if self.fix else text


class InvalidInput(HoldfastError):
    """The request itself is wrong; sending it again unchanged is of no use. Lists every violation."""

    reason = "INVALID_INPUT"

    def __init__(self, violations: Iterable[Violation], *, what: str = "The request") -> None:
        self.violations = tuple(violations)
        lines = "".join(f"\n  {v}" for v in self.violations)
        count = "1 problem" if len(self.violations) == 1 else f"{len(self.violations)} problems"
        super().__init__(f"{what} has {count}:{lines}")

    def __reduce__(self) -> tuple[Any, ...]:
        # For a copy, and for another process: the error is not made of its sentence, as others are.
        return _violated, (type(self), self.violations), {**vars(self), "args": self.args}


def _violated(kind: type[InvalidInput], violations: tuple[Violation, ...]) -> InvalidInput:
    return kind(violations)


class InvalidSpec(InvalidInput):
    """A job spec breaks a rule."""

    reason = "INVALID_SPEC"

    def __init__(self, violations: Iterable[Violation], *, what: str = "The job spec") -> None:
        super().__init__(violations, what=what)


class NeverFits(InvalidInput):
    """The job asks for more than all hosts together will ever have."""

    reason = "NEVER_FITS"


class AccountDenied(InvalidInput):
    """The job asks to run as an account that its submitter was not mapped to."""

    reason = "ACCOUNT_DENIED"


class NotFound(HoldfastError):
    """No such job or host, or none that the caller may see."""

    reason = "NOT_FOUND"


class WrongState(HoldfastError):
    """The thing exists, but what was asked can't be done in its present state."""

    reason = "WRONG_STATE"


class WrongVersion(HoldfastError):
    """The other side is of a version that this one doesn't work with. Says which to upgrade."""

    reason = "WRONG_VERSION"


class CursorExpired(HoldfastError):
    """The cursor is older than the history that is kept. Watch again from 0."""

    reason = "CURSOR_EXPIRED"


class Unauthenticated(HoldfastError):
    """The caller's certificate names no identity of this cluster."""

    reason = "UNAUTHENTICATED"


class Denied(HoldfastError):
    """The caller is known, but may not do this."""

    reason = "DENIED"


class Unavailable(HoldfastError):
    """The other side can't be reached or can't answer at present; trying again may help."""

    reason = "UNAVAILABLE"


class DeadlineExceeded(HoldfastError):
    """No answer came within the time allowed."""

    reason = "DEADLINE_EXCEEDED"


class WaitTimeout(HoldfastError, TimeoutError):
    """A job has not ended within the time given to ``wait``. It goes on; the message says how to wait again."""

    reason = "WAIT_TIMEOUT"


class JobFailed(HoldfastError):
    """A job did not succeed, and its result was checked. ``result`` is the ``holdfast.Result``."""

    reason = "JOB_FAILED"

    def __init__(self, message: str, *, fix: str = "", result: Any = None) -> None:
        super().__init__(message, fix=fix)
        self.result = result


class BundleRefused(HoldfastError):
    """Packaged code is not taken: its folder or its archive holds what can't be, or changed while it was read."""

    reason = "BUNDLE_REFUSED"


class StorageFull(HoldfastError):
    """There is no room for what was sent. Says what fills it."""

    reason = "STORAGE_FULL"


class TooMany(HoldfastError):
    """The caller has too much in progress at once. Says how much is allowed."""

    reason = "TOO_MANY"


class ConfigError(HoldfastError):
    """A configuration file, flag or variable is wrong. Names the file and the key."""

    reason = "CONFIG"
    exit_status = 2
    """Of a daemon that can't start for it: starting it again is of no use before the file is another one."""


class AddressUnavailable(ConfigError):
    """A port is taken, or an address or interface is not there. That may pass, so a daemon is started again."""

    exit_status = 1


class MissingPackages(HoldfastError):
    """The packages of an extra are not installed. Names them and the command that installs them."""

    reason = "MISSING_PACKAGES"


class StoreError(HoldfastError):
    """A daemon's state can't be read or written. Names the file and what to do."""

    reason = "STORE"


ERRORS_BY_REASON: dict[str, type[HoldfastError]] = {
    cls.reason: cls
    for cls in (
        InvalidInput,
        InvalidSpec,
        NeverFits,
        AccountDenied,
        NotFound,
        WrongState,
        WrongVersion,
        CursorExpired,
        Unauthenticated,
        Denied,
        Unavailable,
        DeadlineExceeded,
        BundleRefused,
        StorageFull,
        TooMany,
    )
}
