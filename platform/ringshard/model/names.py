"""What a model's tensors are called, whatever wraps the modules that own them."""

from torch import Tensor, nn


def canonical(name: str) -> str:
    """`name` as the model's author wrote it."""
    return name.replace("_checkpoint_wrapped_module.", "").replace("_orig_mod.", "")


def stored_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers by canonical name; a tied weight has one."""
    unique: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        unique.setdefault(id(tensor), (canonical(name), tensor))
    return dict(unique.values())
