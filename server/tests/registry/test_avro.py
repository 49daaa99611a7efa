import json
from typing import Any

import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.registry.schemas import avro
from ottla.server.registry.schemas.format import InvalidText
from ottla.server.tests.registry.registry import record


def text(tree: object) -> str:
    return json.dumps(tree)


def compact(tree: object) -> str:
    return json.dumps(tree, separators=(",", ":"))


def parsed(tree: object, **references: object) -> avro.AvroSchema:
    return avro.parse(text(tree), {name: text(each) for name, each in references.items()})


CANONICAL: list[tuple[object, object]] = [
    ({"type": "string"}, "string"),
    ({"type": "string", "doc": "x"}, "string"),
    ({"logicalType": "date", "type": "int"}, {"type": "int", "logicalType": "date"}),
    ({"type": "string", "logicalType": "unheard-of"}, {"type": "string", "logicalType": "unheard-of"}),
    ({"items": "int", "type": "array"}, {"type": "array", "items": "int"}),
    (["null", {"type": "map", "values": {"type": "long"}}], ["null", {"type": "map", "values": "long"}]),
    (
        {"fields": [], "name": "a.b.R", "type": "record", "z": 1, "doc": "d", "aliases": ["a.b.Q", "c.Q"]},
        {"type": "record", "name": "R", "namespace": "a.b", "doc": "d", "fields": [], "z": 1, "aliases": ["Q", "c.Q"]},
    ),
    (
        {
            "type": "record",
            "name": "R",
            "fields": [{"order": "ascending", "default": None, "type": ["null", "int"], "name": "f", "doc": "d"}],
        },
        {
            "type": "record",
            "name": "R",
            "fields": [{"name": "f", "type": ["null", "int"], "doc": "d", "default": None}],
        },
    ),
    (
        {"name": "E", "default": "A", "symbols": ["A"], "type": "enum", "namespace": "n"},
        {"type": "enum", "name": "E", "namespace": "n", "symbols": ["A"], "default": "A"},
    ),
    ({"size": 4, "name": "F", "type": "fixed"}, {"type": "fixed", "name": "F", "size": 4}),
    # A name is written in full only where its namespace is another one than that around it.
    (
        {
            "type": "record",
            "name": "n.R",
            "fields": [
                {"name": "a", "type": {"type": "fixed", "name": "n.F", "size": 1}},
                {"name": "b", "type": "n.F"},
                {"name": "c", "type": {"type": "fixed", "name": "m.G", "size": 1}},
                {"name": "d", "type": "m.G"},
                {"name": "e", "type": "R"},
            ],
        },
        {
            "type": "record",
            "name": "R",
            "namespace": "n",
            "fields": [
                {"name": "a", "type": {"type": "fixed", "name": "F", "size": 1}},
                {"name": "b", "type": "F"},
                {"name": "c", "type": {"type": "fixed", "name": "G", "namespace": "m", "size": 1}},
                {"name": "d", "type": "m.G"},
                {"name": "e", "type": "R"},
            ],
        },
    ),
]


@pytest.mark.parametrize("tree, expected", CANONICAL)
def test_the_canonical_text_is_that_of_java(tree: object, expected: object) -> None:
    schema = parsed(tree)
    assert schema.canonical == compact(expected)
    assert avro.parse(schema.canonical, {}).canonical == schema.canonical


def test_characters_are_written_as_they_are() -> None:
    tree = {**record("a"), "doc": 'Größe "\u2028" \U0001f600'}
    assert '"doc":"Größe \\"\u2028\\" \U0001f600"' in parsed(tree).canonical


def test_a_normalized_text_has_sorted_attributes_and_no_empty_doc() -> None:
    one = {**record("a"), "doc": "", "z": {"b": 1, "a": 2}, "y": 1, "aliases": ["B", "A"]}
    other = {"aliases": ["A", "B"], "y": 1, "z": {"a": 2, "b": 1}, **record("a")}
    assert parsed(one).normalized() == parsed(other).normalized()
    assert parsed(one).canonical != parsed(other).canonical


def test_references_stay_names_and_can_be_resolved() -> None:
    inner = record("a", name="n.Inner")
    outer = {
        "type": "record",
        "name": "n.Outer",
        "fields": [{"name": "x", "type": "Inner"}, {"name": "y", "type": "n.Inner"}],
    }
    schema = parsed(outer, **{"n.Inner": inner})
    assert schema.canonical == compact(
        {
            "type": "record",
            "name": "Outer",
            "namespace": "n",
            "fields": [{"name": "x", "type": "Inner"}, {"name": "y", "type": "Inner"}],
        }
    )
    whole = json.loads(schema.formatted("resolved"))
    assert whole["fields"][0]["type"] == {"type": "record", **inner, "name": "Inner"}
    assert whole["fields"][1]["type"] == "Inner"
    assert schema.formatted("unheard-of") == schema.canonical
    assert parsed(whole).is_like(schema)
    assert not parsed(inner).is_like(schema)


@pytest.mark.parametrize(
    "bad",
    [
        "", " ", "{", "int", "[", '"integer"', "3", "null", "{}", '{"type": ["int"]}', '{"type": {"type": "int"}}',
        '["int", "int"]', '{"type": "array"}', '{"type": "map", "values": 1}', '{"type": "record", "name": "R"}',
        '{"type": "record", "name": "1", "fields": []}', '{"type": "record", "name": "R", "fields": [1]}',
        '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "Q"}]}',
        '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "a", "type": "int"}]}',
        '{"type": "enum", "name": "E", "symbols": ["A", "A"]}', '{"type": "enum", "name": "E", "symbols": ["1"]}',
        '{"type": "enum", "name": "E"}', '{"type": "fixed", "name": "F", "size": "4"}',
        "[" * 100_000, '{"type": "array", "items": ' * 150 + '"int"' + "}" * 150 + "]",
        '["' + '","'.join(map(str, range(30_000))) + '"]',
    ],
)  # fmt: skip
def test_what_is_no_schema_is_refused(bad: str) -> None:
    with pytest.raises(InvalidText):
        avro.parse(bad, {})


def test_each_problem_has_its_own_path_and_text() -> None:
    reader, writer = parsed(record("a", "b", "c")), parsed({**record("a"), "fields": [{"name": "a", "type": "string"}]})
    kinds = [(each.split("'")[1], each.split("additionalInfo:'")[1][:-2]) for each in reader.problems_reading(writer)]
    assert kinds == [
        ("TYPE_MISMATCH", "reader type: int not compatible with writer type: string"),
        ("READER_FIELD_MISSING_DEFAULT_VALUE", "b"),
        ("READER_FIELD_MISSING_DEFAULT_VALUE", "c"),
    ]
    assert "at path '/fields/2' in the %s schema has no default" in reader.problems_reading(writer)[2]


_leaves = st.sampled_from(["null", "int", "long", "float", "double", "string", "bytes", "boolean"])


def _trees(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    fields = st.lists(st.tuples(inner, st.booleans()), max_size=3)
    return st.one_of(
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(lambda values: {"type": "map", "values": values}, inner),
        st.builds(
            lambda name, given: {
                "type": "record",
                "name": name,
                "fields": [
                    {"name": f"f{index}", "type": kind, **({"default": None} if has_default else {})}
                    for index, (kind, has_default) in enumerate(given)
                ],
            },
            st.sampled_from(["R", "Q"]),
            fields,
        ),
        st.lists(_leaves, unique=True, max_size=3),
    )


_schemas = st.recursive(_leaves, _trees, max_leaves=6)


@given(_schemas, _schemas)
def test_the_verdict_is_that_of_the_library(reader: object, writer: object) -> None:
    try:
        one, other = parsed(reader), parsed(writer)
    except InvalidText:
        return  # two types of one name
    found = ReaderWriterCompatibilityChecker().get_compatibility(one.parsed, other.parsed)
    is_compatible = found.compatibility is SchemaCompatibilityType.compatible
    problems = one.problems_reading(other)
    assert bool(problems) != is_compatible
    assert len(problems) == len(found.incompatibilities)
    assert not one.problems_reading(one)


@given(st.text(max_size=40) | st.recursive(_leaves | st.integers() | st.none(), _trees, max_leaves=6).map(json.dumps))
def test_no_text_raises_anything_else(some: str) -> None:
    try:
        schema = avro.parse(some, {})
    except InvalidText:
        return
    assert avro.parse(schema.canonical, {}).canonical == schema.canonical
    assert avro.parse(schema.normalized(), {}).normalized() == schema.normalized()


def test_many_fields_are_compared_and_many_branches_are_refused() -> None:
    fields = [f"f{index}" for index in range(2000)]
    assert not parsed(record(*fields)).problems_reading(parsed(record(*reversed(fields))))
    union = parsed([record(name=f"R{index}") for index in range(300)])
    with pytest.raises(InvalidText, match="steps"):
        union.problems_reading(union)


def test_a_renamed_field_is_found_by_its_alias() -> None:
    renamed = record("b")
    renamed["fields"][0]["aliases"] = ["a"]
    assert not parsed(renamed).problems_reading(parsed(record("a")))
    assert parsed(record("b")).problems_reading(parsed(record("a")))
