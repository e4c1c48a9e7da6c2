"""Builds the stage kernels ahead of time for a target without a GPU; run in a process of its own.

``python build.py TARGET DTYPE ORDER NDIM`` prints one JSON row per kernel: registers and spills are
read from ptxas where the target is an NVIDIA one.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from wavesim import stepping
from wavesim.buffers import Tables
from wavesim.choice import FUSED, STORED, Card, default_choice
from wavesim.config import INTEGERS
from wavesim.cpml import Damping
from wavesim.equations import REGISTRY
from wavesim.history import DeviceHistory
from wavesim.layout import Layout
from wavesim.plan import Plan, compacted
from wavesim.triton_kernels import compiled, extremes, fold, lists
from wavesim.triton_kernels.adjoint import loop_adjoint_kernel, stage_adjoint_kernel
from wavesim.triton_kernels.compiled import FEW_SPILLS, REGISTER_LIMITS
from wavesim.triton_kernels.forward import loop_forward_kernel, stage_forward_kernel
from wavesim.triton_kernels.gradient import gradient_kernel
from wavesim.triton_kernels.launch import FEW_PROGRAMS, GRADIENT_REGISTERS, Launcher
from wavesim.values import Looked

COMPACT = "adjoint-compact"
LIMITS = {"once": FEW_PROGRAMS, "compact": GRADIENT_REGISTERS}
TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}


def plan_of(equation: str, dtype: str, order: int, ndim: int) -> Plan:
    return Plan(
        equation=REGISTRY[equation],
        model=(40,) * ndim,
        widths=((20, 20),) * ndim,
        spacing=(5.0,) * ndim,
        order=order,
        steps=4,
        ratio=1,
        dt=1e-4,
        shots=2,
        dtype=dtype,
        damping=((Damping(2000.0, alpha_max=80.0),) * 2,) * ndim,
    )


def launchers(plan: Plan) -> dict[str, Launcher]:
    """The launchers of a forward, a tangent and an adjoint run with history and every channel."""
    found: list[Launcher] = []
    compiled.compiled, compiled.execute = lambda *arguments: None, _point_at_nothing
    Launcher.run = lambda self, steps: found.append(self) or {}  # type: ignore[method-assign]
    dtype, system = getattr(torch, plan.dtype), plan.system
    box = (plan.shots, *plan.box)
    layout = Layout.of(plan, default_choice(plan, Card()))
    count = 1 + max(i for stage in system.stages for i in stage.coefficients)
    coefs = tuple(torch.ones(1, *plan.box, dtype=dtype) for _ in range(count))
    fields = tuple(torch.zeros(box, dtype=dtype) for _ in system.fields)
    memory = tuple(torch.zeros(plan.memory_shape(a), dtype=dtype) for a, _ in plan.memories)
    cells = torch.zeros(plan.shots, 1, dtype=torch.int64)
    where = [cells] * len(system.injections), [cells] * len(system.recorded)
    values = torch.zeros(plan.shots, 1, plan.steps, dtype=dtype)
    amplitudes, records = ((values,) * len(w) for w in where)
    run = stepping.Run.start(layout, coefs, *where)
    history = DeviceHistory(layout, coefs[0])
    stepping.forward(run, amplitudes, fields, memory, history)
    stepping.forward(run, amplitudes, fields, memory, history, coefs)
    everything = (coefs, amplitudes, fields, memory)
    needs = stepping.Needs(*((True,) * len(inputs) for inputs in everything))
    names = ["forward", "tangent"]
    for route in (FUSED, STORED)[: len(system.stages)]:
        run.layout = replace(layout, choice=replace(layout.choice, route=route))
        stepping.adjoint(run, coefs, history, (records, fields, memory), needs)
        names.append(f"adjoint-{route}")
    if system.compact is not None:
        run.layout = Layout.of(compacted(plan), layout.choice)
        history = DeviceHistory(run.layout, coefs[0])
        stepping.adjoint(run, coefs, history, (records, fields, memory), needs)
        names.append(COMPACT)
    return dict(zip(names, found, strict=True))


def _point_at_nothing(found, kernel, programs, arguments) -> None:
    """Instead of a kernel that lists points: indices that no operation after it refuses."""
    if "lists" in arguments:
        arguments["lists"].zero_()


def preparing(plan: Plan):
    """(name, ASTSource, warps) of the kernels that list points and look at a call's values."""
    layout, found = Layout.of(plan, default_choice(plan, Card())), {}
    compiled.execute = _point_at_nothing
    compiled.compiled = lambda kernel, key, arguments: found.update({kernel: arguments})
    dtype = getattr(torch, plan.dtype)
    tables = Tables.of(layout, dtype, torch.device("cpu"))
    for counts in ((3, 5), (lists.COUNTED + 1,)):
        channels = [torch.zeros(plan.shots, n, dtype=torch.int64) for n in counts]
        lists.PointList.of(layout, tables, channels)
    locations = [torch.zeros(plan.shots, 3, plan.ndim, dtype=kind) for kind in INTEGERS]
    lists.flat_cells(plan, locations)
    spectra = torch.fft.rfft(torch.ones(2, 9, dtype=dtype))
    model = torch.ones(plan.model, dtype=dtype)
    pairs = [(model, model, axis - plan.ndim) for axis in range(plan.ndim)]
    extremes.extremes(Looked([model] * 3, locations, pairs, 2, spectra))
    fold.fold(torch.ones(1, *plan.box, dtype=dtype), plan.widths)
    for kernel, arguments in found.items():
        yield f"before-{kernel.__name__}", source(kernel, arguments), 4


def sources(plan: Plan):
    """(name, ASTSource, warps) of every stage's kernels, and of the loops over all of them; with
    the first equation, of those that run before, which know no equation."""
    if plan.equation is next(iter(REGISTRY.values())):
        yield from preparing(plan)
    numbers = {"step": 3, "steps": 3, "first_shot": 3, "shots": 16, "programs": 3}
    for name, launcher in launchers(plan).items():
        if name == COMPACT:
            arguments = launcher.gradient_arguments() | numbers
            yield "gradient-compact", source(gradient_kernel, arguments), arguments["num_warps"]
            continue
        adjoint = name.startswith("adjoint")
        numbers["counters"] = torch.zeros(1, dtype=torch.int32)
        for index in range(len(plan.system.stages)):
            kernel = stage_adjoint_kernel if adjoint else stage_forward_kernel
            arguments = launcher.step_arguments(index) | numbers
            yield f"{name}-{index}", source(kernel, arguments), launcher.choice.warps
        if plan.ndim < 3:  # as `choice.candidates`
            kernel = loop_adjoint_kernel if adjoint else loop_forward_kernel
            for once in (False, True) if name in ("forward", "adjoint-fused") else (False,):
                near = numbers["counters"] if once else None
                own = {"ONCE": once, "near": near, "NEAR": 8 * once}
                loop = source(kernel, launcher.loop_arguments() | numbers | own)
                yield f"{name}-{'once' if once else 'loop'}", loop, launcher.choice.warps


TYPES = {torch.float32: "*fp32", torch.float64: "*fp64", torch.int64: "*i64", torch.int32: "*i32"}
TYPES |= {torch.int16: "*i16", torch.int8: "*i8", torch.uint8: "*u8"}


def source(kernel, arguments: dict) -> ASTSource:
    """As at run time: pointers are aligned, and of the numbers those that are always are."""
    signature, constants, aligned = {}, {}, {}

    def kind(value, path: tuple[int, ...], name: str):
        if isinstance(value, tuple):
            return tuple(kind(v, (*path, k), name) for k, v in enumerate(value))
        if isinstance(value, torch.Tensor):
            aligned[path] = [["tt.divisibility", 16]]
            return TYPES[value.dtype]
        if name in ("sizes", "layers"):
            aligned[path] = [["tt.divisibility", 16]]
        return "i32"

    for position, name in enumerate(kernel.arg_names):
        if name.rstrip("2").replace("_", "").isupper() or arguments[name] is None:
            signature[name], constants[(position,)] = "constexpr", arguments[name]
        else:
            signature[name] = kind(arguments[name], (position,), name)
    return ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=aligned)


def ptxas(ptx: str, limit: int | None) -> dict[str, int]:
    """Registers and spilled bytes that ptxas reports, told what Triton tells it."""
    arch = re.search(r"\.target (\w+)", ptx).group(1)
    if limit is not None:
        ptx = re.sub(r"(\.reqntid \d+)", rf"\1\n.maxnreg {limit}", ptx)
    program = Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.ptx"
        path.write_text(ptx)
        options = ["-v", "-lineinfo", "--fmad=false", f"-arch={arch}", "-o", "/dev/null"]
        command = [str(program), *options, str(path)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    used = int(re.search(r"Used (\d+) registers", text).group(1))
    spills = int(re.search(r"(\d+) bytes stack frame", text).group(1))
    return {"registers": used, "spilled_bytes": spills}


def registers(ptx: str, limit: int | None) -> dict[str, int | None]:
    """What is launched: with the limit, or at the launcher's lowest that spills little."""
    first = found = {"limit": limit, **ptxas(ptx, limit)}
    for limit in REGISTER_LIMITS:
        if found["spilled_bytes"] <= 4 * FEW_SPILLS:
            break
        if limit > first["registers"]:
            found = {"limit": limit, **ptxas(ptx, limit)}
    return found


def main(target: str, dtype: str, order: str, ndim: str, *equations: str) -> None:
    for equation in equations or REGISTRY:
        if int(ndim) not in REGISTRY[equation].dimensions:
            continue
        plan = plan_of(equation, dtype, int(order), int(ndim))
        for name, code, warps in sources(plan):
            options = {"num_warps": warps, "enable_fp_fusion": False}
            built = triton.compile(code, target=TARGETS[target], options=options)
            row = {"equation": equation, "kernel": name, "target": target, "dtype": dtype}
            row |= {"order": int(order), "ndim": int(ndim), "triton": triton.__version__}
            row["torch"] = torch.__version__
            if "ptx" in built.asm:
                row |= registers(built.asm["ptx"], LIMITS.get(name.rpartition("-")[2]))
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
