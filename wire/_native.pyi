def continue_walk(
    buffer: bytes | bytearray | memoryview,
    start: int,
    end: int,
    count: int,
    walked: tuple[int, int, int, int, int, bool, bool],
    /,
) -> tuple[int, int, int, int, int, bool, bool]: ...
def crc32c(
    data: bytes | bytearray | memoryview, value: int = 0, /
) -> int: ...  # where the processor has the instruction
