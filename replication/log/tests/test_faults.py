"""Every errno has one meaning."""

import errno

import pytest

from ottla.replication.log.faults import Fault, classify


@pytest.mark.parametrize(
    ("number", "fault"),
    [
        (errno.EINTR, Fault.TRANSIENT),
        (errno.EMFILE, Fault.TRANSIENT),
        (errno.ENFILE, Fault.TRANSIENT),
        (errno.ENOMEM, Fault.TRANSIENT),
        (errno.ENOSPC, Fault.FULL),
        (errno.EDQUOT, Fault.FULL),
        (errno.EFBIG, Fault.FULL),
        (errno.EMLINK, Fault.FULL),
        (errno.ENAMETOOLONG, Fault.FULL),
        (errno.EIO, Fault.BROKEN),
        (errno.EROFS, Fault.BROKEN),
        (errno.ENOENT, Fault.BROKEN),
    ],
)
def test_errno_is_classified(number, fault):
    assert classify(OSError(number, "what happened")) is fault


def test_an_error_without_errno_counts_as_a_broken_disk():
    assert classify(OSError("no number")) is Fault.BROKEN
