"""Ring context parallelism: a sequence over several ranks, attention as on one."""
