"""`python -m ottla`: the same as the `ottla` command."""

import sys

from ottla.server.commands.cli import main

if __name__ == "__main__":
    sys.exit(main())
