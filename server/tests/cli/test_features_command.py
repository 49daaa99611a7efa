"""`ottla features` beside a broker: levels are changed, taken back, and asked for where data may be lost."""

from __future__ import annotations

import pytest

from ottla.server.cli.client.cluster import Cluster
from ottla.server.tests.cli.commanded import Shell
from ottla.wire.messages.api_versions import ApiVersionsRequest

FEATURE = "transaction.version"


def level(cluster: Cluster) -> int:
    answer = cluster.first.ask(ApiVersionsRequest(client_software_name="test", client_software_version="1"))
    found = {each.name: each.max_version_level for each in answer.finalized_features}
    return int(found.get(FEATURE, 0))


def test_a_level_is_lowered_and_raised_again(ottla: Shell, cluster: Cluster) -> None:
    dry = ottla("features", "downgrade", f"{FEATURE}=1", "--dry-run", "--json").json
    assert dry == {"levels": {FEATURE: 1}, "dry_run": True, "undo": []} and level(cluster) == 2
    told = ottla("features", "downgrade", f"{FEATURE}=1")
    assert told.lines == [f"{FEATURE} is at level 1", f"To undo: ottla features upgrade {FEATURE}=2"]
    assert level(cluster) == 1
    ottla.undo(told)
    assert level(cluster) == 2
    assert ottla("features", "upgrade", f"{FEATURE}=2").lines == [f"{FEATURE} is at level 2"]


def test_a_downgrade_that_may_lose_data_is_confirmed_first(ottla: Shell, cluster: Cluster) -> None:
    words = ("features", "downgrade", "--unsafe", f"{FEATURE}=0")
    question = f"Lower {FEATURE} to 0, even if data written at the higher level is lost?"
    assert ottla(*words).refusal(2) == f"{question} There is nobody to ask: give --yes"
    assert ottla(*words, answer="n\n").code == 1 and level(cluster) == 2
    told = ottla(*words, answer="y\n")
    assert level(cluster) == 0
    ottla.undo(told)
    assert level(cluster) == 2


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (("upgrade", FEATURE), 2, "is not FEATURE=LEVEL"),
        (("upgrade", f"{FEATURE}=00000099999"), 2, "is not FEATURE=LEVEL"),
        (("upgrade", f"{FEATURE}={'0' * 6}{'9' * 5000}"), 2, "is not FEATURE=LEVEL"),
        (("upgrade", f"{FEATURE}=2", f"{FEATURE}=1"), 2, "a feature is named twice"),
        (("upgrade", f"{FEATURE}=1"), 1, "INVALID_UPDATE_VERSION"),
        (("upgrade", f"{FEATURE}=2", "no.such.feature=1"), 1, "no.such.feature"),
    ],
)
def test_a_wrong_command_line_is_refused_with_its_reason(
    ottla: Shell, cluster: Cluster, words: tuple[str, ...], code: int, reason: str
) -> None:
    assert reason in ottla("features", *words).refusal(code)
    assert level(cluster) == 2
