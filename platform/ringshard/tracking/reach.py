"""Whether MLflow takes runs from here: `python -m ringshard.tracking.reach URI EXPERIMENT`."""

import sys

from ringshard import child
from ringshard.tracking import store


def reach(uri: str, experiment: str) -> None:
    """Makes the experiment if need be, and marks it; raises ConfigError where that is refused."""
    with store.told_in_a_sentence(f"{uri} takes no runs", "mend it, or track sync them later"):
        store.ensure(uri, experiment)
        client = store.connect(uri)
        home = store.experiment_id(client, uri, experiment)
        client.set_experiment_tag(home, "ringshard.preflight", "reached")


if __name__ == "__main__":
    sys.exit(child.answer(lambda: reach(*sys.argv[1:])))
