"""kafka-features: what is told, and the levels that can be changed."""

import re

import pytest

from ottla.server.cluster.features import FEATURES
from ottla.server.dispatch.dispatch import all_routes

COMMAND = "FeatureCommand"
FEATURE = "transaction.version"


def common(text: str) -> str:
    """Without the features of Kafka's metadata log, and those whose requests are not served; their epoch is a cluster's own."""
    served = all_routes()
    names = {each.name for each in FEATURES if all(key in served for key in each.keys)}
    lines = [line.split() for line in text.splitlines()]
    told = [" ".join(words) for words in lines if words[:1] != ["Feature:"] or words[1] in names]
    return re.sub(r"Epoch: \d+", "Epoch: <epoch>", "\n".join(told))


def described(beside) -> str:
    return beside(COMMAND, "describe", unordered=True, arrange=common).out


def transactions(shown: str) -> list[str]:
    return re.findall(rf"^Feature: {FEATURE} (.*) Epoch: <epoch>$", shown, re.MULTILINE)


def test_features_are_described(beside):
    assert transactions(described(beside)) == ["SupportedMinVersion: 0 SupportedMaxVersion: 2 FinalizedVersionLevel: 2"]


def test_levels_go_down_and_up(beside):
    try:
        beside(COMMAND, "downgrade", "--feature", f"{FEATURE}=1")
        assert transactions(described(beside))[0].endswith("FinalizedVersionLevel: 1")
        beside(COMMAND, "disable", "--feature", FEATURE)
    finally:
        beside(COMMAND, "upgrade", "--feature", f"{FEATURE}=2")
    assert transactions(described(beside))[0].endswith("FinalizedVersionLevel: 2")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("upgrade", "--feature", f"{FEATURE}=1"), "Can't downgrade the version of this feature"),
        (("downgrade", "--feature", f"{FEATURE}=3"), "only supports versions 0-2"),
        (("upgrade", "--feature", "no.such=1"), "does not support this feature"),
        (("disable", "--feature", "no.such"), "not found"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_refusals(beside, arguments, complaint):
    said = beside(COMMAND, *arguments)
    assert said.status != 0
    assert complaint in said.out + said.err


def test_downgrades_are_tried_out(beside):
    said = beside(COMMAND, "downgrade", "--dry-run", "--feature", f"{FEATURE}=1")
    assert said.status == 0
    assert transactions(described(beside))[0].endswith("FinalizedVersionLevel: 2")
