"""Variables whose names say that their values are secret: these are shown to the owner of a job, who asks, alone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from holdfast._base.secret import HIDDEN

if TYPE_CHECKING:
    from holdfast.v1 import spec_pb2

_SECRET = re.compile(
    r"(SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL"
    r"|(?:^|_)(?:[A-Z0-9]*API)?KEY$|(?:^|_)(?:[A-Z0-9]*AUTH)?TOKEN$|_(?:PWD|PASS|PAT|AUTH|DSN)$)"
)


def looks_secret(name: str) -> bool:
    """Whether a variable of this name is likely to hold a password, a token or a key."""
    return _SECRET.search(name.upper()) is not None


def hide_secrets(spec: spec_pb2.CustomJobSpec) -> None:
    """Replace the values of such variables in every pool."""
    for pool in spec.worker_pool_specs:
        kind = pool.WhichOneof("task")
        for variable in getattr(pool, kind).env if kind is not None else ():
            if variable.value and looks_secret(variable.name):
                variable.value = HIDDEN
