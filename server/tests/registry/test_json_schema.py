"""JSON Schema. The rules' examples are those of Confluent's page about compatibility, and one for each rule beside."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.registry.schemas import json_schema
from ottla.server.registry.schemas.format import InvalidText
from ottla.server.registry.schemas.json_comparison import differences


def parsed(tree: object, **references: object) -> json_schema.JsonSchema:
    return json_schema.parse(json.dumps(tree), {name: json.dumps(each) for name, each in references.items()})


def names(original: object, update: object) -> list[str]:
    return [each.name for each in differences(parsed(original).shapes, parsed(update).shapes)]


def obj(more: object = None, **properties: object) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return schema if more is None else {**schema, "additionalProperties": more}


INT, TEXT = {"type": "integer"}, {"type": "string"}


def test_the_canonical_text_has_no_spaces_and_a_normalized_one_is_sorted() -> None:
    schema = json_schema.parse('{ "type" : "object", "b": 1.5, "a": "\\u00e4" }', {})
    assert schema.canonical == '{"type":"object","b":1.5,"a":"ä"}'
    assert schema.normalized() == '{"a":"ä","b":1.5,"type":"object"}'
    assert schema.is_like(parsed({"a": "ä", "b": 1.5, "type": "object"}))
    assert not schema.is_like(parsed(True))


@pytest.mark.parametrize(
    "good", [True, False, {}, {"type": "object", "x": 1}, {"$ref": "#/definitions/a", "definitions": {"a": {}}}]
)
def test_schemas(good: object) -> None:
    assert json_schema.parse(json.dumps(good), {}).canonical


@pytest.mark.parametrize(
    "bad",
    [
        "", "{", "1", '"x"', "[]", "null", '{"type": "no-type"}', '{"type": 1}', '{"properties": []}', '{"required": "a"}',
        '{"minLength": -1}', '{"$ref": "#/definitions/a"}', '{"$ref": "other.json"}', '{"items": {"$ref": "https://example.org/x"}}',
        '{"$ref": "#"}', '{"definitions": {"a": {"$ref": "#/definitions/a"}}, "$ref": "#/definitions/a"}',
        '{"not": ' * 150 + "{}" + "}" * 150 + "x", '{"enum": [' + ",".join(map(str, range(30_000))) + "]}",
    ],
)  # fmt: skip
def test_what_is_no_schema_is_refused(bad: str) -> None:
    with pytest.raises(InvalidText):
        json_schema.parse(bad, {})


def test_references_are_found_by_their_names_and_relative_to_the_address() -> None:
    other = {"type": "object", "properties": {"a": INT}}
    schema = parsed({"$ref": "other.json"}, **{"other.json": other})
    assert not schema.problems_reading(parsed(other))
    beside = parsed({"$id": "https://example.org/x/y.json", "$ref": "other.json"}, **{"other.json": other})
    assert not beside.problems_reading(parsed(other))
    changed = parsed({"$ref": "other.json"}, **{"other.json": {**other, "properties": {"a": TEXT}}})
    text = "A type at path '#/properties/a' is different between the %s schema and the %s schema"
    assert changed.problems_reading(schema) == [f'{{errorType:"TYPE_CHANGED", description:"{text}\'}}']


@pytest.mark.parametrize(
    "original, update, expected",
    [
        # Content models: open, closed, partially open.
        (obj(a=INT), obj(a=INT, b=INT), ["OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"]),
        (obj(a=INT), obj(a=INT, b={}), []),
        (obj(a=INT, b=INT), obj(a=INT), []),
        (obj(False, a=INT), obj(False, a=INT, b=INT), []),
        (obj(False, a=INT, b=INT), obj(False, a=INT), ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"]),
        (obj(False, a=INT, b=False), obj(False, a=INT), []),
        (obj(TEXT, a=INT), obj(TEXT, a=INT, b=TEXT), []),
        (obj(TEXT, a=INT), obj(TEXT, a=INT, b=INT), ["TYPE_CHANGED", "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"]),
        (obj(TEXT, a=INT, b=TEXT), obj(TEXT, a=INT), []),
        (obj(TEXT, a=INT, b=INT), obj(TEXT, a=INT), ["TYPE_CHANGED", "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"]),
        (obj(a=INT), obj(False, a=INT), ["ADDITIONAL_PROPERTIES_REMOVED"]),
        (obj(False, a=INT), obj(a=INT), []),
        (obj(a=INT), obj(TEXT, a=INT), ["ADDITIONAL_PROPERTIES_NARROWED"]),
        ({**obj(False), "patternProperties": {"^b": INT}}, {**obj(False, b1=INT), "patternProperties": {"^b": INT}}, []),
        # Required ones.
        (obj(a=INT), {**obj(a=INT), "required": ["a"]}, ["REQUIRED_ATTRIBUTE_ADDED"]),
        (obj(a=INT), {**obj(a={**INT, "default": 0}), "required": ["a"]}, []),
        ({**obj(a=INT), "required": ["a"]}, obj(a=INT), []),
        (obj(False), {**obj(False, a=INT), "required": ["a"]}, ["REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"]),
        (obj(False), {**obj(False, a={**INT, "default": 0}), "required": ["a"]}, []),
        # Types.
        (INT, {"type": "number"}, []),
        ({"type": "number"}, INT, ["TYPE_NARROWED"]),
        (INT, TEXT, ["TYPE_CHANGED"]),
        (INT, {}, []),
        (INT, True, []),
        (False, INT, []),
        (INT, {"type": ["integer", "string"]}, []),
        ({"type": ["integer", "string"]}, INT, ["TYPE_CHANGED"]),
        ({**TEXT, "title": "a", "default": "x"}, {**TEXT, "title": "b"}, []),
        # Limits.
        ({**TEXT, "maxLength": 3}, {**TEXT, "maxLength": 4}, []),
        ({**TEXT, "maxLength": 4}, {**TEXT, "maxLength": 3}, ["MAX_LENGTH_DECREASED"]),
        (TEXT, {**TEXT, "maxLength": 3}, ["MAX_LENGTH_ADDED"]),
        ({**TEXT, "minLength": 3}, TEXT, []),
        ({**TEXT, "minLength": 3}, {**TEXT, "minLength": 4}, ["MIN_LENGTH_INCREASED"]),
        ({**INT, "multipleOf": 4}, {**INT, "multipleOf": 2}, []),
        ({**INT, "multipleOf": 2}, {**INT, "multipleOf": 4}, ["MULTIPLE_OF_EXPANDED"]),
        ({**INT, "multipleOf": 2}, {**INT, "multipleOf": 3}, ["MULTIPLE_OF_CHANGED"]),
        ({**TEXT, "pattern": "a"}, {**TEXT, "pattern": "b"}, ["PATTERN_CHANGED"]),
        (TEXT, {**TEXT, "pattern": "b"}, ["PATTERN_ADDED"]),
        # Enums and constants.
        ({"enum": [1]}, {"enum": [1, 2]}, []),
        ({"enum": [1, 2]}, {"enum": [1]}, ["ENUM_ARRAY_NARROWED"]),
        ({"enum": [1, 2]}, {"enum": [1, 3]}, ["ENUM_ARRAY_CHANGED"]),
        ({"const": 1}, {"const": 2}, ["ENUM_ARRAY_CHANGED"]),
        # Arrays.
        ({"items": INT}, {"items": {"type": "number"}}, []),
        ({"items": INT}, {"items": TEXT}, ["TYPE_CHANGED"]),
        ({"type": "array"}, {"items": TEXT}, ["SCHEMA_ADDED"]),
        ({"type": "array", "items": [INT]}, {"type": "array", "items": [INT, INT]}, ["ITEM_ADDED_TO_OPEN_CONTENT_MODEL"]),
        (
            {"type": "array", "items": [INT], "additionalItems": False},
            {"type": "array", "items": [INT, INT], "additionalItems": False},
            [],
        ),
        (
            {"type": "array", "items": [INT, INT], "additionalItems": False},
            {"type": "array", "items": [INT], "additionalItems": False},
            ["ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL"],
        ),
        ({"type": "array"}, {"type": "array", "uniqueItems": True}, ["UNIQUE_ITEMS_ADDED"]),
        # Combinations.
        ({"oneOf": [INT]}, {"oneOf": [INT, TEXT]}, []),
        ({"oneOf": [INT, TEXT]}, {"oneOf": [INT]}, ["SUM_TYPE_NARROWED"]),
        ({"oneOf": [INT, TEXT]}, {"anyOf": [TEXT, INT]}, []),
        ({"anyOf": [INT, TEXT]}, {"oneOf": [TEXT, INT]}, ["COMBINED_TYPE_CHANGED"]),
        ({"allOf": [INT, {"minimum": 1}]}, {"allOf": [INT]}, []),
        ({"allOf": [INT]}, {"allOf": [INT, {"minimum": 1}]}, ["PRODUCT_TYPE_EXTENDED"]),
        ({"oneOf": [INT, TEXT]}, {"oneOf": [{"type": "null"}, TEXT]}, ["COMBINED_TYPE_SUBSCHEMAS_CHANGED"]),
        (INT, {"oneOf": [TEXT, INT]}, []),
        ({"not": {"type": "number"}}, {"not": INT}, []),
        ({"not": INT}, {"not": {"type": "number"}}, ["NOT_TYPE_EXTENDED"]),
        # What one property needs of others.
        (obj(), {**obj(), "dependencies": {"a": ["b"]}}, ["DEPENDENCY_ARRAY_ADDED"]),
        ({**obj(), "dependencies": {"a": ["b", "c"]}}, {**obj(), "dependencies": {"a": ["b"]}}, []),
        ({**obj(), "dependencies": {"a": ["b"]}}, {**obj(), "dependencies": {"a": ["b", "c"]}}, ["DEPENDENCY_ARRAY_EXTENDED"]),
        ({**obj(), "dependencies": {"a": INT}}, {**obj(), "dependencies": {"a": TEXT}}, ["TYPE_CHANGED"]),
    ],
)  # fmt: skip
def test_rules(original: object, update: object, expected: list[str]) -> None:
    assert names(original, update) == expected


def test_recursive_schemas_are_compared_to_their_end() -> None:
    def tree(kind: object) -> dict[str, Any]:
        return {
            "$ref": "#/definitions/node",
            "definitions": {"node": obj(False, next={"$ref": "#/definitions/node"}, value=kind)},
        }

    assert names(tree(INT), tree({"type": "number"})) == []
    assert set(names(tree(INT), tree(TEXT))) == {"TYPE_CHANGED"}


def test_alternatives_of_alternatives_take_few_steps() -> None:
    def tree(kind: object) -> dict[str, Any]:
        definitions: dict[str, object] = {"0": kind}
        for depth in range(30):
            below = {"$ref": f"#/definitions/{depth}"}
            definitions[str(depth + 1)] = {"oneOf": [below, {"type": "array", "items": below}]}
        return {"$ref": "#/definitions/30", "definitions": definitions}

    assert names(tree(INT), tree({"type": "number"})) == []


def test_newer_drafts_have_places_in_front_of_items() -> None:
    new = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "array"}
    assert (
        names({**new, "prefixItems": [INT], "items": False}, {**new, "prefixItems": [INT, TEXT], "items": False}) == []
    )
    assert names({**new, "prefixItems": [INT]}, {**new, "prefixItems": [TEXT]}) == ["TYPE_CHANGED"]
    closed = {**new, "type": "object", "properties": {"a": INT}, "unevaluatedProperties": False}
    assert names({**closed, "unevaluatedProperties": True}, closed) == ["UNEVALUATED_PROPERTIES_REMOVED"]
    assert names(closed, {**closed, "unevaluatedProperties": True}) == []


_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["string", "integer", "object", "array", "a", "#", "#/x"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["type", "properties", "items", "oneOf", "anyOf", "allOf", "not", "enum", "$ref", "$id", "required", "x", "const",
             "additionalProperties", "prefixItems", "minimum", "dependencies", "patternProperties", "$schema"]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(_values, _values)
def test_no_tree_raises_anything_else(one: object, other: object) -> None:
    try:
        first, second = parsed(one), parsed(other)
        assert not first.problems_reading(first)
        first.problems_reading(second)
    except InvalidText:
        return
    assert json_schema.parse(first.canonical, {}).canonical == first.canonical


def test_the_lenient_policy_lets_content_models_change() -> None:
    for original, update in (
        (obj(a=INT), obj(a=INT, b=INT)),
        (obj(False, a=INT, b=INT), obj(False, a=INT)),
        (obj(a=INT), obj(False, a=INT)),
    ):
        one, other = parsed(original), parsed(update)
        assert other.problems_reading(one)
        assert not other.problems_reading(one, is_lenient=True)
    assert parsed(TEXT).problems_reading(parsed(INT), is_lenient=True)


def test_a_path_is_told_as_it_is() -> None:
    [problem] = parsed(obj(**{"{a}%s": TEXT})).problems_reading(parsed(obj(**{"{a}%s": INT})))
    assert "at path '#/properties/{a}%%s' is" in problem
