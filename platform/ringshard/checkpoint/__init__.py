"""Checkpoints: complete or not listed, without effect on the training, for any number of ranks."""

from ringshard.checkpoint.load import latest, load
from ringshard.checkpoint.save import save
from ringshard.checkpoint.state import TrainState

__all__ = ["TrainState", "latest", "load", "save"]
