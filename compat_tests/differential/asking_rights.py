"""One question, asked by users with different rights; each answer is written down under what its asker may do.

    nobody                          no rights at all
    with READ of GROUP group        one of the rights alone, if there are several
    without READ of GROUP group     all of them, and a rule beside them that denies this one
    with all                        all of them

The last is asked last: what a request changes is not changed before, unless one of several rights is enough.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from compat_tests.differential.conversation import Talk
from compat_tests.differential.logins import USERS
from compat_tests.differential.random_values import RANKED_BY
from compat_tests.differential.scenarios.acls import ALLOW, ANY, DENY, LITERAL, find, gone, rule

from ottla.server.dispatch.access import CLUSTER_NAME, AclOperation, ResourceType
from ottla.wire.messages.acls import AclCreation, CreateAclsRequest, DeleteAclsRequest
from ottla.wire.schema import Array, Message, Struct


class Right(NamedTuple):
    operation: AclOperation
    resource_type: ResourceType
    name: str = CLUSTER_NAME
    pattern: int = LITERAL

    def rule(self, user: str, permission: int) -> AclCreation:
        return rule(self.name, self.operation, permission, who=f"User:{user}", kind=self.pattern, of=self.resource_type)

    def __str__(self) -> str:
        named = "" if self.name == CLUSTER_NAME else f" {self.name}"
        return f"{self.operation.name} of {self.resource_type.name}{named}"


ALSO_RANKED_BY = ("partition", "user", "principal", "operation", "error_code")
Question = Message | Callable[[], Message]


def everybody_asks(
    talk: Talk,
    question: Question,
    *rights: Right,
    arrange: Callable[[Any], Any] | None = None,
    after_each: Callable[[], Any] = lambda: None,
) -> None:
    """`question` makes a new request for each user, if it is no request. `arrange` comes after an order of its own."""
    rules: dict[str, list[tuple[Right, int]]] = {"nobody": []}
    if len(rights) > 1:
        rules |= {f"with {each}": [(each, ALLOW)] for each in rights}
    everything = [(each, ALLOW) for each in rights]
    rules |= {f"without {each}": [*everything, (each, DENY)] for each in rights}
    rules["with all"] = everything
    labels = {who: who.replace(f"-{talk.run}", "") for who in rules}
    talk.users |= dict(zip(labels.values(), USERS[: len(rules)], strict=True))
    wanted = [each.rule(talk.users[labels[who]], how) for who in rules for each, how in rules[who]]
    _allow(talk, wanted)
    for who in labels.values():
        request = question if isinstance(question, Message) else question()
        talk.ask(request, of=who, arrange=lambda answer: _arranged(talk, answer, arrange))
        after_each()
        talk.hang_up(who)
    _forget(talk)


def _allow(talk: Talk, wanted: Sequence[AclCreation]) -> None:
    """Makes the rules, and returns when broker and controller of Apache Kafka obey them."""
    # The second is made when the broker knows the first: by then it has become known to the controller as well.
    for number, some in ((len(wanted), list(wanted)), (len(wanted) + 1, [rule("after the others", who=_of(USERS[0]))])):
        answer = talk.do(CreateAclsRequest(creations=some))
        assert not any(each.error_code for each in answer.results), answer
        _until_known(talk, number)


def _forget(talk: Talk) -> None:
    filters = [gone(find(None, of=ResourceType.ANY, who=_of(user))) for user in USERS]
    talk.do(DeleteAclsRequest(filters=filters))
    _until_known(talk, 0)


def _until_known(talk: Talk, count: int) -> None:
    everybody = {_of(user) for user in USERS}
    talk.until(
        find(None, ANY, of=ResourceType.ANY),
        lambda answer: sum(rule.principal in everybody for each in answer.resources for rule in each.acls) == count,
    )


def _of(user: str) -> str:
    return f"User:{user}"


# ------------------------------------------------------------------ the order of answers


def only_ours(talk: Talk) -> Callable[[Any], None]:
    """Of answers about all there is, leaves what this telling has made."""

    def arrange(answer: Any) -> None:
        for name, items in _lists(answer):
            setattr(answer, name, [each for each in items if talk.run in "".join(_rank(talk, each))])

    return arrange


def _arranged(talk: Talk, answer: Any, arrange: Callable[[Any], Any] | None) -> None:
    _in_order(talk, answer)
    if arrange is not None:
        arrange(answer)


def _in_order(talk: Talk, struct: Struct) -> None:
    """Kafka answers in the order of hash tables. By names and errors; ids are others in each telling."""
    for name, items in _lists(struct):
        for each in items:
            _in_order(talk, each)
        setattr(struct, name, sorted(items, key=lambda each: _rank(talk, each)))
    for name in struct.wire_fields:
        inner = getattr(struct, name)
        if isinstance(inner, Struct):
            _in_order(talk, inner)


def _lists(struct: Struct) -> list[tuple[str, list[Any]]]:
    return [
        (name, getattr(struct, name))
        for name, field in struct.wire_fields.items()
        if isinstance(field.type, Array) and isinstance(field.type.item, type) and getattr(struct, name)
    ]


def _rank(talk: Talk, struct: Struct) -> tuple[str, ...]:
    return tuple(_text(talk, getattr(struct, name, "")) for name in (*RANKED_BY, *ALSO_RANKED_BY))


def _text(talk: Talk, value: Any) -> str:
    if isinstance(value, bytes):
        return talk.topics.get(value, "")
    return f"{value:012}" if isinstance(value, int) else str(value)
