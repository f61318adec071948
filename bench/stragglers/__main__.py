"""``python -m bench.stragglers [RUNS]``: the tables of docs/evidence/stragglers.md, by seeds that none was tuned on.

``recorded FILE`` replays a file of mini-batch times instead; ``real [NAME ...]`` makes gangs of real processes slow,
``replay FOLDER [RUNS]`` replays what that recorded, and ``drawn [GANGS [FIRST]]`` makes real gangs as seeds have them.
"""

import sys
from pathlib import Path

from bench.stragglers import drawn, real, recorded, replayed, simulated

match sys.argv[1:]:
    case ["recorded", file]:
        print(recorded.table(Path(file)))
    case ["real", *words]:
        real.main(words)
    case ["drawn", *numbers]:
        drawn.main(*map(int, numbers))
    case ["replay", folder, *runs]:
        print(replayed.table(Path(folder), int(runs[0] if runs else 100)))
    case words:
        print(simulated.table(range(simulated.TUNED, simulated.TUNED + int(words[0] if words else 10))))
