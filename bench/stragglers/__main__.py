"""``python -m bench.stragglers [RUNS]``: the tables of docs/evidence/stragglers.md, by seeds that none was tuned on.

``recorded FILE`` replays a file of mini-batch times instead.
"""

import sys
from pathlib import Path

from bench.stragglers import recorded, simulated

if sys.argv[1:2] == ["recorded"]:
    print(recorded.table(Path(sys.argv[2])))
else:
    print(simulated.table(range(simulated.TUNED, simulated.TUNED + int(sys.argv[1] if sys.argv[1:] else 10))))
