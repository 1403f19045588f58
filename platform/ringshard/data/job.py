"""What jobs/prepare.py does with its configurations."""

from ringshard.config.schema.prepare import PrepareJob
from ringshard.data.prepare import Prepared, prepare
from ringshard.registry import import_user_modules


def prepare_all(jobs: list[PrepareJob]) -> None:
    """Prepare the data of each job and print where they lie and what they are."""
    for job in jobs:
        import_user_modules(job.user)
        print(described(prepare(job.data)))


def described(prepared: Prepared) -> str:
    """What a user wants to know of prepared data, in a few lines."""
    rows = f"{prepared.train_rows:,} for training, {prepared.validation_rows:,} for validation"
    lines = {
        "prepared": prepared.prepared,
        "digest": prepared.digest,
        "documents": f"{prepared.documents:,}",
        "tokens": f"{prepared.tokens:,}, of {prepared.vocab_size:,} kinds",
        "rows": rows,
    }
    if prepared.bigram_entropy is not None:
        entropy = f"{prepared.bigram_entropy:.4f} nats per token, of the validation split's bigrams"
        lines["entropy"] = entropy
    return "\n".join(f"{name:<10}{value}" for name, value in lines.items())
