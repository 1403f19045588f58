"""Checkpoints: complete and verified, or refused; without effect on the training, for any number of
ranks.

`directory` and `manifest` need no torch.
"""
