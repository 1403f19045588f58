"""A search: trials of a sweep's ranges, chosen by Optuna, each a run like any other."""
