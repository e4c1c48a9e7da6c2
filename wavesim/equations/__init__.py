"""The equations, one a file and registered here; they import nothing but ``_spec``."""

from __future__ import annotations

from . import scalar
from ._spec import Derivative, Equation, Parameter, SourceChannel, Stage, System

REGISTRY: dict[str, Equation] = {e.name: e for e in (scalar.EQUATION,)}

__all__ = ["REGISTRY", "Derivative", "Equation", "Parameter", "SourceChannel", "Stage", "System"]
