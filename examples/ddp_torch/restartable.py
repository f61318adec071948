"""The training of train.py, which goes on in its own processes when its gang is restarted in place.

With ``faultTolerance: {warm: {mode: IN_PROCESS}}`` in the job's file; anywhere else it is the same as train.py.
"""

from __future__ import annotations

import train

import holdfast

if __name__ == "__main__":
    holdfast.restartable(train.main)()
