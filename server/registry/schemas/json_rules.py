"""Rules of compatibility of JSON Schema: what may differ between the schema of written data and that of its reader.

Each difference has a name. `COMPATIBLE` lists the differences that a reader tolerates; all other differences get the
message of their group. Content models decide about properties that only one side has: a schema is open if any other
property may come, closed if none may, and partially open if another one has to fit a schema.

Source: Confluent's page "JSON Schema Serializer and Deserializer: compatibility rules", and the classes in
`io.confluent.kafka.schemaregistry.json.diff`.
"""

from __future__ import annotations

from typing import NamedTuple

BOUNDS = (
    # kind, keyword, name
    ("string", "maxLength", "MAX_LENGTH"),
    ("string", "minLength", "MIN_LENGTH"),
    ("number", "maximum", "MAXIMUM"),
    ("number", "minimum", "MINIMUM"),
    ("number", "exclusiveMaximum", "EXCLUSIVE_MAXIMUM"),
    ("number", "exclusiveMinimum", "EXCLUSIVE_MINIMUM"),
    ("object", "maxProperties", "MAX_PROPERTIES"),
    ("object", "minProperties", "MIN_PROPERTIES"),
    ("array", "maxItems", "MAX_ITEMS"),
    ("array", "minItems", "MIN_ITEMS"),
    ("array", "maxContains", "MAX_CONTAINS"),
    ("array", "minContains", "MIN_CONTAINS"),
)
"""Limits. A higher maximum, a lower minimum, and the loss of either are compatible (StringSchemaDiff and its like)."""

_UPPER = [name for _, _, name in BOUNDS if "MAX" in name]
_LOWER = [name for _, _, name in BOUNDS if "MIN" in name]

COMPATIBLE = frozenset(
    [f"{name}_REMOVED" for _, _, name in BOUNDS]
    + [f"{name}_INCREASED" for name in _UPPER]
    + [f"{name}_DECREASED" for name in _LOWER]
    + [
        "ID_CHANGED",
        "DESCRIPTION_CHANGED",
        "TITLE_CHANGED",
        "DEFAULT_CHANGED",
        "SCHEMA_REMOVED",
        "TYPE_EXTENDED",
        "PATTERN_REMOVED",
        "MULTIPLE_OF_REDUCED",
        "MULTIPLE_OF_REMOVED",
        "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED",
        "REQUIRED_ATTRIBUTE_REMOVED",
        "DEPENDENCY_ARRAY_NARROWED",
        "DEPENDENCY_ARRAY_REMOVED",
        "DEPENDENCY_SCHEMA_REMOVED",
        "ADDITIONAL_PROPERTIES_ADDED",
        "ADDITIONAL_PROPERTIES_EXTENDED",
        "UNEVALUATED_PROPERTIES_ADDED",
        "UNEVALUATED_PROPERTIES_EXTENDED",
        "PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL",
        "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL",
        "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
        "PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL",
        "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "UNIQUE_ITEMS_REMOVED",
        "ADDITIONAL_ITEMS_ADDED",
        "ADDITIONAL_ITEMS_EXTENDED",
        "UNEVALUATED_ITEMS_ADDED",
        "UNEVALUATED_ITEMS_EXTENDED",
        "ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL",
        "ITEM_ADDED_TO_CLOSED_CONTENT_MODEL",
        "ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL",
        "ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "ENUM_ARRAY_EXTENDED",
        "COMBINED_TYPE_EXTENDED",
        "PRODUCT_TYPE_NARROWED",
        "SUM_TYPE_EXTENDED",
        "NOT_TYPE_NARROWED",
    ]
)
"""Differences that a reader can live with (`SchemaDiff.COMPATIBLE_CHANGES_STRICT`)."""

LENIENT = COMPATIBLE | frozenset(
    (
        "ADDITIONAL_PROPERTIES_NARROWED", "ADDITIONAL_PROPERTIES_REMOVED", "UNEVALUATED_PROPERTIES_NARROWED",
        "UNEVALUATED_PROPERTIES_REMOVED", "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL",
        "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    )
)  # fmt: skip
"""Changes that `compatibilityPolicy=LENIENT` allows (`SchemaDiff.COMPATIBLE_CHANGES_LENIENT`)."""

WORDS = (
    # the ends of names, and what is said of them, with {path}; the first that fits (`Difference.error`)
    (("_TO_OPEN_CONTENT_MODEL",), "The %s schema has an open content model and has a property or item at path '{path}' which is missing in the %s schema"),
    (("_TO_UNOPEN_CONTENT_MODEL",), "The %s schema has an unopen content model and has a required property at path '{path}' which is missing in the %s schema"),
    (("_FROM_CLOSED_CONTENT_MODEL",), "The %s has a closed content model and is missing a property or item present at path '{path}' in the %s schema"),
    (("_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",), "A property or item is missing in the %s schema but present at path '{path}' in the %s schema and is not covered by its partially open content model"),
    (("_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",), "The %s schema has a property or item at path '{path}' which is missing in the %s schema and is not covered by its partially open content model"),
    (("TYPE_CHANGED", "TYPE_NARROWED!", "SUBSCHEMAS_CHANGED", "ENUM_ARRAY_CHANGED"), "A type at path '{path}' is different between the %s schema and the %s schema"),
    (("PATTERN_CHANGED", "MULTIPLE_OF_CHANGED", "DEPENDENCY_ARRAY_CHANGED"), "The value at path '{path}' is different between the %s and %s schema"),
    (("_ARRAY_EXTENDED", "_TYPE_EXTENDED"), "An array or combined type at path '{path}' has more elements in the %s schema than the %s schema"),
    (("_NARROWED",), "An array or combined type at path '{path}' has fewer elements in the %s schema than the %s schema"),
    (("_INCREASED", "_EXPANDED"), "The value at path '{path}' in the %s schema is more than its value in the %s schema"),
    (("_DECREASED",), "The value at path '{path}' in the %s schema is less than its value in the %s schema"),
    (("_ADDED", "_REMOVED"), "The keyword at path '{path}' in the %s schema is not present in the %s schema"),
)  # fmt: skip


class Difference(NamedTuple):
    """Difference between two versions of a schema. `name`: kind of the difference. `path`: place in the schema."""

    name: str
    path: str

    def __str__(self) -> str:
        name = f"{self.name}!" if self.name == "TYPE_NARROWED" else self.name
        words = next((text for ends, text in WORDS if name.endswith(ends)), "")
        path = self.path.replace("%", "%%")
        return f'{{errorType:"{self.name}", description:"{words.format(path=path)}\'}}'
