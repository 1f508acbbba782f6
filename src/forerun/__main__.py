"""The command `forerun`, and `python -m forerun`.

Importing the command line takes a few tenths of a second; an interrupt in that time ends as one later does: one line, 130.
"""

from __future__ import annotations

import sys

from forerun.cli import INTERRUPTED


def main() -> None:
    """Entry point of the command line."""
    try:
        from forerun.cli.main import run

        code = run()
    except KeyboardInterrupt:
        sys.stderr.write(f"{INTERRUPTED}\n")
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
