"""Kernels of one block: softmax(scale · Q Kᵀ) V and its log-sum-exp, by name.

A kernel is given at least one query and one key, and masks nothing but the upper triangle of a
square: an empty K kills the process on CPU, a masked row has lse 0 there, and a causal rectangle
means different things on CPU and CUDA. Head sizes of K and V are equal; `attention` sees to it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ringshard.parallel.ring import cuda_kernels, math_kernels

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


@dataclass(frozen=True)
class Kernel:
    """How a block is computed; see `math_kernels` for the shapes."""

    forward: Callable[[Tensor, Tensor, Tensor, bool, float], tuple[Tensor, Tensor]]
    """(q, k, v, causal, scale) → normalised out, lse (B, Hq, Sq), in fp32 or fp64."""
    backward: Callable[..., tuple[Tensor, Tensor, Tensor]]
    """(dout, q, k, v, out, lse, causal, scale) → dq, dk, dv; out and lse of all blocks merged."""
    packed_forward: Callable[..., tuple[Tensor, Tensor]] | None = None
    """The same for many segments laid end to end; None: one call per segment."""
    packed_backward: Callable[..., tuple[Tensor, Tensor, Tensor]] | None = None
    """Its backward pass."""


def cpu_flash_forward(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """torch's own for CPU: groups, slices and fp32, bf16, fp16 as they are."""
    out, lse = _flash(q, k, v, 0.0, causal, scale=scale)
    return out, lse


def cpu_flash_backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """In bf16 several times slower than in fp32."""
    dq, dk, dv = _flash_backward(dout, q, k, v, out, lse, 0.0, causal, scale=scale)
    return dq, dk, dv


KERNELS = {
    "cpu_flash": Kernel(cpu_flash_forward, cpu_flash_backward),
    "cuda_flash": Kernel(
        cuda_kernels.flash_forward,
        cuda_kernels.flash_backward,
        cuda_kernels.flash_packed_forward,
        cuda_kernels.flash_packed_backward,
    ),
    "cuda_cudnn": Kernel(cuda_kernels.cudnn_forward, cuda_kernels.cudnn_backward),
    "cuda_efficient": Kernel(cuda_kernels.efficient_forward, cuda_kernels.efficient_backward),
    "math": Kernel(math_kernels.forward, math_kernels.backward),
    "math_packed": Kernel(
        math_kernels.forward,
        math_kernels.backward,
        math_kernels.packed_forward,
        math_kernels.packed_backward,
    ),
}


def choose_kernel(name: str, device: torch.device, dtype: torch.dtype) -> Kernel:
    """The kernel of this name; `auto`: the fastest that takes such tensors."""
    if name != "auto":
        return KERNELS[name]
    if dtype == torch.float64 or device.type not in ("cpu", "cuda"):
        return KERNELS["math"]
    if device.type == "cpu":
        return KERNELS["cpu_flash"]
    return KERNELS["cuda_efficient" if dtype == torch.float32 else "cuda_flash"]
