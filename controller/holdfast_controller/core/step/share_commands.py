"""Commands about fair share; see ``commands``."""

from __future__ import annotations

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.model.accounts.quota import Quota


@dataclass(frozen=True)
class ShareAsked:
    """An admin sets a project's weight; None clears it."""

    token: int
    by: str
    project: str
    weight: float | None


@dataclass(frozen=True)
class GuaranteeAsked:
    """An admin guarantees a project so many GPUs; 0 takes the guarantee away."""

    token: int
    by: str
    project: str
    gpus: int


@dataclass(frozen=True)
class QuotaAsked:
    """An admin sets limits of a project or a user; None leaves one as it is, and ``clear`` takes back the others."""

    token: int
    by: str
    holder: str
    limits: Quota
    clear: bool = False


ShareCommand = ShareAsked | GuaranteeAsked | QuotaAsked
