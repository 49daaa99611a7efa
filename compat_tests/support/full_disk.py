"""Workers of which number 1 has a full disk while a file exists: `python -m compat_tests.support.full_disk FILE start ...`."""

import errno
import os
import sys
from typing import Any
from unittest import mock

BELOW = "/workers/1/"


def main() -> int:
    from ottla.replication.log.names import LOG_SUFFIX
    from ottla.replication.log.segment import Segment
    from ottla.server.commands import cli

    flag = sys.argv.pop(1)
    append = Segment.append

    def full(segment: Segment, *given: Any, **named: Any) -> Any:
        if os.path.exists(flag) and BELOW in segment.path(LOG_SUFFIX):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return append(segment, *given, **named)

    with mock.patch.object(Segment, "append", full):
        return cli.main()


if __name__ == "__main__":
    sys.exit(main())
