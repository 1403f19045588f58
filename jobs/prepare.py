"""Prepares the data of a run: `python jobs/prepare.py [data=option …] [key=value …]`."""

import sys

from ringshard.entry import prepare

if __name__ == "__main__":
    sys.exit(prepare())
