"""How tests are named, wherever they stand."""


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """A test is named after its argument and a number where the value is bytes.

    Bytes may hold a time or a chance, as gzip's header does. Two workers of one run must call a test the same.
    """
    return argname if isinstance(val, (bytes, bytearray)) else None
