"""The `ottla` command, and `python -m ottla`: the same.

A start may be ended by a signal at any moment, also while Python still loads modules: nothing has been touched then, so the
process ends at once and cleanly. Later `server/launch/signals.py` takes the signals.
"""

import os
import signal
import sys

LONG_RUNNING = ("start", "cluster")
ASKING = ("status", "--status", "start-broker")  # a cluster that runs: what is interrupted then has come to nothing


def main() -> int:
    """Run the command that was given; returns the exit code."""
    if len(sys.argv) > 1 and sys.argv[1] in LONG_RUNNING and not set(ASKING) & set(sys.argv[2:]):
        for number in (signal.SIGTERM, signal.SIGUSR2):  # the latter if all brokers stop together
            signal.signal(number, _end)
        # Whoever runs in the background of a shell may not be meant by its Ctrl-C: such a setting is left alone.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _end)
    from ottla.server.standard_streams import set_up_streams

    set_up_streams()
    from ottla.server.cli.cli import main as run

    return run()


def _end(number: int, frame: object) -> None:
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
