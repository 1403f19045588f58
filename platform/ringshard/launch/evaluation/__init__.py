"""jobs/evaluate.py: a run or a folder with a model, measured on a split."""

from ringshard.launch.evaluation.source import beneath, spelled_out
from ringshard.launch.evaluation.start import start

__all__ = ["beneath", "spelled_out", "start"]
