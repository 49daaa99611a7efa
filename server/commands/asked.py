"""How a command ends that speaks to a cluster: failures and Ctrl-C end it without a traceback."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from ottla.server.client.cluster import Cluster
from ottla.server.client.escaping import shown_text
from ottla.server.client.failures import AskingFailed, WrongUse
from ottla.server.client.options import reach
from ottla.server.commands.outcome import EXIT_FAILED, EXIT_USAGE, fail

EXIT_INTERRUPTED = 130
"""What a shell says of a command that Ctrl-C has ended."""


def run_asking(command: Callable[[Cluster], int], options: argparse.Namespace) -> int:
    """Reach the cluster, run a command on it, and return the exit code."""
    try:
        cluster = reach(options)
        try:
            return command(cluster)
        finally:
            cluster.close()
    # A broker says what it likes. It is one line here, and no terminal obeys it.
    except WrongUse as error:
        return fail(shown_text(str(error)), EXIT_USAGE)
    except AskingFailed as error:
        return fail(shown_text(str(error)), EXIT_FAILED)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except OSError as error:
        return fail(str(error), EXIT_FAILED)
