"""The equations, one a file and registered here; they import nothing but ``_spec`` and helpers."""

from __future__ import annotations

from . import acoustic, elastic, maxwell, scalar
from ._spec import Derivative, Equation, Injection, Layer, Parameter, Stage, System

REGISTRY: dict[str, Equation] = {
    e.name: e
    for e in (
        scalar.EQUATION,
        acoustic.EQUATION,
        elastic.EQUATION,
        maxwell.TRANSVERSE,
        maxwell.EQUATION,
    )
}

__all__ = [
    "REGISTRY",
    "Derivative",
    "Equation",
    "Injection",
    "Layer",
    "Parameter",
    "Stage",
    "System",
]
