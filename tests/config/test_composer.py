"""What is composed once for many members is what Hydra composes for each."""

from typing import Any

import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf

from hydra_plugins.ringshard_hydra.composer import Composer
from ringshard.config.compose import _store, conf_dir
from ringshard.config.schema.job import Job

GROUPS = {
    folder.name: sorted(file.stem for file in folder.glob("*.yaml"))
    for folder in sorted(conf_dir().iterdir())
    if folder.is_dir()
}
VALUES = {
    "train.seed": ["1", "7"],
    "optimizer.lr": ["1e-3", "0.5", "${schedule.floor}", "high"],
    "optimizer.momentum": ["0.8"],
    "schedule": ["{warmup_steps: 3}"],
    "++optimizer.roles.other": ["lm_head", "'a|b'"],
    "+hardware.env.A": ["b", "'x=y'", "${output.name}"],
    "++hardware.env": ["{A: c, B: '1'}"],
    "++model.config.hidden_size": ["32", "64"],
    "model.config": ["{hidden_size: 16}"],
    "output.name": ["x", "${hydra:runtime.choices.schedule}", "${hydra:job.num}", "'a,b'"],
    "train.tokens": ["null", "100"],
    "train.batch_ramp": ["[]", "[1,2]"],
    "data.seq_len": ["${train.global_batch}", "64", "'64'", "6.5"],
    "~data.corpora.python_stdlib": [""],
    "+data.corpora.more": ["{kind: text_files, path: b.txt}"],
    "tracking.uri": ["${oc.env:HOME}/x", "http://127.0.0.1:1"],
    "train.stps": ["3"],
    "+search": ["tpe"],
}
PAIRS = [(key, value) for key, values in (GROUPS | VALUES).items() for value in values]
CHOICES = st.lists(st.sampled_from(PAIRS), max_size=6, unique_by=lambda pair: pair[0])


@pytest.fixture(scope="module")
def composer() -> Any:
    _store("train", Job)
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        master = loader.load_configuration("train", [], RunMode.MULTIRUN)
        yield Composer(loader, master), lambda o: loader.load_sweep_config(master, o)


def seen(config: DictConfig) -> Any:
    """All values as text or number, and what interpolations come to."""
    HydraConfig.instance().set_config(config)
    config = config.copy()
    OmegaConf.set_struct(config, False)
    choices = OmegaConf.to_container(config.hydra.runtime.choices)
    del config["hydra"]
    return choices, OmegaConf.to_container(config), str(config.get("output"))


def outcome(make: Any, overrides: list[str]) -> Any:
    """What a composition comes to, or what it is refused for."""
    try:
        return seen(make(overrides))
    except Exception as error:
        return type(error).__name__, str(error)


@settings(max_examples=40)
@given(choices=CHOICES)
def test_a_member_is_composed_otherwise_than_by_hydra(
    composer: Any, choices: list[tuple[str, str]]
) -> None:
    """Any options of all groups and any values, in any order; those that Hydra refuses too."""
    ours, hydras = composer
    overrides = [f"{key}={value}" if value else key for key, value in choices]
    assert outcome(ours.compose, overrides) == outcome(hydras, overrides)


def test_an_unknown_key_is_known_to_one_of_both(composer: Any) -> None:
    for make in (composer[0].compose, composer[1]):
        with pytest.raises(Exception, match="Could not override"):
            make(["train.no=1", "model=small"])
