"""A colour for each run, the same in every plot, legible on white and on black."""

import colorsys

_FEW = [
    *("#3577e5", "#d9730d", "#0f9f6e", "#d6409f", "#8a63d2"),
    *("#0b9bb5", "#dc3d43", "#8f8a0c", "#a0674b", "#76808d"),
]
"""Of about the same lightness."""


def colors(count: int) -> list[str]:
    """Distinct colours for a few runs, a walk through blue, green and red for many."""
    return _FEW[:count] if count <= len(_FEW) else [_between(n / (count - 1)) for n in range(count)]


def _between(place: float) -> str:
    """From blue (0) to red (1), through green."""
    red, green, blue = colorsys.hls_to_rgb(0.62 * (1 - place), 0.48, 0.65)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"
