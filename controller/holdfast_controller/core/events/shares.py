"""Events of fair share; see ``events`` and ``model.shares``."""

from __future__ import annotations

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.model.accounts.quota import Quota
from holdfast_controller.core.model.clock import Wall


@dataclass(frozen=True, kw_only=True)
class ShareSet:
    """A project got a weight, in place of an earlier one; None: it has none of its own any more."""

    at: Wall
    project: str
    weight: float | None
    by: str


@dataclass(frozen=True, kw_only=True)
class GuaranteeSet:
    """A project is guaranteed so many GPUs, in place of what it was before; 0: none."""

    at: Wall
    project: str
    gpus: int
    by: str


@dataclass(frozen=True, kw_only=True)
class QuotaSet:
    """A project or user got limits, in place of all that were set by command before; None: there are none any more."""

    at: Wall
    holder: str
    """As in ``Quotas``."""
    quota: Quota | None
    by: str


@dataclass(frozen=True, kw_only=True)
class HalfLifeSet:
    """From now on what projects have used counts half after so many seconds."""

    at: Wall
    half_life_s: float


ShareEvent = ShareSet | GuaranteeSet | QuotaSet | HalfLifeSet
