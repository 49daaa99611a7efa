"""ottla logs DIR|FILE ... [--records] [--offsets | --transactions | --share-state] [--json]"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.server.cli.command_line import EXIT_FAILED, EXIT_OK, EXIT_USAGE, fail

if TYPE_CHECKING:
    from ottla.server.cli.inspection.rows import Decoder

DESCRIPTION = """\
Shows what is in the files of a log, as kafka-dump-log.sh does: batches with all that their headers say, records, indexes, time
indexes, aborted transactions, producers, leader epochs. Nothing is changed, and a broker may run meanwhile; what it writes
just then may look torn.

A folder stands for all that it holds: one partition, or all partitions of a data directory. Whatever is damaged is told with
its position and the reason, and the command ends with 1. Characters that a terminal would obey are shown as escapes.
"""

EXAMPLES = """\
examples:
  ottla logs /srv/ottla/orders-0                               batches and indexes of a partition
  ottla logs /srv/ottla/orders-0/*.log --records               with the records
  ottla logs /srv/ottla/__consumer_offsets-7 --offsets         what groups have committed, as JSON
  ottla logs /srv/ottla/__transaction_state-3 --transactions
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `ottla logs`; long option names are those of kafka-dump-log.sh."""
    parser.add_argument("paths", nargs="+", type=Path, metavar="FILE", help="files, or folders of partitions")
    parser.add_argument("--records", "--print-data-log", action="store_true", help="show the records, too")
    decoders = parser.add_mutually_exclusive_group()
    for names, topic in (
        (("--offsets", "--offsets-decoder"), "__consumer_offsets"),
        (("--transactions", "--transaction-log-decoder"), "__transaction_state"),
        (("--share-state", "--share-group-state-decoder"), "__share_group_state"),
    ):
        decoders.add_argument(*names, action="store_true", help=f"show the records of {topic}, decoded")
    parser.add_argument("--json", action="store_true", help="an object a line, for programs")


def run(options: argparse.Namespace) -> int:
    """Print the contents of all given files; return the exit code."""
    from ottla.server.cli.inspection import rows
    from ottla.server.cli.inspection.dump import readable_files

    decoder = None
    if options.offsets:
        decoder = rows.offsets_decoder
    elif options.transactions:
        decoder = rows.transactions_decoder
    elif options.share_state:
        decoder = rows.share_state_decoder
    try:
        files = [file for path in options.paths for file in readable_files(path)]
    except OSError as error:
        return fail(f"cannot read {error.filename}: {error.strerror}", EXIT_USAGE)
    if not files:
        return fail(f"there are no files of a log in {', '.join(map(str, options.paths))}", EXIT_USAGE)
    are_good = [_show(each, is_json=options.json, shows_records=options.records, decoder=decoder) for each in files]
    return EXIT_OK if all(are_good) else EXIT_FAILED


def _show(file: Path, *, is_json: bool, shows_records: bool, decoder: Decoder | None) -> bool:
    """Print a file's rows, and its problems on stderr; return False if there are problems."""
    from ottla.server.cli.inspection.dump import NoLogFile, rows_of
    from ottla.server.cli.inspection.rows import as_json_line, as_text, escaped

    is_good = True

    def complain(of_file: Path, reason: str) -> None:
        nonlocal is_good
        is_good = False
        fail(escaped(f"{of_file}: {reason}"), EXIT_FAILED)

    if not is_json:
        print(f"Dumping {escaped(str(file))}")
    try:
        for is_part, row in rows_of(file, complain, shows_records=shows_records, decoder=decoder):
            print(as_json_line({"file": str(file), **row}) if is_json else as_text(row, "| " if is_part else ""))
    except OSError as error:
        complain(file, error.strerror or str(error))
    except NoLogFile as error:
        complain(file, str(error))
    return is_good
