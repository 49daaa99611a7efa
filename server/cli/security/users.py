"""ottla users [list | add | alter | delete]"""

from __future__ import annotations

import argparse
import secrets
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.server.cli.changes import Step, add_dry_run, add_yes, agree, carry_out, done_word, report, undo_command
from ottla.server.cli.client.cluster import check_answered, nearest
from ottla.server.cli.client.output import (
    RequestFailed,
    UsageError,
    print_json,
    print_line,
    print_table,
    say,
    shown_text,
)
from ottla.server.cli.command_line import EXIT_OK, count
from ottla.server.cli.on_cluster import Actions, read_input, run_action, wants_json
from ottla.server.security.scram_credentials import (
    HASHES,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BITS,
    SCRAM_512,
    TYPES,
    in_36_digits,
    salted_password,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.scram_credentials import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.server.cli.client.cluster import Cluster

DESCRIPTION = """\
Lists the users that may log in by SCRAM, adds and deletes some, or gives one another password. The password is asked for, or read
from a file or from stdin. It is salted here, and never sent.
"""

EXAMPLES = """\
examples:
  ottla users                                    list them
  ottla users add alice                          asks for the password twice
  ottla users add etl --password-file /run/secrets/etl --mechanism SCRAM-SHA-256
  pass show kafka/alice | ottla users alter alice --password-file -
  ottla users delete alice                       asks first; --yes does not
"""

PASSWORD_BYTES_MAX = 4096
_NUMBERS = {name: number for number, name in TYPES.items()}


class Login(NamedTuple):
    """User with a mechanism of SCRAM for which the user has a password."""

    user: str
    mechanism: str
    iterations: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions of `ottla users`; the default is `list`."""
    parser.set_defaults(names=[])
    actions = Actions(parser, "list", _list)
    listing = actions.add("list", "list users, without their passwords", _list)
    listing.add_argument("names", nargs="*", metavar="NAME", help="only these users")
    for name, what, act in (("add", "add a user", _add), ("alter", "give a user another password", _alter)):
        changing = actions.add(name, what, act)
        changing.add_argument("name", metavar="NAME")
        _add_mechanism(changing, SCRAM_512, f"(default: {SCRAM_512})")
        rounds = f"how often the password is hashed, {ITERATIONS_MIN} to {ITERATIONS_MAX} (default: {ITERATIONS_MIN})"
        changing.add_argument("--iterations", type=count, default=ITERATIONS_MIN, metavar="N", help=rounds)
        source = changing.add_mutually_exclusive_group()
        file = "take the password from the one line of this file; - is stdin"
        source.add_argument("--password-file", metavar="FILE", help=file)
        visible = "the password itself, which others on this machine can see, and the shell remembers"
        source.add_argument("--password", metavar="TEXT", help=visible)
        add_dry_run(changing)
    deleting = actions.add("delete", "take users their passwords, so that they cannot log in", _delete)
    deleting.add_argument("names", nargs="+", metavar="NAME")
    _add_mechanism(deleting, None, "(default: all that the user has)")
    add_dry_run(deleting)
    add_yes(deleting)


def _add_mechanism(parser: argparse.ArgumentParser, default: str | None, told: str) -> None:
    parser.add_argument("--mechanism", type=str.upper, choices=tuple(HASHES), default=default, help=f"{told}")


def run(options: argparse.Namespace) -> int:
    """Run the action in the command line; without one `list`."""
    return run_action(options)


# --- list


def _list(cluster: Cluster, options: argparse.Namespace) -> int:
    found = _logins(cluster, options.names)
    if wants_json(options):
        print_json([each._asdict() for each in found])
    elif not found:
        print_line("no users")
    else:
        print_table(("USER", "MECHANISM", "ITERATIONS"), found)
    return EXIT_OK


def _logins(cluster: Cluster, names: Sequence[str] = ()) -> list[Login]:
    """Request the users with their mechanisms, sorted; `names`: only these, which have to exist. Raises RequestFailed.

    The error for a missing user suggests the nearest name.
    """
    wanted = [UserName(name=each) for each in dict.fromkeys(names)] or None

    def ask() -> list[Login]:
        answer = cluster.ask_any(lambda broker: broker.ask(DescribeUserScramCredentialsRequest(users=wanted)))
        cluster.check("the users", answer.error_code, answer.error_message)
        found = []
        for each in answer.results:
            if each.error_code == ErrorCode.RESOURCE_NOT_FOUND:
                hint = nearest(each.user, list(dict.fromkeys(known.user for known in _logins(cluster))))
                raise RequestFailed(f"user {each.user} does not exist: {hint}`ottla users` lists those that do")
            cluster.check(f"user {each.user}", each.error_code, each.error_message)
            found += [
                Login(each.user, TYPES.get(info.mechanism, "unknown"), info.iterations)
                for info in each.credential_infos
            ]
        return sorted(found)

    return cluster.patiently(ask)


# --- add and alter


def _add(cluster: Cluster, options: argparse.Namespace) -> int:
    if _has(cluster, options.name, options.mechanism):
        raise RequestFailed(
            f"user {options.name} has a password for {options.mechanism} already: `ottla users alter` changes it"
        )
    undo = undo_command(options, "users", "delete", "--mechanism", options.mechanism, names=[options.name])
    return _set(cluster, options, "added", [undo])


def _alter(cluster: Cluster, options: argparse.Namespace) -> int:
    if not _has(cluster, options.name, options.mechanism):
        raise RequestFailed(f"user {options.name} has no password for {options.mechanism}: `ottla users add` gives one")
    return _set(cluster, options, "changed", [])


def _has(cluster: Cluster, name: str, mechanism: str) -> bool:
    # A request that names a missing user fails, so all users are requested.
    return any((each.user, each.mechanism) == (name, mechanism) for each in _logins(cluster))


def _set(cluster: Cluster, options: argparse.Namespace, done: str, undo: Sequence[str]) -> int:
    if not options.name:
        raise UsageError("the name of a user cannot be empty")
    if not ITERATIONS_MIN <= options.iterations <= ITERATIONS_MAX:
        raise UsageError(f"--iterations {options.iterations}: must be from {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    # A dry run does not prompt for a password.
    is_asked = options.password is None and options.password_file is None
    password = "" if options.dry_run and is_asked else _password(options)
    login = Login(options.name, options.mechanism, options.iterations)
    if not options.dry_run:
        salt = in_36_digits(secrets.randbits(SALT_BITS))
        upsertion = ScramCredentialUpsertion(
            name=login.user,
            mechanism=_NUMBERS[login.mechanism],
            iterations=login.iterations,
            salt=salt,
            salted_password=salted_password(login.mechanism, password, salt, login.iterations),
        )
        carry_out([Step(f"{login.user} is {done} for {login.mechanism}", partial(_change, cluster, [], [upsertion]))])
    show = partial(print_line, f"{login.user} {done_word(options)} {done} for {login.mechanism}")
    report(options, login._asdict() | {"done": done}, show, undo, "nobody keeps the former password")
    return EXIT_OK


def _password(options: argparse.Namespace) -> str:
    """Return the password from option, file, stdin or prompt. Raises UsageError, whose text never holds it."""
    if options.password is not None:
        password = _usable(options.password, "--password")
        say("a password in a command line is seen by others on this machine; --password-file or the prompt hides it")
        return password
    if options.password_file is not None:
        return _usable(_one_line(options.password_file), f"--password-file {options.password_file}")
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError("there is nobody to ask for the password: give --password-file FILE, or - for stdin")
    import getpass  # only where somebody types

    try:
        password = getpass.getpass(f"Password of {shown_text(options.name)}: ")
        again = getpass.getpass("Again: ")
    except EOFError:
        raise RequestFailed("nothing is changed") from None
    if again != password:
        raise UsageError("these are two passwords: nothing is changed")
    return _usable(password, "the password")


def _one_line(file: str) -> str:
    """Read a file, or stdin for "-", without the end of its line. Raises UsageError."""
    size_max = PASSWORD_BYTES_MAX + 2
    data = read_input("--password-file", file, size_max + 1)
    if len(data) > size_max:
        raise UsageError(f"--password-file {file}: is longer than {PASSWORD_BYTES_MAX} bytes")
    # Bytes that are no UTF-8 become surrogates, which no password can have.
    return data.decode("utf-8", "surrogateescape").removesuffix("\n").removesuffix("\r")


def _usable(password: str, where: str) -> str:
    if not password:
        raise UsageError(f"{where}: is empty")
    if "\n" in password or "\r" in password:
        raise UsageError(f"{where}: has more than one line")
    try:
        size = len(password.encode())
    except UnicodeEncodeError:
        raise UsageError(f"{where}: is not UTF-8") from None
    if size > PASSWORD_BYTES_MAX:
        raise UsageError(f"{where}: is longer than {PASSWORD_BYTES_MAX} bytes")
    return password


def _change(
    cluster: Cluster, deletions: list[ScramCredentialDeletion], upsertions: list[ScramCredentialUpsertion]
) -> None:
    request = AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)

    def ask() -> None:
        results = cluster.controller().ask(request).results
        for each in results:
            cluster.check(f"user {each.user}", each.error_code, each.error_message)
        check_answered(
            "users",
            [*(each.name for each in deletions), *(each.name for each in upsertions)],
            (each.user for each in results),
        )

    cluster.patiently(ask)


# --- delete


def _delete(cluster: Cluster, options: argparse.Namespace) -> int:
    known = _logins(cluster, options.names)
    found = [each for each in known if options.mechanism in (None, each.mechanism)]
    for name in options.names:
        if all(each.user != name for each in found):
            raise RequestFailed(f"user {name} has no password for {options.mechanism}")
    if not options.dry_run:
        agree(options, f"Delete the passwords of {', '.join(f'{each.user} for {each.mechanism}' for each in found)}")
        # One request for each: Kafka rejects a user that occurs twice in a request.
        carry_out([_deletion(cluster, each) for each in found])

    def show() -> None:
        for each in found:
            print_line(f"{each.user} {done_word(options)} deleted for {each.mechanism}")

    value: dict[str, Any] = {"users": [each._asdict() for each in found]}
    report(options, value, show, [], "nobody keeps the passwords")
    return EXIT_OK


def _deletion(cluster: Cluster, login: Login) -> Step:
    deletion = ScramCredentialDeletion(name=login.user, mechanism=_NUMBERS[login.mechanism])
    return Step(f"{login.user} is deleted for {login.mechanism}", partial(_change, cluster, [deletion], []))
