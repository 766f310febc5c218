"""What the machine that the engine runs on tells: its processors and memory, and of a GPU what its driver says."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import psutil

from ...ipc.telemetry import DeviceStats, MachineStats

_Told = TypeVar("_Told")


class Machine:
    """Reads the figures when asked. The first reading of the load counts from the making of this."""

    def __init__(self) -> None:
        self._cpus = len(psutil.Process().cpu_affinity()) if hasattr(psutil.Process, "cpu_affinity") else 0
        self._gpu = find_gpu()
        psutil.cpu_percent()  # the first call has nothing to compare with

    def stats(self) -> MachineStats:
        memory = psutil.virtual_memory()
        return MachineStats(
            cpus=self._cpus or psutil.cpu_count() or 1,
            cpu_load=psutil.cpu_percent() / 100,
            memory_used=memory.total - memory.available,
            memory_total=memory.total,
            device=self._gpu.stats() if self._gpu is not None else None,
        )


class NvidiaGpu:
    """One GPU, through NVML; ``nvml`` is the module ``pynvml`` or what looks like it. Figures that the driver does not
    give are None: not every board has a power sensor, and not every container may ask."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        name = self._ask(lambda: nvml.nvmlDeviceGetName(handle))
        self.name = name.decode() if isinstance(name, bytes) else name or "GPU"

    def stats(self) -> DeviceStats:
        nvml, handle = self._nvml, self._handle
        load = self._ask(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100)
        memory = self._ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        return DeviceStats(
            name=self.name,
            load=load,
            memory_used=memory.used if memory is not None else None,
            memory_total=memory.total if memory is not None else None,
            power_w=self._ask(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
            power_limit_w=self._ask(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000),
            temperature_c=self._ask(lambda: float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))),
        )

    def _ask(self, question: Callable[[], _Told]) -> _Told | None:
        with contextlib.suppress(self._nvml.NVMLError):
            return question()
        return None


def find_gpu() -> NvidiaGpu | None:
    """The GPU that the model is on; None where there is none, or nothing that can be asked about it."""
    torch = sys.modules.get("torch")  # loaded with the model
    if torch is None or not torch.cuda.is_available():
        return None
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return None
    with contextlib.suppress(nvml.NVMLError):
        nvml.nvmlInit()
        # The number among those that this process may use says nothing to the driver.
        uuid = f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"
        return NvidiaGpu(nvml, nvml.nvmlDeviceGetHandleByUUID(uuid.encode()))
    return None
