"""CRC-32C by the native module and by the package, which agree on any buffer."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.wire import checksum

FUNCTIONS = [pytest.param(checksum.crc32c, id="in use"), pytest.param(checksum._of_package(), id="package")]
# Where the native module sums three stretches at once, and one byte to each side.
LENGTHS = [
    each + beside
    for each in (0, 8, 3 * 256, 3 * 256 + 8, 3 * 8192, 3 * 8192 + 3 * 256)
    for beside in (-1, 0, 1)
    if each + beside >= 0
]


def by_bits(data: bytes, value: int = 0) -> int:
    """As it is defined."""
    value ^= 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


@pytest.mark.parametrize("crc32c", FUNCTIONS)
def test_it_is_crc_32c(crc32c):
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(memoryview(b"56789"), crc32c(bytearray(b"1234"))) == 0xE3069283
    assert crc32c(b"") == 0 and crc32c(b"", 7) == 7


@pytest.mark.parametrize("crc32c", FUNCTIONS)
@pytest.mark.parametrize("length", LENGTHS)
def test_lengths_at_which_it_is_done_in_another_way(crc32c, length):
    data = bytes((index * 131 + (index >> 8) * 17) & 0xFF for index in range(length))
    assert crc32c(memoryview(b"\xff" + data)[1:], 0xDEADBEEF) == by_bits(data, 0xDEADBEEF)


@given(st.binary(max_size=2000), st.integers(0, 2**32 - 1), st.integers(0, 40), st.integers(0, 20))
@example(b"", 0, 20, 3)
def test_the_two_agree_on_any_buffer(data, value, times, start):
    data = data * times
    view = memoryview(bytearray(data))[start:]
    assert checksum.crc32c(view, value) == checksum._of_package()(view, value)
    whole = checksum.crc32c(data[:start] + data[start:])
    assert whole == checksum.crc32c(data[start:], checksum.crc32c(data[:start]))


def test_a_package_that_somebody_has_installed_comes_before_the_one_that_is_always_there(monkeypatch):
    monkeypatch.setitem(sys.modules, "google_crc32c", SimpleNamespace(extend=lambda value, data: [value, data]))
    monkeypatch.setitem(sys.modules, "crc32c", None)
    assert checksum._of_package()(memoryview(b"12"), 3) == [3, b"12"]
    monkeypatch.setitem(sys.modules, "crc32c", SimpleNamespace(crc32c=by_bits))
    assert checksum._of_package() is by_bits


def test_what_is_no_buffer_is_refused():
    for wrong in ((), (1,), ("text",), (b"", "value")):
        with pytest.raises(TypeError):
            checksum.crc32c(*wrong)


def test_where_the_native_module_has_it_no_package_is_loaded():
    if checksum._compiled is None:
        pytest.skip("compiled for another processor, or not at all")
    script = "import ottla.wire.checksum, sys; print([each for each in sys.modules if 'crc32c' in each])"
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "[]"


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"", 275646681),
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_that_of_kafkas_clients(key, hashed):
    """Values of Kafka's UtilsTest."""
    assert checksum.murmur2(key) == hashed & 0xFFFFFFFF
