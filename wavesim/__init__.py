"""Differentiable wave propagation for PyTorch with Triton kernels."""

from .born import born
from .config import IGNORE, PML, History, Receivers, Resampling, Sources, State
from .media import (
    absolute_permittivity,
    bulk_modulus,
    moduli,
    relative_permittivity,
    speeds,
)
from .modules import Acoustic, Elastic, Maxwell, MaxwellTM, Scalar
from .moment import moment_tensor
from .report import Report, Result
from .simulate import acoustic, elastic, maxwell, maxwell_tm, scalar, simulate, tune

__version__ = "0.1.0"
__all__ = [
    "IGNORE",
    "PML",
    "Acoustic",
    "Elastic",
    "History",
    "Maxwell",
    "MaxwellTM",
    "Receivers",
    "Report",
    "Resampling",
    "Result",
    "Scalar",
    "Sources",
    "State",
    "absolute_permittivity",
    "acoustic",
    "born",
    "bulk_modulus",
    "elastic",
    "maxwell",
    "maxwell_tm",
    "moduli",
    "moment_tensor",
    "relative_permittivity",
    "scalar",
    "simulate",
    "speeds",
    "tune",
]
