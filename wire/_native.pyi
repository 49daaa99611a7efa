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
