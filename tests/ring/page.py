"""docs/models.md: which types of models ring attention runs, from very small ones.

`PYTHONPATH=platform:tests python -m ring.page > docs/models.md`
"""

from ring.models import TYPES, build, tiny

from ringshard.config.refusal import refusals
from ringshard.model.describe import describe_built
from ringshard.parallel.ring.probe import probe

HEAD = """# Models and ring attention

Made by `PYTHONPATH=platform:tests python -m ring.page > docs/models.md`; a test keeps it up to date
and checks each *exact* row: packed documents and padding over two ranks against one process with
the mask written out (losses, logits and every gradient to 1e-6, fp32).

Attention dropout is set to 0, fields other than sizes are as the type has them. A configuration may
differ from its type: what counts is what is found in the model itself, before a job is submitted.

| type | ring attention | why not, and what works |
|---|---|---|
"""


def page() -> str:
    """The page's text."""
    return HEAD + "".join(_row(kind) for kind in TYPES)


def _row(kind: str) -> str:
    reasons = [reason.split(": ", 1)[1] for reason in why_not(kind)]
    return f"| {kind} | {'refused' if reasons else 'exact'} | {'; '.join(reasons)} |\n"


def why_not(kind: str) -> list[str]:
    """Why a type is refused; nothing where it runs."""
    model = build(tiny(kind), "eager", "meta")
    return refusals(describe_built(model), probe(model))


if __name__ == "__main__":
    print(page(), end="")
