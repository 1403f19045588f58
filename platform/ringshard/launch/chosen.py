"""Command lines whose runs are chosen by the results of others."""

from ringshard.config.command import sweeper_of
from ringshard.config.compose import Command


def choose_runs(command: Command, module: str = "ringshard.train") -> int:
    """A sweeper of Hydra's protocol chooses, or a search; returns the exit code."""
    if sweeper_of(command.overrides):
        from ringshard.launch.results import drive_all

        return drive_all(command, module)
    from ringshard.launch.search.start import search

    return search(command, module)
