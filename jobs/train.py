"""Trains a language model: `python jobs/train.py [group=option …] [key=value …] [--dry-run]`."""

import sys

from ringshard.entry import train

if __name__ == "__main__":
    sys.exit(train())
