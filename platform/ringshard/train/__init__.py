"""The trainer: batch, forward and backward, clip, step, log; everything else is a hook."""
