"""`python -m ringshard.tracking.sweep_end SWEEP` tells MLflow where a sweep stands that a command
has been at work on: no member may have ended after it."""

import sys
from pathlib import Path

from ringshard.errors import ConfigError
from ringshard.tracking import shipper
from ringshard.tracking.ledger import Ledger


def main() -> int:
    """2 with one sentence where MLflow can't be told now."""
    members = [file.parent for file in sorted(Path(sys.argv[1]).glob("*/run.json"))]
    shipped = [member for member in members if Ledger.noted(member)]
    try:
        if shipped:
            shipper.tell_sweep(shipped[-1])
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
