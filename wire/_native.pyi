def walk_records(
    buffer: bytes | bytearray | memoryview, start: int, end: int, count: int, /
) -> tuple[int, int, int, bool, bool]: ...
def walk_whole_records(
    buffer: bytes | bytearray | memoryview,
    start: int,
    end: int,
    count: int,
    walked: tuple[int, int, int, int, int, bool, bool],
    /,
) -> tuple[int, int, int, int, int, bool, bool]: ...
def walk_stored_records(
    codec: int, data: bytes | bytearray | memoryview, limit: int, count: int, memory: memoryview, /
) -> tuple[int, tuple[int, int, int, bool, bool] | None]: ...
def crc32c(
    data: bytes | bytearray | memoryview, value: int = 0, /
) -> int: ...  # where the processor has the instruction
def has_gzip_header(data: bytes | bytearray | memoryview, start: int, /) -> bool: ...
