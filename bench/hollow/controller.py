"""``python -m holdfast_controller`` for hosts that all have this machine's address.

One address may begin so many connections in a second, so that nobody keeps others out. A thousand real hosts have as
many addresses: here that bound is lifted, as it would not be felt there.
"""

from __future__ import annotations

import sys

from holdfast_controller import __main__ as program
from holdfast_controller.shell.calls import connection_bounds

if __name__ == "__main__":
    connection_bounds.PER_S = 1 << 30  # type: ignore[attr-defined]  # where it is used
    sys.exit(program.main())
