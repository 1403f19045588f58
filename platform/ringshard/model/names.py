"""Parameter names without the marks of wrappers."""


def canonical(name: str) -> str:
    """`name` as the model's author wrote it, whatever wraps the module that owns it."""
    return name.replace("_checkpoint_wrapped_module.", "").replace("_orig_mod.", "")
