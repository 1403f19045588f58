"""AdamW, by torch's own kernel; and Adam's direction alone, for rules that make their own step of
it."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from ringshard.config.schema import optimizer as schema
from ringshard.optim.hyperball import Spheres
from ringshard.optim.layout import Layout
from ringshard.optim.roles import Parameter
from ringshard.optim.ruled import Rates
from ringshard.optim.slot import Slot, counter, shard_group, zeros


def moments(parameter: Parameter) -> dict[str, Tensor]:
    """Zero moments in fp32, under the names that torch gives them."""
    tensor = parameter.tensor
    return {"step": counter(tensor), "exp_avg": zeros(tensor), "exp_avg_sq": zeros(tensor)}


class AdamW:
    """θ ← θ (1 - η λ) - η m̂ / (√v̂ + ε), with m, v decaying averages of g and g², m̂ = m / (1 - β₁ᵗ),
    v̂ = v / (1 - β₂ᵗ) (Loshchilov & Hutter 2019, arXiv:1711.05101)."""

    name = "adamw"

    def __init__(self, config: schema.Adam) -> None:
        self.config = config

    def states(self, parameters: Sequence[Parameter]) -> list[dict[str, Tensor]]:
        """See Rule."""
        return [moments(parameter) for parameter in parameters]

    def step(self, slots: Sequence[Slot], rates: Rates, ok: Tensor) -> None:
        """See Rule. Weights in bf16 one at a time: each takes an fp32 copy."""
        slots = [slot for slot in slots if slot.parameter.grad is not None]
        short = [slot for slot in slots if slot.parameter.dtype is not torch.float32]
        self._fused([slot for slot in slots if slot not in short], rates, ok)
        for slot in short:
            slot.write(self._fused([slot], rates, ok)[0], ok)

    def _fused(self, slots: Sequence[Slot], rates: Rates, ok: Tensor) -> list[Tensor]:
        """The weights after the step: changed in place where they are fp32."""
        weights = [slot.weight for slot in slots]
        if slots:
            adamw(
                weights,
                [g for slot in slots if (g := slot.gradient) is not None],
                [slot.held("exp_avg") for slot in slots],
                [slot.held("exp_avg_sq") for slot in slots],
                [],
                [slot.state["step"] for slot in slots],
                fused=True,
                found_inf=(~ok).float(),
                amsgrad=False,
                beta1=self.config.beta1,
                beta2=self.config.beta2,
                lr=rates.lr,
                weight_decay=rates.decay,
                eps=self.config.eps,
                maximize=False,
            )
        return weights


class AdamWHyperball:
    """W ← R · N(W - η R N(m̂ / (√v̂ + ε))): see `hyperball`. Experimental."""

    name = "adamw_hyperball"

    def __init__(
        self, config: schema.AdamWHyperball, layouts: Mapping[str, Layout], initialized: bool
    ) -> None:
        """layouts: by name; initialized: whether the weights are there, or garbage that a
        checkpoint overwrites."""
        self.config, self.layouts, self.initialized = config, layouts, initialized

    def states(self, parameters: Sequence[Parameter]) -> list[dict[str, Tensor]]:
        """See Rule. Raises ConfigError for a matrix that is 0."""
        group = shard_group([parameter.tensor for parameter in parameters])
        self.spheres = Spheres(self.layouts, self.config.normalize_update, group)
        radii = self.spheres.radii(parameters, refuse_zero=self.initialized)
        return [
            moments(parameter) | {"radius": radius}
            for parameter, radius in zip(parameters, radii, strict=True)
        ]

    def step(self, slots: Sequence[Slot], rates: Rates, ok: Tensor) -> None:
        """See Rule."""
        updates = [self._direction(slot, ok) for slot in slots]
        number = sum(len(self.layouts[slot.name].matrices) for slot in slots)
        lr = torch.full((number,), rates.lr, dtype=torch.float64, device=ok.device)
        self.spheres.step(slots, updates, lr, ok)

    def _direction(self, slot: Slot, ok: Tensor) -> Tensor:
        gradient, config = slot.gradient, self.config
        if gradient is None:
            return torch.zeros_like(slot.weight)
        m = torch.lerp(slot.held("exp_avg"), gradient, 1 - config.beta1)
        v = torch.lerp(slot.held("exp_avg_sq"), gradient.square(), 1 - config.beta2)
        slot.keep("exp_avg", m, ok)
        slot.keep("exp_avg_sq", v, ok)
        slot.count(ok)
        step = slot.state["step"]
        m, v = m / (1 - config.beta1**step), v / (1 - config.beta2**step)
        return m / (v.sqrt() + config.eps)
