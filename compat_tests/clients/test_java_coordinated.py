"""Kafka's Java clients and what they ask of coordinators: java/Coordinated.java does the work, what it has to find is here."""

import pytest


@pytest.fixture(scope="module")
def bootstrap(bootstrap_of_quick_groups):
    return bootstrap_of_quick_groups


@pytest.fixture
def scenario(in_one_jvm, coordinated, bootstrap, unique):
    def play(name, topic):
        printed = in_one_jvm(coordinated, name, bootstrap, topic, unique("group"))
        return dict(line.split("=", 1) for line in printed.splitlines() if "=" in line)

    return play


def test_transactions_are_committed_and_aborted(scenario, topic):
    assert scenario("transactions", topic) == {"committed": "[a, b, e]", "all": "[a, b, c, d, e]"}


def test_older_producers_are_fenced(scenario, topic):
    assert scenario("fencing", topic) == {
        "zombie": "ProducerFencedException",
        "successor": "InvalidProducerEpochException",
        "committed": "[successor]",
    }


def test_offsets_are_committed_with_what_was_made_of_them(scenario, make_topic):
    assert scenario("consumeAndProduce", make_topic(partitions=2)) == {
        "afterAbort": "null",
        "afterCommit": "10 m",
        "outputs": "10",
    }


def test_transactions_are_described_and_a_hanging_one_is_aborted(scenario, topic):
    assert scenario("administration", topic) == {
        "state": "Ongoing 1 60000",
        "listed": "1",
        "producers": "1",
        "aborted": "done",
        "afterwards": "0",
        "unknown": "TransactionalIdNotFoundException",
    }


def test_a_consumer_group_shares_its_partitions(scenario, make_topic):
    assert scenario("consumerGroup", make_topic(partitions=4)) == {
        "read": "20",
        "alone": "[0, 1, 2, 3]",
        "together": "true",
        "all": "[0, 1, 2, 3]",
        "described": "Consumer Stable 2 uniform",
        "againAlone": "true",
        "committed": "7",
        "notEmpty": "GroupNotEmptyException",
        "deleted": "done",
    }


def test_a_consumer_group_follows_a_pattern(scenario, make_topic):
    assert scenario("pattern", make_topic(partitions=4)) == {
        "matched": "true",
        "newTopic": "true",
        "newPartition": "true",
        "bad": "InvalidRegularExpression",
    }


def test_a_living_group_changes_its_protocol_and_back(scenario, make_topic):
    assert scenario("upgrade", make_topic(partitions=4)) == {
        "classic": "10",
        "together": "true",
        "upgraded": "Consumer",
        "alone": "true",
        "downgraded": "Classic",
        "committed": "10",
    }


def test_a_static_member_gets_back_what_it_had(scenario, make_topic):
    assert scenario("staticMember", make_topic(partitions=4)) == {"together": "true", "back": "true", "same": "true"}


def test_a_share_group_goes_on_behind_what_was_acknowledged(scenario, topic):
    assert scenario("shareImplicit", topic) == {"read": "50 50", "next": "v50 10"}


def test_a_share_group_counts_deliveries(scenario, topic):
    once = [f"v{i}:1" for i in (0, 1, 3, 4, 6, 7)] + [f"v{i}:3" for i in (2, 5, 8)]
    assert scenario("shareExplicit", topic) == {"deliveries": f"[{', '.join(sorted(once))}]"}


def test_two_members_of_a_share_group_read_one_partition(scenario, topic):
    assert scenario("shareTogether", topic) == {"described": "Stable 2", "missing": "0", "twice": "0", "both": "true"}
