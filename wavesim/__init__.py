"""Differentiable wave propagation for PyTorch with Triton kernels."""

from .config import IGNORE, PML, History, Receivers, Resampling, Sources, State
from .modules import Scalar
from .report import Report, Result
from .simulate import scalar, simulate

__version__ = "0.1.0"
__all__ = [
    "IGNORE",
    "PML",
    "History",
    "Receivers",
    "Report",
    "Resampling",
    "Result",
    "Scalar",
    "Sources",
    "State",
    "scalar",
    "simulate",
]
