import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.registry.records import (
    Configured,
    ContextNoted,
    Event,
    Malformed,
    ModeSet,
    Nothing,
    Reference,
    SchemaDropped,
    SchemaPut,
    SchemaValue,
    SubjectCleared,
    SubjectDeleted,
    decode,
    digest_of,
    encode,
)

VALUE = SchemaValue(
    subject="s",
    version=2,
    id=7,
    text='{"type":"object"}',
    type="JSON",
    references=(Reference("n", "other", 1),),
    metadata={"properties": {"a": "b"}},
    rule_set={"enableAt": "ALL"},
    digest=bytes(range(16)),
)


@pytest.mark.parametrize(
    "event, key, value",
    [
        (SchemaDropped("s", 1), '{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', None),
        (
            SchemaPut(SchemaValue(subject="s", version=1, id=3, text='"int"', digest=bytes(16))),
            '{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
            '{"subject":"s","version":1,"id":3,"md5":"AAAAAAAAAAAAAAAAAAAAAA==","schema":"\\"int\\"","deleted":false}',
        ),
        (
            Configured(None, {"compatibilityLevel": "FULL"}),
            '{"keytype":"CONFIG","magic":0}',
            '{"compatibilityLevel":"FULL"}',
        ),
        (
            Configured("s", {"compatibilityLevel": "NONE"}),
            '{"keytype":"CONFIG","subject":"s","magic":0}',
            '{"subject":"s","compatibilityLevel":"NONE"}',
        ),
        (Configured("s", None), '{"keytype":"CONFIG","subject":"s","magic":0}', None),
        (ModeSet("s", "IMPORT"), '{"keytype":"MODE","subject":"s","magic":0}', '{"subject":"s","mode":"IMPORT"}'),
        (SubjectDeleted("s", 3), '{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}', '{"subject":"s","version":3}'),
        (SubjectCleared("s"), '{"keytype":"CLEAR_SUBJECT","subject":"s","magic":0}', '{"subject":"s"}'),
        (
            ContextNoted(".c", exists=True),
            '{"keytype":"CONTEXT","tenant":"default","context":".c","magic":0}',
            '{"tenant":"default","context":".c"}',
        ),
        (Nothing(), '{"keytype":"NOOP","magic":0}', None),
    ],
)
def test_keys_and_values_are_those_of_confluent(event: Event, key: str, value: str | None) -> None:
    assert encode(event) == (key.encode(), None if value is None else value.encode())
    assert decode(*encode(event)) == event


def test_a_schema_comes_back_whole() -> None:
    assert decode(*encode(SchemaPut(VALUE))) == SchemaPut(VALUE)


def test_older_registries_write_no_digest_and_other_orders() -> None:
    key = b'{"magic":1,"version":1,"subject":"s","keytype":"SCHEMA"}'
    event = decode(key, b'{"subject":"s","version":1,"id":1,"schema":"\\"int\\"","deleted":false,"new":1}')
    assert isinstance(event, SchemaPut)
    assert event.value.digest == digest_of('"int"', (), None, None)
    assert decode(b'{"keytype":"CONFIG","magic":0}', b'{"subject":null,"compatibilityLevel":"FULL"}') == Configured(
        None, {"compatibilityLevel": "FULL"}
    )
    assert decode(b'{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}', None) == Nothing()


def test_a_digest_is_that_of_confluent() -> None:
    # md5 of the text, then of name, subject and version of each reference.
    assert digest_of('"int"', (), None, None).hex() == "ef524ea1b91e73173d938ade36c1db32"
    with_reference = digest_of('"int"', (Reference("n", "s", 1),), None, None)
    assert with_reference.hex() == "e6206f8badfc6965e21757f1e2e367c7"


@pytest.mark.parametrize(
    "key, value",
    [
        (None, b"{}"),
        (b"", b"{}"),
        (b"[]", b"{}"),
        (b"{}", b"{}"),
        (b'{"keytype":"OTHER"}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":1,"version":1}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"s","version":true}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"s","version":1}', b'{"schema":"x"}'),
        (b'{"keytype":"SCHEMA","subject":"s","version":1}', b'{"schema":"x","id":99999999999}'),
        (b'{"keytype":"SCHEMA","subject":"s","version":1}', b'{"schema":"x","id":1,"references":[1]}'),
        (b'{"keytype":"SCHEMA","subject":"s","version":1}', b"[" * 100_000),
        (b'{"keytype":"CONFIG"}', b"\xff"),
    ],
)
def test_a_record_that_is_none_of_a_registry_is_malformed(key: bytes | None, value: bytes) -> None:
    with pytest.raises(Malformed):
        decode(key, value)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_names = st.sampled_from(
    ["keytype", "subject", "version", "magic", "id", "schema", "references", "md5", "mode", "deleted", "context"]
)
_kinds = st.sampled_from(["SCHEMA", "CONFIG", "MODE", "DELETE_SUBJECT", "CLEAR_SUBJECT", "CONTEXT", "NOOP", "X"])
_objects = st.dictionaries(_names, _json | _kinds, max_size=6)


@given(_objects | _json, _kinds, _objects | _json | st.none())
def test_no_record_raises_anything_else(key: object, kind: str, value: object) -> None:
    members = {**key, "keytype": kind} if isinstance(key, dict) else key
    try:
        event = decode(json.dumps(members).encode(), None if value is None else json.dumps(value).encode())
    except Malformed:
        return
    if not isinstance(event, SchemaPut):
        assert decode(*encode(event)) == event
