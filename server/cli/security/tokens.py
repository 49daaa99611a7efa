"""ottla tokens [list | create | renew | expire]"""

from __future__ import annotations

import argparse
import base64
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.server.cli.changes import Step, add_dry_run, add_yes, agree, carry_out, report, undo_command
from ottla.server.cli.client.cluster import failed
from ottla.server.cli.client.output import RequestFailed, UsageError, print_json, print_line, print_pairs, print_table
from ottla.server.cli.command_line import EXIT_OK, period_ms
from ottla.server.cli.on_cluster import Actions, run_action, wants_json
from ottla.server.cli.places import time_text
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delegation_tokens import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.server.cli.client.cluster import Cluster
    from ottla.wire.messages.delegation_tokens import CreateDelegationTokenResponse, DescribedDelegationToken

DESCRIPTION = """\
Makes, lists, renews and expires delegation tokens: whoever has a token's id and secret logs in with them by SCRAM as its owner. A
cluster has them if delegation.token.secret.key is set, and gives them to clients that are logged in, but not by a token.
"""

EXAMPLES = """\
examples:
  ottla tokens --command-config client.properties
                                                 list your tokens
  ottla tokens create --renewer alice --max-lifetime 1d
                                                 prints the secret, once
  ottla tokens renew TOKEN-ID --for 12h
  ottla tokens expire TOKEN-ID                   now; asks first, --yes does not
"""

BROKERS_CHOICE = -1
"""Period of a request for which the broker has a setting: delegation.token.max.lifetime.ms, delegation.token.expiry.time.ms."""
AT_ONCE = -1


class Token(NamedTuple):
    """Delegation token; principals are texts such as User:alice, times are ms since 1970."""

    token: str
    owner: str
    requester: str
    renewers: list[str]
    issued_ms: int
    expires_ms: int
    max_ms: int
    secret: str
    """The HMAC in Base64, with which its holder logs in."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions of `ottla tokens`; the default is `list`."""
    parser.set_defaults(owner=[], secrets=False)
    actions = Actions(parser, "list", _list)
    listing = actions.add("list", "list the tokens that you may see", _list)
    owner = "only tokens that this principal owns, asked for or may renew; repeatable"
    listing.add_argument("--owner", action="append", default=[], metavar="PRINCIPAL", help=owner)
    listing.add_argument("--secrets", action="store_true", help="print their secrets, too")
    creating = actions.add("create", "make a token, and print its secret", _create)
    creating.add_argument("--owner", metavar="PRINCIPAL", help="for another user (default: for yourself)")
    renewer = "who may renew it beside its owner; repeatable"
    creating.add_argument("--renewer", action="append", default=[], metavar="PRINCIPAL", help=renewer)
    longest = "how long it can be renewed at most, such as 7d (default: the broker's)"
    creating.add_argument("--max-lifetime", type=period_ms, default=BROKERS_CHOICE, metavar="TIME", help=longest)
    add_dry_run(creating)
    renewing = actions.add("renew", "let tokens expire later", _renew)
    renewing.add_argument("tokens", nargs="+", metavar="ID")
    until = "how long from now on, such as 12h (default: the broker's)"
    renewing.add_argument("--for", dest="period", type=period_ms, default=BROKERS_CHOICE, metavar="TIME", help=until)
    add_dry_run(renewing)
    expiring = actions.add("expire", "let tokens expire at once, or soon", _expire)
    expiring.add_argument("tokens", nargs="+", metavar="ID")
    after = "how long from now on, such as 10m (default: at once)"
    expiring.add_argument("--in", dest="period", type=period_ms, default=AT_ONCE, metavar="TIME", help=after)
    add_dry_run(expiring)
    add_yes(expiring)


def run(options: argparse.Namespace) -> int:
    """Run the action in the command line; without one `list`."""
    return run_action(options)


def _principal(text: str) -> tuple[str, str]:
    kind, separator, name = text.partition(":")
    kind, name = (kind, name) if separator else ("User", text)
    if not kind or not name:
        raise UsageError(f"{text!r} is no principal: it must be a user's name, or TYPE:NAME")
    return kind, name


# --- list


def _list(cluster: Cluster, options: argparse.Namespace) -> int:
    found = _tokens(cluster, options.owner)
    if wants_json(options):
        print_json([_as_json(each, with_secret=options.secrets) for each in found])
    elif not found:
        print_line("no tokens")
    else:
        rows = [
            (
                each.token,
                each.owner,
                " ".join(each.renewers) or None,
                time_text(each.expires_ms),
                time_text(each.max_ms),
                *([each.secret] if options.secrets else []),
            )
            for each in found
        ]
        headings = ("TOKEN", "OWNER", "RENEWERS", "EXPIRES", "AT MOST", *(["SECRET"] if options.secrets else []))
        print_table(headings, rows)
    return EXIT_OK


def _as_json(token: Token, *, with_secret: bool) -> dict[str, Any]:
    value = token._asdict()
    return value if with_secret else {key: each for key, each in value.items() if key != "secret"}


def _tokens(cluster: Cluster, owners: Sequence[str] = ()) -> list[Token]:
    wanted = [
        DescribeDelegationTokenOwner(principal_type=kind, principal_name=name) for kind, name in map(_principal, owners)
    ]

    def ask() -> list[Token]:
        request = DescribeDelegationTokenRequest(owners=wanted or None)
        answer = cluster.ask_any(lambda broker: broker.ask(request))
        if answer.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED:
            hint = "the brokers have no delegation.token.secret.key, which turns tokens on"
            raise failed("the tokens", answer.error_code, hint)
        cluster.check("the tokens", answer.error_code)
        return sorted(map(_described, answer.tokens))

    return cluster.patiently(ask)


def _described(found: DescribedDelegationToken) -> Token:
    owner = f"{found.principal_type}:{found.principal_name}"
    requester = f"{found.token_requester_principal_type}:{found.token_requester_principal_name}"
    return Token(
        found.token_id,
        owner,
        requester if requester != ":" else owner,
        sorted(f"{each.principal_type}:{each.principal_name}" for each in found.renewers),
        found.issue_timestamp,
        found.expiry_timestamp,
        found.max_timestamp,
        base64.b64encode(found.hmac).decode(),
    )


# --- create


def _create(cluster: Cluster, options: argparse.Namespace) -> int:
    kind, name = _principal(options.owner) if options.owner else ("", "")
    renewers = [
        CreatableRenewers(principal_type=of, principal_name=each) for of, each in map(_principal, options.renewer)
    ]
    # A user who may not list tokens may not make any either. Nothing else can be checked in advance.
    _tokens(cluster, ())
    if options.dry_run:
        report(options, {"token": None}, lambda: print_line("a token could be made"), [])
        return EXIT_OK
    request = CreateDelegationTokenRequest(
        owner_principal_type=kind or None,
        owner_principal_name=name or None,
        renewers=renewers,
        max_lifetime_ms=options.max_lifetime,
    )
    answers: list[CreateDelegationTokenResponse] = []
    carry_out([Step("a token is made", lambda: answers.append(_made(cluster, request)))])
    [made] = answers
    secret = base64.b64encode(made.hmac).decode()
    value = {
        "token": made.token_id,
        "secret": secret,
        "owner": f"{made.principal_type}:{made.principal_name}",
        "expires_ms": made.expiry_timestamp_ms,
        "max_ms": made.max_timestamp_ms,
    }
    pairs = [("token", made.token_id), ("secret", secret), ("owner", str(value["owner"]))]
    pairs += [("expires", time_text(made.expiry_timestamp_ms)), ("at most", time_text(made.max_timestamp_ms))]
    undo = undo_command(options, "tokens", "expire", names=[made.token_id])
    report(options, value, lambda: print_pairs(pairs), [undo])
    return EXIT_OK


def _made(cluster: Cluster, request: CreateDelegationTokenRequest) -> CreateDelegationTokenResponse:
    # Older versions of the request have no owner, so that the broker would make a token for the requester.
    if request.owner_principal_name and cluster.controller().version_of(CreateDelegationTokenRequest) < 3:
        raise RequestFailed("the broker makes tokens only for whoever asks: leave out --owner")

    def ask() -> CreateDelegationTokenResponse:
        answer: CreateDelegationTokenResponse = cluster.controller().ask(request)
        cluster.check("the token", answer.error_code)
        return answer

    return cluster.patiently(ask)


# --- renew and expire


def _renew(cluster: Cluster, options: argparse.Namespace) -> int:
    return _move(cluster, options, "renewed", RenewDelegationTokenRequest)


def _expire(cluster: Cluster, options: argparse.Namespace) -> int:
    return _move(cluster, options, "expired", ExpireDelegationTokenRequest)


def _move(cluster: Cluster, options: argparse.Namespace, done: str, kind: type[Any]) -> int:
    """Change when tokens expire, by requests of `kind`. Tokens are named by their ids: a secret belongs in no command."""
    known = {each.token: each for each in _tokens(cluster)}
    names = list(dict.fromkeys(options.tokens))
    for name in names:
        if name not in known:
            raise RequestFailed(
                f"there is no token {name}, or you may not see it: `ottla tokens` lists those that you may"
            )
    is_removal = kind is ExpireDelegationTokenRequest and options.period == AT_ONCE
    expires: dict[str, int] = {}
    if not options.dry_run:
        if is_removal:
            agree(options, f"Let {', '.join(f'{name} of {known[name].owner}' for name in names)} expire at once")
        carry_out(
            [Step(f"{each} is {done}", partial(_ask, cluster, known[each], options, kind, expires)) for each in names]
        )
    rows = [(each, known[each].owner, time_text(known[each].expires_ms), _new_time(each, expires)) for each in names]
    value = {
        "tokens": [
            {
                "token": each,
                "owner": known[each].owner,
                "expires_ms_before": known[each].expires_ms,
                "expires_ms": expires.get(each),
            }
            for each in names
        ]
    }
    show = partial(print_table, ("TOKEN", "OWNER", "EXPIRED", "EXPIRES"), rows)
    report(options, value, show, [], "a token that has expired is gone" if is_removal else "")
    return EXIT_OK


def _new_time(token: str, expires: dict[str, int]) -> str | None:
    return time_text(expires[token]) if token in expires else None


def _ask(cluster: Cluster, token: Token, options: argparse.Namespace, kind: type[Any], expires: dict[str, int]) -> None:
    hmac = base64.b64decode(token.secret)
    period = "renew_period_ms" if kind is RenewDelegationTokenRequest else "expiry_time_period_ms"
    request = kind(hmac=hmac, **{period: options.period})

    def ask() -> None:
        answer = cluster.controller().ask(request)
        cluster.check(f"token {token.token}", answer.error_code)
        expires[token.token] = answer.expiry_timestamp_ms

    cluster.patiently(ask)
