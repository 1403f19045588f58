"""Which folders of a run are complete checkpoints: asked by ranks and by the submit side, so the
standard library alone."""

import re
from pathlib import Path

METADATA = ".metadata"
"""Written last by torch.distributed.checkpoint."""
TRAIN_STATE = "train_state.json"
"""The position of the run, written after it."""


def committed(root: Path) -> dict[int, Path]:
    """The complete checkpoints in `root` by their step, oldest first; none where there is no such
    folder."""
    folders = sorted(root.iterdir()) if root.is_dir() else []
    steps = [(re.fullmatch(r"step-(\d{8})", folder.name), folder) for folder in folders]
    return {int(step[1]): folder for step, folder in steps if step and is_complete(folder)}


def is_complete(checkpoint: Path) -> bool:
    """Whether the folder has both files that only a finished save leaves."""
    return all((checkpoint / name).is_file() for name in (TRAIN_STATE, METADATA))


def of_step(root: Path, step: int) -> Path:
    """Where the checkpoint after `step` steps lies."""
    return root / f"step-{step:08d}"
