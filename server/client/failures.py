"""What ends a command that speaks to a cluster: a text for stderr, which says what to do."""

from __future__ import annotations


class AskingFailed(Exception):
    """The cluster did not answer, or answered no; exit code 1."""


class WrongUse(Exception):
    """What was asked for makes no sense, whatever the cluster is; exit code 2."""


class HungUp(AskingFailed):
    """A connection that had been made is gone, or gave no answer in time. Another broker may still answer."""


class NoAnswer(HungUp):
    """The other end is there and says nothing."""
