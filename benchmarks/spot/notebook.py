"""The numbers of `forerun reproduce bamboo-notebook` that the domain's page states: levels, switches, growth rules.

    python benchmarks/spot/notebook.py [--json]

Nothing here is a speed: the rows depend on seeds only. Exit code 1 if a judged number is outside its tolerance.
"""

from __future__ import annotations

import argparse
import json
import sys

import forerun
from forerun.core.errors import DataError


def main() -> int:
    """Print the rows; 1 if a judged one does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    try:
        found = forerun.reproduce("bamboo-notebook")
    except DataError as error:
        print(f"skipped: {error}", file=sys.stderr)
        return 0
    rows = {row.name: row.data() for row in found.rows}
    if given.json:
        print(json.dumps(rows))
    else:
        for name, row in rows.items():
            print(f"{name:<70} {row['published']} {row['compat']} {row['corrected']}")
    return int(bool(found.failed))


if __name__ == "__main__":
    sys.exit(main())
