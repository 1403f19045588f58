"""The default job on 2 processes of 1 thread with FSDP2, over 1 process of 2 threads."""

from typing import Any

from benchmarks.command import train

ROUNDS = 3
SHAPES = {
    "1 process × 2 threads": [
        "parallelism=single",
        "hardware.processes_per_node=1",
        "hardware.threads_per_process=2",
    ],
    "2 processes × 1 thread, FSDP2": ["parallelism=fsdp"],
}


def run() -> list[dict[str, Any]]:
    """One row per shape: the best round's tokens/s (they take turns), memory, and the loss they
    agree on."""
    results: dict[str, list[dict[str, Any]]] = {shape: [] for shape in SHAPES}
    for _ in range(ROUNDS):
        for shape, overrides in SHAPES.items():
            results[shape].append(train("train.steps=40", "checkpoint.at_end=false", *overrides))
    best = {s: max(r["tokens_per_s"] for r in rounds) for s, rounds in results.items()}
    one = next(iter(best.values()))
    return [
        {
            "shape": shape,
            "tokens_per_s": best[shape],
            "over_1_process": best[shape] / one,
            "peak_memory_gib": rounds[0]["peak_memory_gib"],
            "train_loss": f"{rounds[0]['train_loss']:.6f}",
        }
        for shape, rounds in results.items()
    ]
