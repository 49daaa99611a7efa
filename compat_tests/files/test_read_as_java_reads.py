"""Settings files and JAAS lines mean here what they mean to Java's Properties and to Kafka's JaasConfig.

Some thousand random texts of what is special to either format are read by both sides.
"""

import random
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from compat_tests.apache.brokers import jars

from ottla.server.config.jaas import MalformedJaas, parse_jaas
from ottla.server.config.properties import MalformedProperties, parse_properties

SOURCE = Path(__file__).parent / "Readers.java"
TEXTS = 3_000
PROPERTIES = [*"ab=: \t\f\\\\\\\n\r#!u0041dD83+_-é１", "\\u00e4", "\\ud83d\\ude00", "\\ud83d", "\\\n", "\\\r\n"]
PROPERTIES += ["\\u+12a", "\\u1_23", "\\u 12a", "😀"]
JAAS = [
    *"ab=; \n\r\"'\\/*\0\x1f\x7f\x80\x85\xa0éĀ\u3000#-1.,+@😀",
    "//",
    "/*",
    "*/",
    "\\1",
    "\\377",
    "\\400",
    "\\n",
    "-1",
    ".5",
]
JAAS += [" required ", "M required ", " a=b ", "a='b' ", "; "]
BEGINNINGS = ("", "M required ", "M optional a=b; ")


def hexadecimal(text: str) -> str:
    return text.encode("utf-16-be", "surrogatepass").hex()


def pairs(found: Mapping[str, str]) -> str:
    ordered = sorted(found.items(), key=lambda each: hexadecimal(each[0]))
    return "".join(f" {hexadecimal(key)}={hexadecimal(value)}" for key, value in ordered)


def of_properties(text: str) -> str:
    try:
        return "ok" + pairs(parse_properties(text))
    except MalformedProperties:
        return "refused"


def of_jaas(text: str) -> str:
    try:
        entries = parse_jaas(text)
    except MalformedJaas:
        return "refused"
    return "ok" + "".join(f" {hexadecimal(each.module)}:{each.flag}{pairs(each.options)}" for each in entries)


def random_properties(choices: random.Random) -> str:
    text = "".join(choices.choices(PROPERTIES, k=choices.randrange(30)))
    # Java takes a last line of nothing but a backslash for an empty key, which is the name of no setting.
    return text + "x"


def random_jaas(choices: random.Random) -> str:
    # Options whose name is no word have the name null in Kafka. `Readers` and Ottla refuse them.
    body = "".join(choices.choices(JAAS, k=choices.randrange(25)))
    return choices.choice(BEGINNINGS) + body + choices.choice(("", ";", ""))


@pytest.mark.parametrize(
    ("kind", "make", "read"), [("properties", random_properties, of_properties), ("jaas", random_jaas, of_jaas)]
)
def test_both_find_the_same(kind: str, make: Callable[[random.Random], str], read: Callable[[str], str]) -> None:
    choices = random.Random(12)
    texts = [make(choices) for _ in range(TEXTS)]
    command = ["java", "-cp", f"{jars('kafka_4')}/*", str(SOURCE)]
    given = "".join(f"{kind} {hexadecimal(text)}\n" for text in texts)
    told = subprocess.run(
        command, input=given, stdout=subprocess.PIPE, text=True, check=True, timeout=240
    ).stdout.splitlines()
    assert len(told) == len(texts)
    assert [(text, read(text)) for text in texts] == list(zip(texts, told, strict=True))
    assert sum(each.startswith("ok") for each in told) > TEXTS / 50
