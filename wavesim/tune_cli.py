"""``python -m wavesim tune``: tune a shape ahead of time, list what is kept, or clear it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import torch

from . import tuning
from .config import PML, Receivers
from .device import triton_obstacle
from .equations import REGISTRY
from .simulate import tune
from .stencils import ORDERS


def add_parser(commands: Any) -> None:
    """Add ``tune`` to the subparsers of the command line."""
    add = commands.add_parser(
        "tune",
        help="find the fastest kernels for a shape",
        description="Find the fastest layout of the kernels for a shape and keep it.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add.add_argument("--equation", choices=sorted(REGISTRY), default="scalar")
    add.add_argument("--shape", type=int, nargs="+", metavar="N", help="model cells, x last")
    add.add_argument("--width", type=int, default=20, help="cells of the layers on every face")
    add.add_argument("--shots", type=int, default=1)
    add.add_argument("--order", type=int, choices=ORDERS, default=4)
    add.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    add.add_argument("--model-per-shot", action="store_true", help="a model with a shot axis")
    add.add_argument("--gradient", action="store_true", help="the backward run, too")
    add.add_argument("--device", default="cuda", help="cuda or cuda:N")
    add.add_argument("--folder", type=Path, help="of results; by default where calls look")
    add.add_argument("--list", action="store_true", help="show what is kept, and stop")
    add.add_argument("--clear", action="store_true", help="delete what is kept, and stop")
    add.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Do what the parsed arguments ask for; the exit status."""
    folder = tuning.cache_folder(options.folder)
    if options.list:
        print(folder)
        for _, key, found in tuning.kept(folder):
            print(_line(key, found))
        return 0
    if options.clear:
        print(f"{folder}: {tuning.clear(folder)} results deleted")
        return 0
    try:
        _tune(options, folder)
    except (ValueError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _tune(options: argparse.Namespace, folder: Path) -> None:
    if not options.shape:
        raise ValueError("--shape: got nothing, expected a model such as --shape 300 300.")
    device = torch.device(options.device)
    obstacle = triton_obstacle(device) if torch.cuda.is_available() else "there is no GPU"
    if obstacle or device.type != "cuda":
        raise RuntimeError(f"--device: got {options.device}, but {obstacle or 'it is no GPU'}.")
    ndim, shots = len(options.shape), options.shots
    shape = (shots,) * options.model_per_shot + tuple(options.shape)
    model = torch.ones(shape, dtype=getattr(torch, options.dtype), device=device)
    at = torch.zeros(shots, 1, ndim, dtype=torch.int64, device=device)
    found = tune(
        options.equation,
        {p.name: model for p in REGISTRY[options.equation].parameters},
        gradient=options.gradient,
        folder=folder,
        spacing=1.0,
        dt=1e-12,  # below any limit: the time step does not matter here
        nt=1,
        order=options.order,
        receivers=Receivers(at),
        boundary=PML(width=options.width, frequency=1.0),
    )
    for direction, result in found.items():
        print(f"{direction}: {_result(result)}")


def _line(key: tuning.Key, found: tuning.Tuned) -> str:
    shape = "x".join(map(str, key.shape))
    direction = tuning.direction(key.adjoint, key.history)
    call = f"{key.equation} {shape} {key.shots} shots order {key.order} {key.dtype} {direction}"
    return f"{found.date}  {key.gpu}  {call}: {_result(found)}"


def _result(found: tuning.Tuned) -> str:
    tried = sum(m.seconds is not None for m in found.measured)
    return f"{1e6 * (found.seconds or 0):.3g} us a step, best of {tried}: {found.choice}"
