"""kafka-go, sarama and Terraform's provider: clients/go_admin/main.go makes topics and deletes them by way of one address.

Tests of clusters and of workers do the same with each of their addresses.
"""

import pytest


@pytest.mark.parametrize("client", ["kafka-go", "sarama", "terraform"])
def test_topics_are_made_and_deleted(go_admin, bootstrap, client):
    [steps] = go_admin(client, bootstrap)
    assert {"create", "delete"} <= steps.keys() and set(steps.values()) == {"<nil>"}, steps
