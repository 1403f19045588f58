"""Overrides as they are typed, in the spelling that Hydra accepts for mappings of free keys."""

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, ValueType
from hydra.errors import HydraException

from ringshard.errors import ConfigError

FREE = (
    *("hardware.slurm.extra", "model.config", "train.hooks"),
    *("optimizer.args", "optimizer.roles", "optimizer.splits"),
)
"""Mappings that take any key, so that a new one needs no plus."""
_CORPORA = "data.corpora."


def opened(overrides: list[str]) -> list[str]:
    """New keys of free mappings get their plus; corpora given whole come in one override, since
    OmegaConf makes a Corpus of a mapping only as part of the mapping of all."""
    corpora = {o: _corpus(o) for o in overrides if o.lstrip("+").startswith(_CORPORA)}
    whole = [corpus for corpus in corpora.values() if corpus]
    kept = [_plus(o) for o in overrides if not corpora.get(o)]
    return [*kept, f"++data.corpora={{{', '.join(whole)}}}"] if whole else kept


def refuse_commas(overrides: list[str]) -> None:
    """Raises ConfigError for a list of values where no sweep is asked for."""
    for text in overrides:
        override = _parsed(text)
        if override and override.value_type is ValueType.SIMPLE_CHOICE_SWEEP:
            key, _, value = text.partition("=")
            quote = f"'{key}=\"{value}\"'"
            raise ConfigError(
                f"{text} is more than one value: give -m to run each, or quote the value, {quote}"
            )


def _plus(override: str) -> str:
    key = override.partition("=")[0]
    free = key in FREE or key.startswith(tuple(f"{name}." for name in FREE))
    return f"++{override}" if free else override


def _corpus(text: str) -> str | None:
    """NAME: {…} of an override that gives a corpus whole."""
    override = _parsed(text)
    if override is None or override.is_sweep_override() or not isinstance(override.value(), dict):
        return None
    key, _, value = text.lstrip("+").partition("=")
    return f"{key.removeprefix(_CORPORA)}: {value}"


def _parsed(text: str) -> Override | None:
    """None where it cannot be parsed, which Hydra will say."""
    try:
        return OverridesParser.create().parse_override(text)
    except HydraException:
        return None
