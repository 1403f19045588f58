"""Evaluates a model: `python jobs/evaluate.py run=FOLDER|model=FOLDER [key=value …]`."""

import sys

from ringshard.entry import evaluate

if __name__ == "__main__":
    sys.exit(evaluate())
