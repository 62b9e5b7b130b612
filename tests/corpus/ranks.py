"""Start a program on several ranks of this machine: ranks.py N PROGRAM ARGUMENTS.

torchrun without the import of torch. Ends with the first status that is not 0; if a rank fails, the
others are given ten seconds to see it.
"""

import os
import socket
import subprocess
import sys
import time

PATIENCE = 10.0


def main():
    ranks, command = int(sys.argv[1]), [sys.executable, *sys.argv[2:]]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    running = [
        subprocess.Popen(
            command, env={**os.environ, **shared, "RANK": str(r), "LOCAL_RANK": str(r)}
        )
        for r in range(ranks)
    ]
    first, deadline = 0, None
    while any(process.poll() is None for process in running):
        failed = [process.returncode for process in running if process.poll()]
        if failed and deadline is None:
            first, deadline = failed[0], time.monotonic() + PATIENCE
        if deadline is not None and time.monotonic() > deadline:
            for process in running:
                process.kill()
        time.sleep(0.05)
    return first or next((p.returncode for p in running if p.returncode), 0)


if __name__ == "__main__":
    sys.exit(min(255, abs(main())))
