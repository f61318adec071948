"""Says hello every 50 ms. ``settings.mood`` in its folder makes it misbehave, ``worker`` start a worker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def main() -> None:
    home = Path(sys.argv[2]).parent
    mood = (home / "mood").read_text() if (home / "mood").exists() else ""
    if mood == "fail":
        print("first line\nthis agent is told to fail", flush=True)
        sys.exit(3)
    if mood == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if mood == "helper":
        subprocess.Popen(["sleep", "600"], start_new_session=True)
    while True:
        if mood != "mute":
            (home / "hello.new").write_text(str(os.getpid()))
            (home / "hello.new").replace(home / "hello")  # whole, whenever it is read
        time.sleep(0.05)


if __name__ == "__main__":
    main()
