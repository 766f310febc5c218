"""What the machine tells: what cannot be asked is absent, not zero."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from pagedeck.engine.serving.machine import Machine, NvidiaGpu, find_gpu
from pagedeck.ipc.telemetry import DeviceStats


class NVMLError(Exception):
    pass


class Driver(SimpleNamespace):
    """NVML as far as it is asked; what ``silent`` names is refused."""

    NVMLError = NVMLError
    NVML_TEMPERATURE_GPU = 0

    def __init__(self, *silent: str) -> None:
        self.silent = silent
        self.asked: list[Any] = []

    def _tell(self, name: str, told: Any) -> Any:
        if name in self.silent:
            raise NVMLError(name)
        return told

    def nvmlInit(self) -> None:
        self._tell("init", None)

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes) -> str:
        self.asked.append(uuid)
        return "handle"

    def nvmlDeviceGetName(self, handle: str) -> str | bytes:
        return self._tell("name", b"Test GPU")

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:
        return self._tell("load", SimpleNamespace(gpu=42))

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:
        return self._tell("memory", SimpleNamespace(used=3 << 30, total=16 << 30))

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        return self._tell("power", 250_500)

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: str) -> int:
        return self._tell("power", 700_000)

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:
        return self._tell("temperature", 61)


def test_a_machine_tells_its_processors_and_memory() -> None:
    stats = Machine().stats()
    assert stats.cpus >= 1
    assert 0 <= stats.cpu_load <= 1
    assert 0 < stats.memory_used < stats.memory_total


def test_a_driver_tells_load_memory_power_and_temperature() -> None:
    told = NvidiaGpu(Driver(), "handle").stats()
    assert told == DeviceStats("Test GPU", 0.42, 3 << 30, 16 << 30, 250.5, 700.0, 61.0)


def test_what_a_driver_does_not_tell_is_absent() -> None:
    told = NvidiaGpu(Driver("name", "power", "memory"), "handle").stats()
    assert told == DeviceStats("GPU", load=0.42, temperature_c=61.0)


def fake_torch(available: bool) -> Any:
    properties = SimpleNamespace(uuid="1234")
    cuda = SimpleNamespace(
        is_available=lambda: available, current_device=lambda: 1, get_device_properties=lambda device: properties
    )
    return SimpleNamespace(cuda=cuda)


def test_the_gpu_is_the_one_that_the_model_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    monkeypatch.setitem(sys.modules, "torch", fake_torch(True))
    monkeypatch.setitem(sys.modules, "pynvml", driver)  # type: ignore[arg-type]
    assert find_gpu() is not None
    assert driver.asked == [b"GPU-1234"]


@pytest.mark.parametrize("driver", [None, Driver("init")], ids=["no module", "no driver"])
def test_without_a_gpu_or_a_driver_nothing_is_told_of_one(monkeypatch: pytest.MonkeyPatch, driver: Any) -> None:
    monkeypatch.setitem(sys.modules, "torch", fake_torch(False))
    assert find_gpu() is None
    monkeypatch.setitem(sys.modules, "torch", fake_torch(True))
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    assert find_gpu() is None
