"""Which role each weight of a model has, and which matrices it holds, from plain descriptions.

Standard library only: the submit side refuses by it what the ranks would refuse.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ringshard.config.schema.description import Weight
from ringshard.config.schema.optimizer import AdamWHyperball, ByRole, Muon, Optimizer
from ringshard.errors import ConfigError

ROLES = ("matrix", "experts", "embedding", "head", "vector", "other")
HIDDEN = ("matrix", "experts")
"""Roles that Muon and Hyperball are made for; the others get AdamW."""
DIMENSIONS = {"matrix": 2, "experts": 3}


def check_weights(optimizer: Optimizer, weights: Sequence[Weight]) -> None:
    """Raises ConfigError where roles or splits do not fit a model's weights."""
    if not isinstance(optimizer, ByRole):
        return
    found = overridden(weights, optimizer.roles)
    if isinstance(optimizer, Muon | AdamWHyperball):
        split([weight for weight in found if weight.role in HIDDEN], optimizer.splits)


def overridden(weights: Sequence[Weight], overrides: Mapping[str, str]) -> list[Weight]:
    """The weights with the roles that `overrides` (role -> regular expression of names) give them.

    Raises ConfigError for an expression that matches nothing, or gives a role that can't be had.
    """
    for role, pattern in overrides.items():
        if not any(re.search(pattern, weight.name) for weight in weights):
            raise ConfigError(
                f"optimizer.roles.{role}={pattern} matches no parameter: names are such as "
                f"{_example(weights)}"
            )
    return [_given(weight, overrides) for weight in weights]


def _given(weight: Weight, overrides: Mapping[str, str]) -> Weight:
    for role, pattern in overrides.items():
        if re.search(pattern, weight.name):
            _refuse_role(weight, role, pattern)
            return replace(weight, role=role)
    return weight


def _refuse_role(weight: Weight, role: str, pattern: str) -> None:
    dimensions = len(weight.shape)
    if dimensions != DIMENSIONS.get(role, dimensions):
        raise ConfigError(
            f"optimizer.roles.{role}={pattern} matches {weight.name}, which has {dimensions} "
            f"dimensions instead of {DIMENSIONS[role]}: narrow the expression"
        )
    if role in DIMENSIONS and weight.role in ("embedding", "head"):
        raise ConfigError(
            f"optimizer.roles.{role}={pattern} matches {weight.name}, and the {weight.role} is no "
            "hidden matrix: narrow the expression"
        )


def split(weights: Sequence[Weight], splits: Mapping[str, Sequence[int]]) -> list[Weight]:
    """The weights with the outputs of the matrices that each of them fuses.

    splits: regular expression of names -> outputs of each matrix. Raises ConfigError for one that
    matches nothing or does not add up, and for fused queries, keys and values of unknown order.
    """
    for pattern in splits:
        if not any(re.search(pattern, weight.name) for weight in weights):
            raise ConfigError(
                f"optimizer.splits.{pattern} matches no matrix: names are such as "
                f"{_example(weights)}"
            )
    return [_split(weight, splits) for weight in weights]


def _split(weight: Weight, splits: Mapping[str, Sequence[int]]) -> Weight:
    given = next((s for pattern, s in splits.items() if re.search(pattern, weight.name)), None)
    outputs = weight.shape[-1 if weight.transposed else -2]
    if given is None:
        if weight.fused and not weight.sizes:
            module = weight.name.split(".")[-2]
            raise ConfigError(
                f"{weight.name} fuses queries, keys and values in an order that is not known: give "
                f"optimizer.splits={{{module}: [SIZE, …]}} for its {outputs} outputs, or "
                f"optimizer.roles.other={module}"
            )
        return weight
    if sum(given) != outputs:
        raise ConfigError(
            f"optimizer.splits: {list(given)} of {weight.name} add up to {sum(given)}, and it "
            f"has {outputs} outputs"
        )
    return replace(weight, sizes=list(given))


def _example(weights: Iterable[Weight]) -> str:
    return next((weight.name for weight in weights), "none")
