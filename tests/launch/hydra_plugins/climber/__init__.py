"""Somebody else's sweeper, by Hydra's protocol alone: doubles a rate as long as that helps.

It launches batches of two and reads `return_value`, which raises what a failed member raised.
"""

from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper


class Climber(Sweeper):
    def __init__(self, key: str, start: float, rounds: int) -> None:
        self.key, self.start, self.rounds = key, start, rounds

    def setup(self, *, hydra_context: Any, task_function: Any, config: Any) -> None:
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> None:
        best, rate = (float("inf"), 0.0), self.start
        for index in range(self.rounds):
            rates = [rate, 2 * rate]
            batch = [[*arguments, f"{self.key}={each}"] for each in rates]
            results = self.launcher.launch(batch, initial_job_idx=2 * index)
            for each, result in zip(rates, results, strict=True):
                try:
                    best = min(best, (float(result.return_value), each))
                except Exception as error:
                    print(f"climber: {each} failed: {error}")
            rate = 2 * best[1]
        print(f"climber: best {best[1]} with {best[0]:.3f}")


ConfigStore.instance().store(
    group="hydra/sweeper",
    name="climber",
    node={"_target_": f"{__name__}.Climber", "key": "optimizer.lr", "start": 1e-3, "rounds": 2},
    provider="climber",
)
