"""Kafka's names of the levels of log lines, and Python's numbers of them."""

import logging

LEVELS = {
    "TRACE": logging.DEBUG // 2,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def level_name(level: int) -> str:
    """Kafka's name of a Python level: the most talkative one that leaves out nothing of it."""
    return next((name for name, number in reversed(LEVELS.items()) if level >= number), "TRACE")
