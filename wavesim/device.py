"""Which backend can serve a device, decided in three layers: package, device, capability."""

from __future__ import annotations

import importlib.util
import os
import re
from functools import lru_cache
from pathlib import Path

import torch

from .choice import Card
from .config import message

BACKENDS = ("auto", "triton", "eager")
MINIMUM_CAPABILITY = (8, 0)
MISSING = "the package triton is not installed (`pip install triton`; Linux only)"


def interpreting() -> bool:
    """Whether Triton runs its kernels in its interpreter, on the CPU."""
    return os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "yes", "y")


def triton_obstacle(device: torch.device) -> str | None:
    """Why Triton kernels cannot run on a device, or None if they can."""
    if device.type != "cpu":
        return _gpu_obstacle(device)
    if importlib.util.find_spec("triton") is None:
        return MISSING
    return None if interpreting() else "the tensors are on the CPU; move them to a GPU"


@lru_cache(maxsize=16)
def _gpu_obstacle(device: torch.device) -> str | None:
    """Asked once: to look takes longer than a step."""
    if importlib.util.find_spec("triton") is None:
        return MISSING
    if device.type != "cuda":
        return f"the tensors are on {device.type!r}, and the kernels need a CUDA or ROCm device"
    if torch.version.hip is None:
        capability = torch.cuda.get_device_capability(device)
        if capability < MINIMUM_CAPABILITY:
            return f"compute capability {capability} is below {MINIMUM_CAPABILITY}"
    return None


def choose_backend(requested: str, device: torch.device) -> tuple[str, str]:
    """(backend, reason). ``auto`` takes Triton on a GPU that can have it, eager otherwise."""
    if requested not in BACKENDS:
        raise ValueError(message("backend", repr(requested), f"one of {BACKENDS}"))
    if requested == "eager":
        return "eager", "requested"
    if requested == "auto" and device.type == "cpu":
        return "eager", "auto: the tensors are on the CPU"
    obstacle = triton_obstacle(device)
    if requested == "triton":
        if obstacle:
            remedy = "Use backend='eager', or 'auto' to take what is there."
            raise RuntimeError(f"backend: got 'triton', but {obstacle}. {remedy}")
        return "triton", "requested"
    if obstacle:
        return "eager", f"auto: no Triton, {obstacle}"
    return "triton", f"auto: the tensors are on {device}"


@lru_cache(maxsize=16)
def card(device: torch.device) -> Card:
    """The facts of a GPU that decide how to run on it; those of a common one without a GPU."""
    if device.type != "cuda" or interpreting():
        return Card()
    facts = torch.cuda.get_device_properties(device)
    return Card(
        processors=facts.multi_processor_count,
        cache_bytes=facts.L2_cache_size,
        registers=getattr(facts, "regs_per_multiprocessor", 65536),
        threads=facts.max_threads_per_multi_processor,
        cooperative=torch.version.hip is None,
    )


def driver_version() -> str:
    """Of the GPU's driver, as its kernel module tells; else the runtime that torch is built for."""
    for path in ("/proc/driver/nvidia/version", "/sys/module/amdgpu/version"):
        if Path(path).exists():
            found = re.search(r"\d+\.\d+(\.\d+)?", Path(path).read_text())
            if found:
                return found[0]
    return f"runtime {torch.version.cuda or torch.version.hip}"
