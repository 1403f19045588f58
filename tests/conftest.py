"""One thread a process: gloo ranks are forked from the test, and forking after threads have run
goes wrong."""

import os

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
os.environ["DO_NOT_TRACK"] = "true"

from hypothesis import settings

# Tests never assert a time: on shared cores an example may take any.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
