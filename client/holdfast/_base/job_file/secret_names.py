"""Variables whose names say that their values are secret: these are shown to the owner of a job, who asks, alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._base.secret import HIDDEN

if TYPE_CHECKING:
    from holdfast.v1 import spec_pb2

_ANYWHERE = ("SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL")
_AT_THE_END = ("APIKEY", "AUTHTOKEN")
_LAST_WORDS = frozenset({"KEY", "TOKEN"})
_LAST_OF_SEVERAL = frozenset({"PWD", "PASS", "PAT", "AUTH", "DSN"})


def looks_secret(name: str) -> bool:
    """Whether a variable of this name is likely to hold a password, a token or a key."""
    name = name.upper()
    first, underscore, last = name.rpartition("_")
    return (
        any(word in name for word in _ANYWHERE)
        or name.endswith(_AT_THE_END)
        or last in _LAST_WORDS
        or (bool(first and underscore) and last in _LAST_OF_SEVERAL)
    )


def hide_secrets(spec: spec_pb2.CustomJobSpec) -> None:
    """Replace the values of such variables in every pool."""
    for pool in spec.worker_pool_specs:
        kind = pool.WhichOneof("task")
        for variable in getattr(pool, kind).env if kind is not None else ():
            if variable.value and looks_secret(variable.name):
                variable.value = HIDDEN
