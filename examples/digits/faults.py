"""Faults on order, so that a demo has something to recover from."""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """One rank's end at one step. `rank` None: no fault."""

    rank: int | None
    step: int | None
    signal: int | None = None

    def strike(self, rank: int, step: int) -> None:
        """Does nothing but at the fault's own rank and step: there it ends this process as a real fault would."""
        if (rank, step) != (self.rank, self.step):
            return
        if self.signal is not None:
            print(f"rank={rank} step={step} fault: signal {self.signal} to itself", flush=True)
            os.kill(os.getpid(), self.signal)
        raise RuntimeError(f"rank {rank} was told to crash at step {step}")


NO_FAULT = Fault(None, None)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that order a fault."""
    group = parser.add_argument_group("faults, in the first generation only")
    group.add_argument("--crash-rank", type=int, metavar="R", help="this rank ends in a backward pass")
    group.add_argument("--crash-step", type=int, metavar="S", help="at this step, counted from 1")
    group.add_argument("--crash-signal", type=int, metavar="N", help="by this signal instead of an exception")


def ordered(parser: argparse.ArgumentParser, options: argparse.Namespace, environ: Mapping[str, str]) -> Fault:
    """The fault the options ask for, none once the job was restarted. Ends with usage (2) when they don't agree."""
    if options.crash_rank is None and options.crash_step is None and options.crash_signal is None:
        return NO_FAULT
    if options.crash_rank is None or options.crash_step is None:
        parser.error("a crash needs both --crash-rank and --crash-step")
    if options.crash_signal is not None and options.crash_signal not in set(signal.Signals):
        parser.error(f"--crash-signal: {options.crash_signal} is not a signal")
    restarted = (
        int(environ.get("HOLDFAST_RESTART_COUNT") or 0) > 0 or int(environ.get("HOLDFAST_GENERATION") or 1) > 1
    )
    return NO_FAULT if restarted else Fault(options.crash_rank, options.crash_step, options.crash_signal)
