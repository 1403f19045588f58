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
    "model": ["tiny", "small", "gpt2_char"],
    "schedule": ["cosine", "wsd"],
    "experiment": ["none", "smoke", "long_context"],
    "tracking": ["jsonl", "mlflow"],
}
VALUES = {
    "train.seed": ["1", "7"],
    "optimizer.lr": ["1e-3", "0.5"],
    "+hardware.env.A": ["b", "'x=y'"],
    "++model.config.hidden_size": ["32", "64"],
    "output.name": ["x", "${hydra:runtime.choices.schedule}", "${hydra:job.num}"],
    "train.tokens": ["null", "100"],
    "data.seq_len": ["${train.global_batch}", "64"],
}
CHOICES = st.fixed_dictionaries(
    {}, optional={key: st.sampled_from(v) for key, v in (GROUPS | VALUES).items()}
)


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


@settings(max_examples=25)
@given(choices=CHOICES)
def test_a_member_is_composed_otherwise_than_by_hydra(
    composer: Any, choices: dict[str, str]
) -> None:
    ours, hydras = composer
    overrides = [f"{key}={value}" for key, value in choices.items()]
    assert seen(ours.compose(overrides)) == seen(hydras(overrides))


def test_an_unknown_key_is_known_to_one_of_both(composer: Any) -> None:
    for make in (composer[0].compose, composer[1]):
        with pytest.raises(Exception, match="Could not override"):
            make(["train.no=1", "model=small"])
