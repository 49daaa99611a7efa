"""Values of JSON Schema: JSON that is validated before it is written. Readers get what is there, as Confluent's deserializer has it.

Schema and value are a stranger's. So patterns are matched by RE2, whose time grows with the text alone; equal items are found by their
texts; and each keyword that is applied counts against the size of the value, by what it compares and may print. A schema with a pattern
that RE2 does not know is refused.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import jsonschema
import jsonschema.exceptions
import jsonschema.validators
import re2
import referencing.exceptions

from ottla.server.registry.schemas.format import InvalidText
from ottla.server.rest.bodies import loads
from ottla.server.rest.errors import RestError
from ottla.server.rest.schemas.codec import BadData, dumped
from ottla.wire.time_slice import paced

if TYPE_CHECKING:
    from ottla.server.registry.schemas.json_schema import JsonSchema

STEPS_FREE, STEPS_PER_BYTE = 20_000, 8
CHARACTERS_PER_STEP = 128
"""Characters of a keyword's argument and of the value below it, which the library compares or puts into a message in one step."""
INSTRUCTIONS_PER_STEP = 2_000
"""Instructions of a pattern's program, for each character that it is matched with: RE2 may have to follow all of them."""
ELEMENT_CHARACTERS = 8
PATTERN_CHARACTERS_MAX = 2_000
_Keyword = Callable[..., Iterator[jsonschema.exceptions.ValidationError] | None]


class JsonSchemaCodec:
    """Codec of one JSON Schema."""

    def __init__(self, parsed: JsonSchema) -> None:
        _check_patterns(parsed.tree)
        base = jsonschema.validators.validator_for(parsed.tree, default=jsonschema.Draft7Validator)
        self._steps = _Steps(_Sizes())
        self._validator = _validator_class(base, self._steps)(parsed.tree, registry=parsed.registry)
        title = parsed.tree.get("title") if isinstance(parsed.tree, dict) else None
        self.name = title if isinstance(title, str) else None

    def encode(self, data: Any) -> bytes:
        try:
            body = dumped(data).encode()
        except (ValueError, UnicodeEncodeError) as error:
            raise BadData(f"It is no JSON: {error}") from None
        self._steps.begin(STEPS_FREE + STEPS_PER_BYTE * len(body))
        try:
            misfit = next(self._validator.iter_errors(data), None)
        except (referencing.exceptions.Unresolvable, RecursionError, TypeError, ValueError) as failure:
            if isinstance(failure, BadData):
                raise
            raise BadData(f"It cannot be validated: {str(failure)[:200]}") from None
        finally:
            self._steps.end()
        if misfit is not None:
            raise BadData(f"#{''.join(f'/{each}' for each in misfit.absolute_path)}: {misfit.message[:500]}")
        return body

    def decode(self, data: memoryview) -> Any:
        try:
            return loads(bytes(data))
        except (RestError, UnicodeDecodeError) as error:
            raise BadData(f"It is no JSON: {error}") from None


def codec_of(parsed: JsonSchema) -> JsonSchemaCodec:
    """Make the codec of a parsed schema. Raises InvalidText."""
    return JsonSchemaCodec(parsed)


class _Sizes:
    """Approximate sizes of JSON values in characters; each size is computed only once."""

    def __init__(self) -> None:
        # With the value, so that its id stays its own.
        self._known: dict[int, tuple[Any, int]] = {}

    def of(self, value: Any) -> int:
        """Return the size of a value, nested values included."""
        if isinstance(value, str):
            return len(value)
        if not isinstance(value, (list, dict)):
            return 0
        known = self._known.get(id(value))
        if known is None:
            below = value if isinstance(value, list) else (*value, *value.values())
            known = value, ELEMENT_CHARACTERS * len(value) + sum(map(self.of, below))
            self._known[id(value)] = known
        return known[1]


class _Steps(threading.local):
    """Counter that limits the validation steps of one value; each thread has its own.

    `of_schema`: sizes of schema parts, shared by all threads.
    """

    def __init__(self, of_schema: _Sizes) -> None:
        self._of_schema, self._of_value = of_schema, _Sizes()

    def begin(self, left: int) -> None:
        """Start the validation of a value with a limit of `left` steps."""
        self._left, self._give_way = left, paced()

    def end(self) -> None:
        """Release the sizes of the validated value."""
        self._of_value = _Sizes()

    def take(self, argument: Any, instance: Any) -> None:
        """Count a keyword's application as steps. Raises BadData if the limit is exceeded."""
        characters = self._of_schema.of(argument) + self._of_value.of(instance)
        self._spend(1 + characters // CHARACTERS_PER_STEP)

    def matches(self, pattern: str, text: str) -> bool:
        """Return True if `text` contains a match of `pattern`. Raises BadData if the limit of steps is exceeded."""
        found = re2.compile(pattern)
        self._spend(1 + len(text) * found.programsize // INSTRUCTIONS_PER_STEP)
        return found.search(text) is not None

    def _spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise BadData("It takes too many steps to validate")
        self._give_way()


def _validator_class(base: Any, steps: _Steps) -> Any:
    """Make a validator class for a draft of JSON Schema. Its keywords count steps, and none uses a slow algorithm."""
    own: dict[str, _Keyword] = {**_OWN, **{name: partial(rule, steps) for name, rule in _WITH_PATTERNS.items()}}
    keywords = {name: _counted(own.get(name, rule), steps) for name, rule in base.VALIDATORS.items()}
    return jsonschema.validators.extend(base, keywords)


def _counted(rule: _Keyword, steps: _Steps) -> _Keyword:
    def apply(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        steps.take(value, instance)
        return rule(validator, value, instance, schema)

    return apply


# --- keywords whose own ways may be dear


def _pattern(steps: _Steps, validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[Any]:
    if isinstance(instance, str) and not steps.matches(pattern, instance):
        yield jsonschema.exceptions.ValidationError(f"{instance[:100]!r} does not match {pattern!r}")


def _pattern_properties(
    steps: _Steps, validator: Any, patterns: dict[str, Any], instance: Any, schema: Any
) -> Iterator[Any]:
    if isinstance(instance, dict):
        for pattern, below in patterns.items():
            for name, value in instance.items():
                if steps.matches(pattern, name):
                    yield from validator.descend(value, below, path=name, schema_path=pattern)


def _additional_properties(steps: _Steps, validator: Any, allowed: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if not isinstance(instance, dict):
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for name, value in instance.items():
        if name in known or any(steps.matches(each, name) for each in patterns):
            continue
        if allowed is False:
            yield jsonschema.exceptions.ValidationError(f"Additional property {name[:100]!r} is not allowed")
        elif allowed is not True:
            yield from validator.descend(value, allowed, path=name)


def _any_of(validator: Any, schemas: list[Any], instance: Any, schema: Any) -> Iterator[Any]:
    # The library keeps all errors of all branches.
    if not any(_fits(validator, each, instance) for each in schemas):
        yield jsonschema.exceptions.ValidationError("It is not valid under any of the given schemas")


def _one_of(validator: Any, schemas: list[Any], instance: Any, schema: Any) -> Iterator[Any]:
    count = sum(_fits(validator, each, instance) for each in schemas)
    if count != 1:
        yield jsonschema.exceptions.ValidationError(f"It is valid under {count} of the given schemas instead of one")


def _fits(validator: Any, schema: Any, instance: Any) -> bool:
    return next(validator.descend(instance, schema), None) is None


def _unique_items(validator: Any, is_wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if is_wanted and isinstance(instance, list):
        texts = {json.dumps(_comparable(each), sort_keys=True) for each in instance}
        if len(texts) < len(instance):
            yield jsonschema.exceptions.ValidationError("The list has equal items")


def _comparable(value: Any) -> Any:
    """Return a copy of `value` in which equal numbers have equal types."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_comparable(each) for each in value]
    if isinstance(value, dict):
        return {name: _comparable(each) for name, each in value.items()}
    return value


_WITH_PATTERNS: dict[str, Callable[..., Iterator[jsonschema.exceptions.ValidationError]]] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
}
_OWN: dict[str, _Keyword] = {
    "anyOf": _any_of,
    "oneOf": _one_of,
    "uniqueItems": _unique_items,
}


def _check_patterns(tree: Any) -> None:
    """Raise InvalidText for a pattern that RE2 does not support, or that the library would match without RE2."""
    waiting, has_patterns, has_unevaluated = [tree], False, False
    while waiting:
        each = waiting.pop()
        if isinstance(each, list):
            waiting += each
        elif isinstance(each, dict):
            patterns = each.get("patternProperties")
            named = list(patterns) if isinstance(patterns, dict) else []
            has_patterns = has_patterns or bool(named)
            has_unevaluated = has_unevaluated or "unevaluatedProperties" in each
            for pattern in (*named, *filter(lambda found: isinstance(found, str), (each.get("pattern"),))):
                _check_pattern(pattern)
            waiting += each.values()
    if has_patterns and has_unevaluated:
        raise InvalidText("unevaluatedProperties beside patternProperties is not served")


def _check_pattern(pattern: str) -> None:
    try:
        if len(pattern) > PATTERN_CHARACTERS_MAX:
            raise InvalidText(f"a pattern has more than {PATTERN_CHARACTERS_MAX:,} characters")
        re2.compile(pattern)
    except re2.error as error:
        raise InvalidText(f"the pattern {pattern[:100]!r} is not served: {error}") from None
