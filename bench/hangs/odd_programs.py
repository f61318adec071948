"""``python -m bench.hangs.odd_programs NAME`` is one rank of an odd program; ``odd.py`` plays them."""

from __future__ import annotations

import sys

from bench.hangs.gang import RANK, Gang
from bench.hangs.odd_healthy import HEALTHY
from bench.hangs.odd_hung import HUNG, say

if __name__ == "__main__":
    gang = Gang()
    gang.greet()
    say(f"rank {RANK} is ready")
    (HUNG | HEALTHY)[sys.argv[1]](gang)
