"""The GPUs of a job on this node, watched through NVML; other jobs' stay out of it.

`nvidia-ml-py` is optional (`pip install 'ringshard[gpu]'`).
"""

import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any


class Gpus:
    """The devices that the job may use, by the number that its ranks know them under."""

    def __init__(self, environment: Mapping[str, str], processes: int) -> None:
        """`environment` is that of the ranks, of which there are `processes` on this node."""
        self._nvml: Any = None
        self._handles: list[Any] = []
        try:
            import pynvml

            pynvml.nvmlInit()
            self._nvml = pynvml
            self._handles = [self._handle(name) for name in visible(environment, processes)]
        except Exception as error:  # no module, no driver, another job's device: training goes on
            print(f"GPUs are not watched: {error}", file=sys.stderr, flush=True)

    def _handle(self, name: str) -> Any:
        if name.isdigit():
            return self._nvml.nvmlDeviceGetHandleByIndex(int(name))
        return self._nvml.nvmlDeviceGetHandleByUUID(name)

    def sample(self) -> dict[str, float]:
        """Load [%], memory [GiB], power [W] and temperature [°C] of each; what can't be asked is
        left out."""
        found: dict[str, float] = {}
        for number, handle in enumerate(self._handles):
            for name, ask in self._questions(handle).items():
                with suppress(self._nvml.NVMLError):
                    found[f"gpu-{number}/{name}"] = float(ask())
        return found

    def _questions(self, handle: Any) -> dict[str, Any]:
        nvml = self._nvml
        return {
            "load_percent": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
            "memory_gib": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used / 2**30,
            "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(
                handle, nvml.NVML_TEMPERATURE_GPU
            ),
        }


def visible(environment: Mapping[str, str], processes: int) -> list[str]:
    """Index or UUID of each device that the ranks take: one a process, of CUDA_VISIBLE_DEVICES or
    the first ones (CUDA ends the list at the first name that is not valid)."""
    listed = environment.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return [str(number) for number in range(processes)]
    names: list[str] = []
    for name in (part.strip() for part in listed.split(",")):
        if not (name.isdigit() or name.startswith(("GPU-", "MIG-"))):
            break
        names.append(name)
    return names[:processes]
