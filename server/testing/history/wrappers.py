"""Parts of producers and consumers of other libraries that note what they do."""

from collections.abc import Callable
from typing import Any


class Wrapped:
    """A client with all methods that it has; those of a subclass come first."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def __repr__(self) -> str:
        return f"<taken down: {self._client!r}>"


def setting(client: Any, name: str, private: str) -> Any:
    """Return a setting of kafka-python's `config`, or aiokafka's private attribute; None if there is neither."""
    config = getattr(client, "config", None)
    return config.get(name) if isinstance(config, dict) else getattr(client, private, None)


def as_bytes(value: Any, serialize: Callable[[Any], Any] | None = None) -> bytes | None:
    """Return the bytes of a value: serialized ones, or a text that stands for any other object."""
    if serialize is not None and value is not None:
        value = serialize(value)
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else repr(value).encode()


def offset_of(value: Any) -> int:
    """Return the offset in an OffsetAndMetadata, a tuple or a number."""
    if isinstance(value, tuple):
        return int(value[0])
    return int(getattr(value, "offset", value))
