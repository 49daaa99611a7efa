"""Bodies of requests are taken apart as json.loads would, within limits and in steps."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.rest import bodies
from ottla.server.rest.bodies import RecordsBody, ValueCutter, number, parse_object, parse_records, refuse_unknown
from ottla.server.rest.errors import RestError

SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=20)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def taken(body: bytes) -> RecordsBody:
    steps = parse_records(body)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def long(content) -> bytes:
    """A body that is too long to be parsed at once."""
    return json.dumps(content | {"filler": "x" * bodies.SHORT_BYTES}).encode()


@given(st.lists(VALUES, min_size=1, max_size=6), st.dictionaries(st.text(max_size=5), VALUES, max_size=3))
def test_long_bodies_have_the_records_of_json(records, others):
    others.pop("records", None)
    content = {**others, "records": records}
    found = taken(long(content))
    assert found.records == records
    assert {name: value for name, value in found.others.items() if name != "filler"} == others


@given(st.text(alphabet='{}[]",:\\ "records1', max_size=60))
def test_no_text_is_read_otherwise_than_by_json(text):
    body = f"{text}{' ' * bodies.SHORT_BYTES}".encode()
    try:
        wanted = json.loads(body)
    except ValueError:
        wanted = None
    try:
        found = taken(body)
    except RestError as error:
        # Only where the whole is no object with records.
        records = wanted.get("records") if isinstance(wanted, dict) else None
        assert not isinstance(records, list) or not records or error.code == 400
        return
    assert wanted is not None
    assert found.records == wanted["records"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", 422),
        (b"{}", 422),
        (b'{"records": []}', 422),
        (b'{"records": null}', 422),
        (b'{"records": {}}', 400),
        (b"[]", 400),
        (b'{"records": [1}', 400),
        (b'{"records": [NaN]}', 400),
        (b"\xff\xfe", 400),
        (long({"records": []}), 422),
        (long({}), 422),
        (b'{"records": [' + b"\xff" * bodies.SHORT_BYTES, 400),
        (b'{"records": [' + b"[" * 100_000 + b"]" * 100_000 + b"]}", 400),
        (b'{"records": [[' + b"[]," * (bodies.VALUE_TOKENS_MAX // 2) + b"[]]]}", 400),
        (b'{"records": [1 2' + b" " * bodies.SHORT_BYTES + b"]}", 400),
    ],
)
def test_what_is_no_body_is_refused(body, code):
    with pytest.raises(RestError) as refused:
        taken(body)
    assert refused.value.code == code


def test_a_long_body_is_parsed_in_steps():
    steps = parse_records(json.dumps({"records": [{"value": index} for index in range(5_000)]}).encode())
    assert sum(1 for _ in steps) > 5_000


def test_an_endless_string_is_read_once() -> None:
    """From each of its quotation marks on it would be another one, which takes hours for these."""
    body = b'{"records": ["' + b'\\"' * 2_000_000
    with pytest.raises(RestError):
        taken(body)


def test_numbers_and_members_are_checked():
    assert number({"a": 5}, "a", 32) == 5
    assert number({}, "a", 32) is None
    for found, code in (({"a": -1}, 422), ({"a": 1 << 31}, 400), ({"a": True}, 400), ({"a": "1"}, 400)):
        with pytest.raises(RestError) as refused:
            number(found, "a", 32)
        assert refused.value.code == code
    with pytest.raises(RestError):
        number({}, "a", 32, is_needed=True)
    with pytest.raises(RestError):
        refuse_unknown({"a": 1}, frozenset({"b"}))
    assert parse_object(b"") == {}


def cut(pieces, limit: int = 1 << 20):
    cutter = ValueCutter(limit)
    found = []
    for piece in pieces:
        cutter.feed(piece)
        found += [json.loads(each) for each in cutter.values() if each is not None]
    cutter.end()
    return found


@given(
    st.lists(st.dictionaries(st.text(max_size=8), VALUES, max_size=3), max_size=5),
    st.lists(st.integers(1, 40), min_size=1, max_size=20),
    st.sampled_from(["", " ", "\r\n"]),
    st.booleans(),
)
def test_streams_are_cut_wherever_their_pieces_end(objects, sizes, space, escapes):
    data = space.join(json.dumps(each, ensure_ascii=escapes) for each in objects).encode("utf-8", "surrogatepass")
    pieces, position = [], 0
    for size in sizes:
        pieces.append(data[position : position + size])
        position += size
    pieces.append(data[position:])
    assert cut(pieces) == objects


@given(st.binary(max_size=80), st.integers(1, 80))
def test_any_bytes_are_cut_or_refused(data, middle):
    try:
        cut([data[:middle], data[middle:]])
    except (RestError, ValueError):  # ValueError: what was cut is no JSON, which whoever parses it says
        return
    assert not data.strip() or data.strip().startswith(b"{")


@pytest.mark.parametrize(
    "pieces",
    [[b"1"], [b"[]"], [b'"a"'], [b'{"a": '], [b"{}]"], [b"{} {} x"], [b"{" * 500], [b'{"a":[' + b"0," * 10 + b"["]],
)
def test_what_is_no_sequence_of_objects_is_refused(pieces):
    with pytest.raises(RestError):
        cut(pieces)


def test_a_value_that_does_not_end_is_refused_before_it_takes_much_memory():
    with pytest.raises(RestError):
        cut([b'{"a": "', *[b"x" * 1000] * 50], limit=10_000)
