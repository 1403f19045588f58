"""Text from a model that may be sharded: every rank computes the same forward passes and draws the
same tokens."""

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ringshard.train.pieces import Cutter


@torch.no_grad()
def sample(
    model: PreTrainedModel,
    cutter: Cutter,
    prompt: list[int],
    tokens: int,
    temperature: float,
    seed: int,
) -> list[int]:
    """`tokens` token ids that continue `prompt`, each drawn from softmax(logits / temperature).

    The whole text so far is computed anew for each token: plain, and independent of how the model
    is sharded or sequences are cut: every rank has the whole text. Beyond the model's number of
    positions only the end of the text is read.
    temperature: 0 takes the likeliest token each time.
    """
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(seed)
    longest = getattr(model.config, "max_position_embeddings", None) or len(prompt) + tokens
    ids = list(prompt)
    model.eval()
    for _ in range(tokens):
        window = torch.tensor([ids[-longest:]], device=device)
        logits = model(input_ids=window, **cutter.alone(window))[0, -1]  # (V,)
        ids.append(_draw(logits.float().cpu(), temperature, generator))
    return ids[len(prompt) :]


def _draw(logits: Tensor, temperature: float, generator: torch.Generator) -> int:
    if temperature == 0:
        return int(logits.argmax())
    probabilities = torch.softmax(logits / temperature, 0)
    return int(torch.multinomial(probabilities, 1, generator=generator))
