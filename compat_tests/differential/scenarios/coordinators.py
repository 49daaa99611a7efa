"""Who coordinates: keys of each type, alone and in lists."""

from compat_tests.differential.conversation import Talk, scenario

from ottla.wire.messages.find_coordinator import FindCoordinatorRequest

GROUP, TRANSACTION, SHARE = 0, 1, 2
COORDINATOR_NOT_AVAILABLE = 15
SHARE_KEY = "AAAAAAAAAAAAAAAAAAAAAQ:0"


def find(*keys: str, key_type: int = GROUP) -> FindCoordinatorRequest:
    """For any version; the old ones know only the first key."""
    return FindCoordinatorRequest(key=keys[0] if keys else "", key_type=key_type, coordinator_keys=list(keys))


@scenario(FindCoordinatorRequest)
def coordinators_of_groups(talk: Talk) -> None:
    group = talk.group()
    other = talk.group("other")
    for keys in ((group,), ("",), (group, other), (group, group), ("", group, ""), ("é" * 10,), ("x" * 300,), ()):
        talk.ask(find(*keys))


@scenario(FindCoordinatorRequest, versions="1+")  # version 0 knows groups only
def types_that_do_not_exist(talk: Talk) -> None:
    group = talk.group()
    for key_type in (3, 127, -1, -128):
        talk.ask(find(group, key_type=key_type), label=f"type {key_type}")
        talk.ask(find(group, "other", key_type=key_type), label=f"type {key_type}, two keys")


@scenario(FindCoordinatorRequest, versions="1+")  # version 0 knows groups only
def coordinators_of_transactions(talk: Talk) -> None:
    request = find(talk.name("id"), "", key_type=TRANSACTION)
    talk.until(
        request, lambda answer: all(each.error_code != COORDINATOR_NOT_AVAILABLE for each in answer.coordinators)
    )
    talk.ask(request)


@scenario(FindCoordinatorRequest, versions="1-5")  # version 0 knows groups only
def shares_before_they_existed(talk: Talk) -> None:
    for key in (f"group:{SHARE_KEY}", "group"):
        talk.ask(find(key, key_type=SHARE))
        talk.ask(find(key, "other", key_type=SHARE))


@scenario(FindCoordinatorRequest, versions="6+")  # before there are none
def coordinators_of_shares(talk: Talk) -> None:
    request = find(f"group:{SHARE_KEY}", key_type=SHARE)
    talk.until(request, lambda answer: answer.coordinators[0].error_code != COORDINATOR_NOT_AVAILABLE)
    talk.ask(request)
    for key in ("group", ""):
        talk.ask(find(key, key_type=SHARE))
