"""Memory of the default job, and the largest tensor of a step beside the logits of a whole
batch."""

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.command import train
from benchmarks.loops import BATCH, ringshard, setting
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Largest(TorchDispatchMode):
    """Notes the largest tensor that any operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.elements, self.shape, self.operation = 0, (), ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and tensor.numel() > self.elements:
                self.elements, self.shape = tensor.numel(), tuple(tensor.shape)
                self.operation = str(func)
        return result


def run() -> list[dict[str, Any]]:
    """One row: peak resident memory of rank 0 of the default job, and the largest tensor of one
    step."""
    result = train("train.steps=20", "checkpoint.at_end=false")
    with tempfile.TemporaryDirectory() as folder:
        job = setting(Path(folder))
        # A vocabulary that makes the batch's logits the largest tensor by far, if they existed.
        job.model.config["vocab_size"] = 32_000
        trainer, steps = ringshard(job, Path(folder))
        with Largest() as largest:
            steps(1)
        trainer.close()
    return [
        {
            "default job, peak GiB per process": result["peak_memory_gib"],
            "largest tensor of a step": f"{largest.shape} by {largest.operation}",
            "its elements": largest.elements,
            "elements of the batch's logits": BATCH * job.data.seq_len * 32_000,
        }
    ]
