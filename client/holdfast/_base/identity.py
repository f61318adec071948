"""Identities: a URI in each certificate, ``holdfast://CLUSTER/{controller|host|user}/NAME``, which holds for a time."""

from __future__ import annotations

import enum
import re

from holdfast._base.dataclass import dataclass
from holdfast.errors import Unauthenticated

BACKDATED_S = 300.0
"""Certificates start this long before they were issued, for parties whose clocks are behind."""
RENEW_AT = 2 / 3
"""The share of a certificate's life after which it is renewed."""
NAME_RULE = "letters, digits, and . _ @ -; at most 63"
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,63}")
_URI = re.compile(r"holdfast://([A-Za-z0-9._-]{1,63})/(controller|host|user)/([A-Za-z0-9._@-]{1,63})")


class Kind(enum.Enum):
    """Kind of party: controller, host or user."""

    CONTROLLER = "controller"
    HOST = "host"
    USER = "user"


@dataclass(frozen=True, slots=True)
class Identity:
    """A party of one cluster."""

    cluster: str
    kind: Kind
    name: str

    def __str__(self) -> str:
        return f"holdfast://{self.cluster}/{self.kind.value}/{self.name}"


@dataclass(frozen=True, slots=True)
class Credential:
    """A party that has shown who it is, by a certificate or a sign-in, and for how long that holds; epoch seconds."""

    identity: Identity
    issued_at: float
    ends_at: float

    @property
    def party(self) -> str:
        """Its kind and name, such as ``user/ann``."""
        return f"{self.identity.kind.value}/{self.identity.name}"

    @property
    def begins_at(self) -> float:
        """Time from which its certificate is valid."""
        return self.issued_at - BACKDATED_S

    @property
    def renew_at(self) -> float:
        """Time to renew its certificate."""
        return self.issued_at + RENEW_AT * (self.ends_at - self.issued_at)


def is_name(name: str) -> bool:
    """Whether a party may be called so (``NAME_RULE``)."""
    return _NAME.fullmatch(name) is not None


def parse(uri: str) -> Identity:
    """The identity that a URI names. Raises ``Unauthenticated`` for anything else."""
    found = _URI.fullmatch(uri)
    if found is None:
        raise Unauthenticated(f"{uri!r} is no identity of a cluster (holdfast://CLUSTER/KIND/NAME).")
    return Identity(found[1], Kind(found[2]), found[3])


def of_uris(uris: list[str]) -> Identity:
    """The one identity among a certificate's URIs. Raises ``Unauthenticated`` for none or several."""
    ours = [uri for uri in uris if uri.startswith("holdfast://")]
    if len(ours) != 1:
        raise Unauthenticated(f"The certificate carries {len(ours)} Holdfast identities; it must carry one.")
    return parse(ours[0])
