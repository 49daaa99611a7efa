"""Stands in for kafka-python's `test/service.py`, which its source distribution leaves out.

Its fixtures start brokers through SpawnedService and talk to a running one through ExternalService. Only the latter is
ever wanted here: the broker under test is started by our own fixture.
"""


class ExternalService:
    """A broker that somebody else runs."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port

    def open(self) -> None:
        pass

    def close(self) -> None:
        pass

    def dump_logs(self) -> None:
        pass

    def wait_for(self, pattern: str, timeout: float = 30) -> bool:
        return True


class SpawnedService:
    """Imported by the suite by name, but a test that would start a broker of its own is not in our list."""

    def __init__(self, args: list[str], env: dict[str, str]) -> None:
        raise RuntimeError("this run uses one external broker")
