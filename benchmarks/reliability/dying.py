"""How long a process that was killed still holds the lock of its run: the system gives its memory back before it closes its files.

python benchmarks/reliability/dying.py [--megabytes 1500] [--times 8]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from storing import store, stored

from smallvit.runs.ownership import is_owned

HOLDER = """
import sys, time
from pathlib import Path
from smallvit.runs.ownership import sole_owner
much = bytearray(int(sys.argv[2]) << 20)
much[::4096] = bytes(len(much[::4096]))
with sole_owner(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(100)
"""


def seconds_held(place: Path, megabytes: int) -> float:
    """After the kill; 0 where it is free at the first look."""
    words = [sys.executable, "-c", HOLDER, str(place), str(megabytes)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout and holder.stdout.readline() == "held\n"
        holder.kill()
        began, last = time.monotonic(), 0.0
        while is_owned(place):
            time.sleep(0.005)
            last = time.monotonic() - began
    return round(last, 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1500)
    parser.add_argument("--times", type=int, default=8)
    asked = parser.parse_args()
    for _ in range(asked.times):
        with tempfile.TemporaryDirectory() as place:
            seconds = seconds_held(Path(place), asked.megabytes)
        held = stored("dying").get("held", {})
        held[str(asked.megabytes)] = [*held.get(str(asked.megabytes), []), seconds]
        store("dying", {"held": held}, "python benchmarks/reliability/dying.py --megabytes MEGABYTES")
        print(asked.megabytes, "MB:", seconds, "s", flush=True)


if __name__ == "__main__":
    main()
