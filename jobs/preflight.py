"""Measures links, versions, clocks and the shared disk: `python jobs/preflight.py hardware=…`."""

import sys

from ringshard.entry import preflight

if __name__ == "__main__":
    sys.exit(preflight())
