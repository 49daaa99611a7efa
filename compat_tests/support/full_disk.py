"""Workers that have no room while a file exists: `python -m compat_tests.support.full_disk FILE start ...`.

FILE: for the logs of worker 1.  FILE.journal: for another file of the coordination tree, which each of its openings writes.
"""

import errno
import os
import sys
from typing import Any
from unittest import mock

BELOW = "/workers/1/"


def main() -> int:
    from ottla.replication.log.names import LOG_SUFFIX
    from ottla.replication.log.segment import Segment
    from ottla.replication.log.storage import OsStorage
    from ottla.server.cli import cli
    from ottla.server.cluster.coordination.journal import TEMPORARY_NAME

    flag = sys.argv.pop(1)
    append, open_file = Segment.append, OsStorage.open

    def full(segment: Segment, *given: Any, **named: Any) -> Any:
        if os.path.exists(flag) and BELOW in segment.path(LOG_SUFFIX):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return append(segment, *given, **named)

    def full_for_journal(storage: OsStorage, path: str, **named: Any) -> Any:
        if os.path.exists(f"{flag}.journal") and path.endswith(TEMPORARY_NAME):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return open_file(storage, path, **named)

    with mock.patch.object(Segment, "append", full), mock.patch.object(OsStorage, "open", full_for_journal):
        return cli.main()


if __name__ == "__main__":
    sys.exit(main())
