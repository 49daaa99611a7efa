"""The C walk and its Python twin give the same answers and the same errors."""

import os
import subprocess
import sys
import tracemalloc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.wire.buffers import COPIED_BYTES_MAX
from ottla.wire.record_encoding import encode_record, encode_varint
from ottla.wire.record_walk import NOTHING_WALKED, continue_walk_python, walk_records
from ottla.wire.tests.effort import examples

native = pytest.importorskip("ottla.wire._native", reason="installed without a compiler")
if not hasattr(native, "continue_walk"):
    pytest.skip("built before it had the walk", allow_module_level=True)

optional_bytes = st.none() | st.binary(max_size=20) | st.integers(60, 200).map(bytes)
headers = st.lists(st.tuples(st.binary(max_size=5), optional_bytes), max_size=3)
encoded_records = st.builds(
    encode_record,
    st.integers(-(2**31), 2**31 - 1) | st.integers(0, 3),
    st.integers(-(2**63), 2**63 - 1) | st.integers(-100, 100),
    optional_bytes,
    optional_bytes,
    headers,
)
# Bytes that mean something where a varint is read.
telling_bytes = st.sampled_from([0, 1, 2, 3, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF])


def answer(walk, *arguments):
    try:
        return walk(*arguments)
    except ValueError as error:
        return str(error)


def assert_twins_agree(area, count):
    framed = b"\x02" + area + b"\x02"
    theirs = answer(native.continue_walk, framed, 1, 1 + len(area), count, NOTHING_WALKED)
    assert theirs == answer(continue_walk_python, framed, 1, 1 + len(area), count, NOTHING_WALKED)
    return answer(walk_records, framed, 1, 1 + len(area), count)


@given(st.lists(encoded_records, max_size=6))
@settings(max_examples=examples(100))
def test_twins_agree_on_valid_records(records):
    assert isinstance(assert_twins_agree(b"".join(records), len(records)), tuple)


@given(st.lists(encoded_records, max_size=4), st.integers(-1, 6))
@settings(max_examples=examples(60))
def test_twins_agree_on_wrong_counts(records, count):
    assert_twins_agree(b"".join(records), count)


@given(st.data())
@settings(max_examples=examples(200))
def test_twins_agree_on_damaged_records(data):
    records = data.draw(st.lists(encoded_records, min_size=1, max_size=4))
    area = bytearray(b"".join(records))
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(area) - 1))
        match data.draw(st.sampled_from(["replace", "insert", "delete"])):
            case "replace":
                area[position] = data.draw(telling_bytes | st.integers(0, 255))
            case "insert":
                area.insert(position, data.draw(telling_bytes))
            case "delete" if len(area) > 1:
                del area[position]
    assert_twins_agree(bytes(area), len(records))


@given(st.lists(telling_bytes, max_size=40).map(bytes) | st.binary(max_size=60), st.integers(0, 3))
@settings(max_examples=examples(300))
@example(b"\x0c\x00\x00\x00\x01\x01\x00", 1)
@example(b"\x80\x80\x80\x80\x10" + bytes(20), 1)
@example(b"\xff\xff\xff\xff\x0f" + bytes(20), 1)
def test_twins_agree_on_random_bytes(area, count):
    assert_twins_agree(area, count)


@given(st.lists(telling_bytes, max_size=30).map(bytes))
@settings(max_examples=examples(200))
def test_twins_agree_on_one_random_record_of_the_right_length(body):
    assert_twins_agree(encode_varint(len(body)) + body, 1)


@given(st.data())
@settings(max_examples=examples(200))
def test_twins_agree_on_walks_in_pieces(data):
    """The rest of each piece comes once more in front of the next one, as in `compressed_walk`."""
    records = data.draw(st.lists(encoded_records, max_size=5))
    area, count = bytearray(b"".join(records)), max(0, len(records) + data.draw(st.sampled_from([0, 0, 0, 1, -1])))
    if area and data.draw(st.booleans()):
        area[data.draw(st.integers(0, len(area) - 1))] = data.draw(telling_bytes | st.integers(0, 255))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(area)), max_size=4)))
    walked, position = NOTHING_WALKED, 0
    for end in (*cuts, len(area)):
        arguments = (bytes(area), position, end, count, walked)
        theirs = answer(native.continue_walk, *arguments)
        assert theirs == answer(continue_walk_python, *arguments)
        if isinstance(theirs, str):
            assert isinstance(answer(walk_records, bytes(area), 0, len(area), count), str)
            return
        walked, position = theirs, theirs[1]
    if walked[0] == count and position == len(area):
        assert walk_records(bytes(area), 0, len(area), count) == walked[2:]
    else:
        assert isinstance(answer(walk_records, bytes(area), 0, len(area), count), str)


@pytest.mark.parametrize("cut", [0, 1, 20])
def test_a_long_area_is_walked_where_it_lies(cut):
    """No other thread runs while megabytes are copied."""
    record = encode_record(0, 0, b"key", bytes(2 * COPIED_BYTES_MAX), [(b"header", b"value")])
    area = record + encode_record(1, 5, None, b"value", ())
    arguments = memoryview(area), 0, len(area) - cut, 2, NOTHING_WALKED
    tracemalloc.start()
    try:
        walked = answer(continue_walk_python, *arguments)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert walked == answer(native.continue_walk, *arguments)
    assert most < COPIED_BYTES_MAX


@pytest.mark.parametrize("arguments", [(-1, 3, 0), (2, 1, 0), (0, 4, 0), (0, 3, -1)])
def test_areas_outside_the_buffer_and_impossible_counts_are_refused(arguments):
    for walk in (native.continue_walk, continue_walk_python):
        with pytest.raises(ValueError, match="no such area or count"):
            walk(b"abc", *arguments, NOTHING_WALKED)
    for impossible in (arguments, (0, 3, 2**31)):
        with pytest.raises(ValueError, match="no such area or count"):
            walk_records(b"abc", *impossible)


@pytest.mark.parametrize("arguments", [(), (b"",), (b"", 0, 0), ("text", 0, 0, 0), (b"", "0", 0, 0), (b"", 0, 0, 0.5)])
def test_native_walk_refuses_wrong_arguments(arguments):
    with pytest.raises(TypeError):
        native.continue_walk(*arguments, NOTHING_WALKED)
    with pytest.raises(TypeError):
        native.continue_walk(b"", 0, 0, 0, NOTHING_WALKED[:-1])


def test_native_walk_takes_every_buffer_and_gives_it_back():
    buffer = bytearray(encode_record(0, 0, b"k", b"v"))
    for kind in (bytes(buffer), buffer, memoryview(buffer), memoryview(bytes(buffer))):
        assert walk_records(kind, 0, len(buffer), 1) == (0, 0, 0, False, True)
    with pytest.raises(ValueError):
        walk_records(buffer, 0, len(buffer), 2)
    buffer.append(0)  # BufferError if an export were left


def test_large_areas_are_walked_with_the_interpreter_lock_released():
    area = b"".join(encode_record(index, index, None, bytes(1000)) for index in range(300))
    assert assert_twins_agree(area, 300) == (0, 299, 299, True, True)
    assert assert_twins_agree(area + b"\x00", 300) == "bytes left after record 299"


@pytest.mark.parametrize(("value", "expected"), [("1", "False"), ("0", "True"), (None, "True")])
def test_the_environment_can_force_the_twin(value, expected):
    environment = {key: text for key, text in os.environ.items() if key != "OTTLA_PURE_PYTHON"}
    if value is not None:
        environment["OTTLA_PURE_PYTHON"] = value
    code = "from ottla.wire.record_walk import IS_NATIVE; print(IS_NATIVE)"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected
