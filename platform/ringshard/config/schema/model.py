"""Which model is trained: any causal language model of the transformers library, by type and
overrides."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Model:
    """A transformers configuration, or the directory of one."""

    type: str | None = None
    """transformers `model_type` (llama, qwen3, gpt2, …) or a name registered by a user module."""
    config: dict[str, Any] = field(default_factory=dict)
    """Fields of the transformers configuration that differ from its defaults."""
    path: str | None = None
    """Directory with a config.json to start from, instead of `type`."""
    pretrained: str | None = None
    """Directory with config.json and safetensors whose weights are loaded."""
    trust_remote_code: bool = False
    """Whether Python code found in `path` or `pretrained` may run."""
    head_chunk: int = 1024
    """Tokens whose logits exist at one time in the loss [tokens]."""
