"""What the iteration does to singular values, and that it does nothing else."""

import pytest
import torch
from torch import Tensor

from ringshard.config.schema.optimizer import Coefficients
from ringshard.optim.newton_schulz import (
    POLYNOMIALS,
    Polynomials,
    orthogonalize,
    orthogonalize_all,
)

EXACT: Polynomials = ((2.0, -1.5, 0.5),) * 12
"""Slow, and exact in the end."""
BANDS = {
    Coefficients.keller: (0.68, 1.21),
    Coefficients.quintic: (0.85, 1.15),
    Coefficients.polar_express: (0.85, 1.15),
}
FP32 = torch.float32


def iterated(values: Tensor, polynomials: Polynomials) -> Tensor:
    """Singular values after the iteration."""
    for a, b, c in polynomials:
        values = a * values + b * values**3 + c * values**5
    return values


def with_values(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A 16 × 40 matrix with these singular values, and its singular vectors."""
    generator = torch.Generator().manual_seed(0)
    u, _ = torch.linalg.qr(torch.randn(16, 16, generator=generator, dtype=torch.float64))
    v, _ = torch.linalg.qr(torch.randn(40, 16, generator=generator, dtype=torch.float64))
    return u @ values.double().diag() @ v.T, u, v


def gaussian(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def one(matrix: Tensor, polynomials: Polynomials, dtype: torch.dtype = FP32) -> Tensor:
    return orthogonalize(matrix[None], polynomials, dtype)[0]


@pytest.mark.parametrize("coefficients", Coefficients)
def test_a_singular_value_ends_outside_the_band(coefficients: Coefficients) -> None:
    values = torch.logspace(-2.69, 0, 10**5, dtype=torch.float64)
    found = iterated(values, POLYNOMIALS[coefficients])
    low, high = BANDS[coefficients]
    assert low <= found.min() and found.max() <= high


@pytest.mark.parametrize("dtype", [FP32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("coefficients", Coefficients)
def test_a_singular_value_of_a_wide_random_matrix_ends_outside_the_band(
    coefficients: Coefficients, dtype: torch.dtype
) -> None:
    """None of them begins below a hundredth of the norm, from where keller ends below 1.14."""
    matrix = gaussian(256, 1024)
    assert torch.linalg.svdvals(matrix).min() > 0.01 * matrix.norm()
    found = torch.linalg.svdvals(one(matrix, POLYNOMIALS[coefficients], dtype).float())
    low, high = (0.68, 1.14) if coefficients is Coefficients.keller else BANDS[coefficients]
    slack = 0.0 if dtype is FP32 else 0.01
    assert low - slack <= found.min() and found.max() <= high + slack


@pytest.mark.parametrize("coefficients", Coefficients)
def test_singular_vectors_change_or_values_follow_another_polynomial(
    coefficients: Coefficients,
) -> None:
    values = torch.linspace(0.05, 1, 16)
    matrix, u, v = with_values(values)
    found = one(matrix.float(), POLYNOMIALS[coefficients]).double()
    expected = iterated(values / values.norm(), POLYNOMIALS[coefficients])
    torch.testing.assert_close(u.T @ found @ v, expected.double().diag(), rtol=0, atol=1e-5)


def test_the_exact_iteration_is_not_the_polar_factor() -> None:
    values = torch.linspace(0.01, 1, 16)
    matrix, u, v = with_values(values)
    found = one(matrix.float(), EXACT).double()
    polar = u @ v.T
    assert torch.nn.functional.cosine_similarity(found.flatten(), polar.flatten(), 0) > 0.9999
    assert (torch.linalg.svdvals(found) - 1).abs().max() < 2e-3


@pytest.mark.parametrize("coefficients", Coefficients)
def test_bf16_is_far_from_fp32(coefficients: Coefficients) -> None:
    matrix, polynomials = gaussian(128, 512), POLYNOMIALS[coefficients]
    found = one(matrix, polynomials, torch.bfloat16).float()
    u, _, vh = torch.linalg.svd(matrix, full_matrices=False)
    assert torch.nn.functional.cosine_similarity(found.flatten(), (u @ vh).flatten(), 0) > 0.98
    values, exact = torch.linalg.svdvals(found), torch.linalg.svdvals(one(matrix, polynomials))
    assert exact.min() - 0.01 <= values.min() and values.max() <= exact.max() + 0.01


@pytest.mark.parametrize("coefficients", Coefficients)
def test_length_or_orientation_counts_or_a_batch_is_not_its_matrices(
    coefficients: Coefficients,
) -> None:
    polynomials, matrices = POLYNOMIALS[coefficients], gaussian(3, 12, 30)
    found = orthogonalize(matrices, polynomials, FP32)
    longer = orthogonalize(1000 * matrices, polynomials, FP32)
    torch.testing.assert_close(longer, found, rtol=0, atol=2e-6)
    turned = orthogonalize(matrices.mT.contiguous(), polynomials, FP32).mT
    torch.testing.assert_close(turned, found, rtol=0, atol=2e-6)
    for matrix, result in zip(matrices, found, strict=True):
        assert torch.equal(one(matrix, polynomials), result)


@pytest.mark.parametrize("shape", [(8, 20), (20, 8), (5, 5), (1, 7)])
def test_zero_does_not_stay_zero(shape: tuple[int, int]) -> None:
    for dtype in (FP32, torch.bfloat16):
        found = one(torch.zeros(shape), POLYNOMIALS[Coefficients.polar_express], dtype)
        assert torch.equal(found, torch.zeros(shape, dtype=dtype))


def test_what_is_orthogonalized_is_overwritten() -> None:
    """The momentum itself may be given (pytorch#194664)."""
    for matrices in (gaussian(2, 6, 9), gaussian(2, 9, 6)):
        before = matrices.clone()
        orthogonalize(matrices, EXACT, FP32)
        assert torch.equal(matrices, before)


def test_many_shapes_together_are_not_each_alone() -> None:
    shapes = [(4, 9), (9, 4), (4, 9), (6, 6), (0, 9), (1, 5)]
    matrices = [gaussian(*shape) * (i + 1) for i, shape in enumerate(shapes)]
    polynomials = POLYNOMIALS[Coefficients.quintic]
    for matrix, result in zip(
        matrices, orthogonalize_all(matrices, polynomials, FP32), strict=True
    ):
        assert result.shape == matrix.shape
        if len(matrix):
            torch.testing.assert_close(result, one(matrix, polynomials), rtol=0, atol=2e-6)
