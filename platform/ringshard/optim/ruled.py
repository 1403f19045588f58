"""One optimizer whose groups of parameters follow different update rules."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer

from ringshard.config.schema.optimizer import EMA
from ringshard.model.init import local
from ringshard.optim.roles import Parameter
from ringshard.optim.slot import Slot, zeros


@dataclass(frozen=True)
class Rates:
    """What of a step differs from group to group, and from step to step."""

    lr: float
    """Learning rate."""
    decay: float
    """Decoupled weight decay."""


class Rule(Protocol):
    """How a group of parameters is updated."""

    name: str

    def states(self, parameters: Sequence[Parameter]) -> list[dict[str, Tensor]]:
        """State of each parameter before the first step, with a 0-dim `step`; made once."""
        ...

    def step(self, slots: Sequence[Slot], rates: Rates, ok: Tensor) -> None:
        """Updates the parameters that have a gradient where `ok` (0-dim bool), else nothing: no
        weight, no state. All ranks call it with the same slots."""
        ...


@dataclass(frozen=True)
class Group:
    """Parameters with one rule and one weight decay."""

    rule: Rule
    parameters: Sequence[Parameter]
    weight_decay: float
    lr_scale: float = 1.0
    """Its learning rate over that of the optimizer."""


class Ruled(Optimizer):
    """torch's interface to groups of rules.

    State exists from the start, for parameters that get no gradient too, so that it can be saved at
    any time on any rank. With the attribute `found_inf` (0-dim, 1 where a gradient is not finite)
    a step changes nothing; that is decided on the device.
    """

    _step_supports_amp_scaling = True

    def __init__(
        self, groups: Sequence[Group], lr: float, seed: int = 0, ema_decay: float = 0.0
    ) -> None:
        """seed: of random rounding, which takes place where weights are bf16; ema_decay: of an
        average of the weights, 0 for none."""
        self.ema_decay = ema_decay
        self.rules = [group.rule for group in groups]
        self.found_inf: Tensor | None = None
        named = [
            {
                "params": [(p.name, p.tensor) for p in group.parameters],
                "lr_scale": group.lr_scale,
                "lr": lr * group.lr_scale,
                "weight_decay": group.weight_decay,
            }
            for group in groups
        ]
        super().__init__(named, {"lr": lr, "weight_decay": 0.0})
        self.slots: list[list[Slot]] = []
        for group in groups:
            states = group.rule.states(group.parameters)
            self.slots.append(
                [
                    Slot(p.name, p.tensor, s, seed)
                    for p, s in zip(group.parameters, states, strict=True)
                ]
            )
            for slot in self.slots[-1] if ema_decay else ():
                slot.state[EMA] = zeros(slot.parameter)
                slot.held(EMA).copy_(slot.weight.detach())
            self.state.update({slot.parameter: slot.state for slot in self.slots[-1]})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Updates all parameters that have a gradient."""
        assert closure is None, "no rule evaluates the loss again"
        for index, slots in enumerate(self.slots):
            if slots:
                self.step_slots(index, slots, self._ok())

    def step_slots(self, index: int, slots: Sequence[Slot], ok: Tensor) -> None:
        """Updates some parameters of group `index`, all of them where they are sharded."""
        group = self.param_groups[index]
        self.rules[index].step(slots, Rates(group["lr"], group["weight_decay"]), ok)
        for slot in slots if self.ema_decay else ():
            slot.keep(EMA, torch.lerp(slot.held(EMA), slot.weight, 1 - self.ema_decay), ok)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Within it the weights are their averages. No weight may be gathered when it begins or
        ends."""
        slots = [slot for group in self.slots for slot in group]
        before = [local(slot.parameter).detach().clone() for slot in slots]
        for slot in slots:
            local(slot.parameter).detach().copy_(slot.held(EMA))
        try:
            yield
        finally:
            for slot, weight in zip(slots, before, strict=True):
                local(slot.parameter).detach().copy_(weight)

    def _ok(self) -> Tensor:
        if self.found_inf is not None:
            return self.found_inf == 0
        device = local(self.param_groups[0]["params"][0]).device
        return torch.ones((), dtype=torch.bool, device=device)

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Fills the state in place; hyperparameters stay those of the configuration.

        torch's own casts state to its parameter's format, codes of 8 bits too (pytorch#43706).
        Raises ValueError where a tensor has another format or shape.
        """
        keys = [key for group in state_dict["param_groups"] for key in group["params"]]
        slots = [slot for group in self.slots for slot in group]
        for index, slot in zip(keys, slots, strict=True):
            for key, value in slot.state.items():
                other = state_dict["state"][index][key]
                if (other.dtype, other.shape) != (value.dtype, value.shape):
                    raise ValueError(
                        f"{slot.name}.{key} is {other.dtype} {tuple(other.shape)} there, "
                        f"{value.dtype} {tuple(value.shape)} here"
                    )
                local(value).copy_(local(other))
