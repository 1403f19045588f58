"""Checkpoints: complete and verified, or refused; without effect on the training, for any number of
ranks."""

from ringshard.checkpoint.directory import committed
from ringshard.checkpoint.load import latest, load, restore
from ringshard.checkpoint.manifest import DamagedError
from ringshard.checkpoint.save import Place, save
from ringshard.checkpoint.saver import Saver
from ringshard.checkpoint.state import TrainState

__all__ = [
    "DamagedError",
    "Place",
    "Saver",
    "TrainState",
    "committed",
    "latest",
    "load",
    "restore",
    "save",
]
