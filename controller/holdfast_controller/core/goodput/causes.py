"""Causes of time in the ledger, and who pays for each."""

from __future__ import annotations

from holdfast_controller.core.model.goodput import Payer
from holdfast_controller.core.model.recovery import EndReason

WORK = "WORK"
"""The job's own work: training, saving, evaluating."""
FIRST_START = "FIRST_START"
FINISHED = "FINISHED"
"""The job, or its primary worker, has completed."""
CANCELLED = "CANCELLED"
EXPIRED = "EXPIRED"
FAILED = "FAILED"
"""The job failed for a reason that is none of a rank's exit."""
DECLARED_IDLE = "DECLARED_IDLE"
SILENT_HOST = "SILENT_HOST"
"""Nothing is heard from the host; once it is, or is given up, the time is what it was."""
OWN_SPARE = "OWN_SPARE"
"""The job asked for a spare of its own, which waits for a worker that has to leave its host."""
OLDER_SAVE = "OLDER_SAVE"
"""Saved work that was given up, since the program resumed from an older save."""

PAYERS: dict[str, Payer] = {
    WORK: Payer.JOB,
    FIRST_START: Payer.JOB,
    FINISHED: Payer.JOB,
    CANCELLED: Payer.USER,
    EXPIRED: Payer.PROGRAM,
    FAILED: Payer.UNKNOWN,
    DECLARED_IDLE: Payer.USER,
    OWN_SPARE: Payer.USER,
    OLDER_SAVE: Payer.USER,
    SILENT_HOST: Payer.UNKNOWN,
    EndReason.COMPLETED.value: Payer.JOB,
    EndReason.NONZERO_EXIT.value: Payer.PROGRAM,
    EndReason.SIGNALED.value: Payer.PROGRAM,
    EndReason.OUT_OF_MEMORY.value: Payer.PROGRAM,
    EndReason.CANNOT_START.value: Payer.PROGRAM,
    EndReason.STOPPED.value: Payer.UNKNOWN,
    EndReason.HANG_KILLED.value: Payer.PROGRAM,
    EndReason.LOST_SHIM_DIED.value: Payer.UNKNOWN,
    EndReason.LOST_REBOOT.value: Payer.HARDWARE,
    EndReason.LOST_HOST.value: Payer.HARDWARE,
    EndReason.NOT_STARTED.value: Payer.HOLDFAST,
    EndReason.LOST_RECORD.value: Payer.UNKNOWN,
    EndReason.PORT_TAKEN.value: Payer.HOLDFAST,
    EndReason.HANG.value: Payer.PROGRAM,
    EndReason.CUT_OFF.value: Payer.NETWORK,
    EndReason.HARDWARE_FAULT.value: Payer.HARDWARE,
    EndReason.HOST_UNFIT.value: Payer.HARDWARE,
    EndReason.RESTART_REQUESTED.value: Payer.USER,
    EndReason.DRAINED.value: Payer.OPERATOR,
    EndReason.HOST_SHUTDOWN.value: Payer.OPERATOR,
    EndReason.PREEMPTED.value: Payer.SCHEDULER,
    EndReason.PAUSED.value: Payer.USER,
    EndReason.CONTROLLER_RESTORED.value: Payer.OPERATOR,
}
"""By cause, as the ledger stores it."""


def payer_of(cause: str) -> Payer:
    """The payer of a stored cause; unknown for one of a newer release."""
    return PAYERS.get(cause, Payer.UNKNOWN)
