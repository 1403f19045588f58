"""Decisions and failures that all ranks share."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.distributed as dist

T = TypeVar("T")


def on_first_rank(action: Callable[[], T], group: dist.ProcessGroup | None) -> T:
    """What `action` returns or raises on the first rank of `group` (gloo), on all of its ranks.

    Without a group there is one rank. So no rank lists or builds paths by itself: on a network
    file system it could see others.
    """
    if group is None:
        return action()
    outcome: list[Any] = [None, None]
    if dist.get_rank(group) == 0:
        try:
            outcome[0] = action()
        except Exception as error:
            outcome[1] = error
    dist.broadcast_object_list(outcome, group=group, group_src=0, device=torch.device("cpu"))
    if outcome[1] is not None:
        raise outcome[1]
    result: T = outcome[0]
    return result


def raised_by_all(action: Callable[[], T], group: dist.ProcessGroup | None) -> T:
    """What `action` returns on this rank; what one raises all do, the first of several."""
    if group is None:
        return action()
    outcome: list[T] = []
    error: Exception | None = None
    try:
        outcome.append(action())
    except Exception as raised:
        error = raised
    for found in everyones(error, group):
        if found is not None:
            raise found
    return outcome[0]


def everyones(value: T, group: dist.ProcessGroup | None) -> list[T]:
    """What each rank gives, by rank."""
    if group is None:
        return [value]
    found: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(found, value, group=group)
    return found
