"""Lion (Chen et al. 2023, arXiv:2302.06675): θ ← θ (1 - η λ) - η sign(β₁ m + (1 - β₁) g), then
m ← β₂ m + (1 - β₂) g."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ringshard.config.schema import optimizer as schema
from ringshard.model.init import local
from ringshard.optim.quantize import blocks_of, dequantized, quantized
from ringshard.optim.roles import Parameter
from ringshard.optim.ruled import Rates
from ringshard.optim.slot import Slot, counter, laid_out_as, zeros


class Lion:
    """Momentum in fp32."""

    name = "lion"

    def __init__(self, config: schema.Lion) -> None:
        self.config = config

    def states(self, parameters: Sequence[Parameter]) -> list[dict[str, Tensor]]:
        """See Rule."""
        return [{"step": counter(p.tensor)} | self.momentum(p.tensor) for p in parameters]

    def step(self, slots: Sequence[Slot], rates: Rates, ok: Tensor) -> None:
        """See Rule."""
        for slot in slots:
            gradient = slot.gradient
            if gradient is None:
                continue
            momentum = self.read(slot)
            direction = torch.lerp(momentum, gradient, 1 - self.config.beta1).sign()
            slot.write(slot.weight * (1 - rates.lr * rates.decay) - rates.lr * direction, ok)
            self.keep(slot, torch.lerp(momentum, gradient, 1 - self.config.beta2), ok)
            slot.count(ok)

    def momentum(self, parameter: Tensor) -> dict[str, Tensor]:
        """The state that holds a momentum of zeros."""
        return {"momentum": zeros(parameter)}

    def read(self, slot: Slot) -> Tensor:
        """The momentum in fp32."""
        return slot.held("momentum")

    def keep(self, slot: Slot, momentum: Tensor, ok: Tensor) -> None:
        """Stores the momentum where `ok`."""
        slot.keep("momentum", momentum, ok)


class Lion8bit(Lion):
    """Momentum of matrices in signed bytes, one scale for each 256 of a row; of vectors in fp32."""

    name = "lion8bit"

    def momentum(self, parameter: Tensor) -> dict[str, Tensor]:
        """The state that holds a momentum of zeros."""
        if parameter.dim() < 2:
            return super().momentum(parameter)
        columns = (blocks_of(parameter.shape[-1]),)
        part = local(parameter)
        scales = torch.zeros((*part.shape[:-1], *columns), dtype=torch.float32, device=part.device)
        return {
            "codes": zeros(parameter, torch.int8),
            "scales": laid_out_as(parameter, scales, columns),
        }

    def read(self, slot: Slot) -> Tensor:
        """The momentum in fp32."""
        if "codes" not in slot.state:
            return super().read(slot)
        return dequantized(slot.held("codes"), slot.held("scales"))

    def keep(self, slot: Slot, momentum: Tensor, ok: Tensor) -> None:
        """Stores the momentum where `ok`."""
        if "codes" not in slot.state:
            return super().keep(slot, momentum, ok)
        codes, scales = quantized(momentum)
        slot.keep("codes", codes, ok)
        slot.keep("scales", scales, ok)
        return None
