"""What a checkpoint holds: tensors by name, and the position of the run."""

import json
import math
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from pathlib import Path

from torch import Tensor, nn
from torch.optim import Optimizer

from ringshard.checkpoint.directory import TRAIN_STATE
from ringshard.config.schema.optimizer import EMA
from ringshard.errors import ConfigError
from ringshard.model.names import canonical, stored_tensors
from ringshard.parallel.parallelize import reshard

MODEL = "model."
OPTIMIZER = "optimizer."


@dataclass(frozen=True)
class TrainState:
    """Position of a run between two steps; with it any rank knows the rest of the data."""

    step: int
    """Optimizer steps done."""
    tokens_seen: int
    """Target tokens trained on, over all ranks."""
    rows_read: int
    """Rows of the data order used up, over all ranks."""
    noise: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """Running averages of the gradient noise scale: see NoiseScale."""

    def write(self, checkpoint: Path) -> None:
        """Stores it in the folder `checkpoint`."""
        (checkpoint / TRAIN_STATE).write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, checkpoint: Path) -> "TrainState":
        """What `write` stored in the folder `checkpoint`; raises ConfigError where it is broken."""
        try:
            state = cls(**json.loads((checkpoint / TRAIN_STATE).read_text(encoding="utf-8")))
            counts = (state.step, state.tokens_seen, state.rows_read)
            if not all(type(value) is int and 0 <= value < 2**63 for value in counts):
                raise ValueError(f"{state} is no position")
            if len(state.noise) != 2 or not all(map(math.isfinite, state.noise)):
                raise ValueError(f"noise={state.noise} is no pair of averages")
            return state
        except (OSError, ValueError, TypeError) as error:
            raise ConfigError(
                f"checkpoint {checkpoint} has no {TRAIN_STATE} that can be read ({error}): "
                "choose another checkpoint"
            ) from error


def tensors(model: nn.Module, optimizer: Optimizer | None) -> dict[str, Tensor]:
    """The tensors themselves, not copies, by names that do not depend on wrappers or sharding.

    A tied weight has one name. torch's get_optimizer_state_dict is not used: on an optimizer
    without state it makes a step to get one (pytorch#164929), and it keeps Python objects.
    """
    reshard(model)  # after an evaluation the full weights are in place of the shards
    found = {MODEL + name: tensor for name, tensor in stored_tensors(model).items()}
    if optimizer is not None:
        found |= {OPTIMIZER + name: t for name, t in _optimizer_tensors(model, optimizer).items()}
    return found


def averages(model: nn.Module, stored: Collection[str]) -> dict[str, Tensor]:
    """The model's tensors by the names under which their averages are `stored`."""
    return {average_of(name, stored): tensor for name, tensor in tensors(model, None).items()}


def average_of(name: str, stored: Collection[str]) -> str:
    """Under which name the average of the model's tensor `name` is `stored`; `name` where there is
    none, as of a buffer."""
    average = f"{OPTIMIZER}{name.removeprefix(MODEL)}.{EMA}"
    return average if average in stored else name


def require_averages(stored: Collection[str]) -> None:
    """Raises ConfigError where no weight has an average."""
    if not any(name.startswith(OPTIMIZER) and name.endswith(f".{EMA}") for name in stored):
        raise ConfigError(
            "the checkpoint has no averages of weights: take the weights themselves, or train with"
            " optimizer.ema_decay"
        )


def _optimizer_tensors(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """State by parameter name and key; hyperparameters are the config's and are not stored."""
    names: dict[Tensor, str] = {
        parameter: canonical(name) for name, parameter in model.named_parameters()
    }
    found = {
        f"{names[parameter]}.{key}": value
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
    }
    for name, value in found.items():
        if not isinstance(value, Tensor):
            raise ConfigError(
                f"{type(optimizer).__name__} keeps {name} as a {type(value).__name__}, and a "
                "checkpoint holds tensors only: make it one (0-dim for a number)"
            )
    return found
