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
from pathlib import Path

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from wavesim.choice import default_choice
from wavesim.cpml import Damping
from wavesim.equations import REGISTRY
from wavesim.plan import Plan
from wavesim.triton_kernels.adjoint import stage_adjoint_kernel
from wavesim.triton_kernels.forward import stage_forward_kernel
from wavesim.triton_kernels.launch import REGISTER_LIMITS, columns, jitted, slots, stencil

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


def sources(plan: Plan):
    """(name, ASTSource) of every stage's forward, tangent and adjoint kernel, with history."""
    real = {"float32": "*fp32", "float64": "*fp64"}[plan.dtype]
    choice = default_choice(plan)
    blocks = (*choice.interior, *choice.boundary)
    for index, stage in enumerate(plan.system.stages):
        memories = (real,) * len(plan.memories)
        common = {
            "table": "*i32",
            "clock": "*i64",
            "factors": real,
            "profiles": real,
            "first_shot": "i32",
            "shots": "i32",
            "fields": (real,) * len(plan.system.fields),
            "coefs": (real,) * len(stage.coefficients),
            "read": memories,
            "write": memories,
            "hist": (real,) * stage.histories,
            "step": "i32",
            "sizes": ("i32",) * 6,
            "layers": ("i32",) * 15,
            "box": ("i32",) * 11,
        }
        points = {"recording": ("*i64", "*i64", real)}
        points["injecting"] = ("*i64", "*i64", "*i64", real)
        where = slots(stage.reads, stage.targets, (stage.sources[0],), (stage.targets[0],))
        forward = {
            "UPDATE": jitted(stage.update),
            "HISTORY": jitted(stage.history),
            "COLUMNS": columns(plan, index, False),
            "SLOTS": where,
            "STENCIL": stencil(plan.order),
            "BLOCKS": blocks,
        }
        for name in ("forward", "tangent"):
            changes = {"changes": common["coefs"] if name == "tangent" else ()}
            forward["PUSH"] = jitted(stage.push_coefficients) if name == "tangent" else None
            kernel = source(stage_forward_kernel, common | changes | points, forward)
            yield f"{name}{index}", kernel
        where = slots(
            stage.bars, stage.adjoint_targets, (stage.bars[0],), (stage.adjoint_targets[0],)
        )
        adjoint = {
            "PULL": jitted(stage.pull_derivatives),
            "FIELDS": jitted(stage.pull_fields),
            "GRADIENT": jitted(stage.pull_coefficients),
            "COLUMNS": columns(plan, index, True),
            "SLOTS": where,
            "STENCIL": stencil(plan.order),
            "SHIFTS": (0,),
            "BLOCKS": blocks,
        }
        grads = {"grads": (real,) * len(stage.coefficients)}
        grads["coefs"] = (real,) * (len(stage.coefficients) + len(stage.adjoint_reads))
        yield f"adjoint{index}", source(stage_adjoint_kernel, common | points | grads, adjoint)


def source(kernel, signature: dict, constants: dict) -> ASTSource:
    """Strides are multiples of 16 and pointers aligned, as at run time."""
    full = {n: signature.get(n, "constexpr") for n in kernel.arg_names}
    aligned = {}
    for position, name in enumerate(kernel.arg_names):
        kinds = full[name]
        if isinstance(kinds, tuple):
            for k, kind in enumerate(kinds):
                if kind.startswith("*") or name in ("sizes", "layers"):
                    aligned[(position, k)] = [["tt.divisibility", 16]]
        elif kinds.startswith("*"):
            aligned[(position,)] = [["tt.divisibility", 16]]
    values = {(kernel.arg_names.index(n),): v for n, v in constants.items()}
    return ASTSource(fn=kernel, signature=full, constexprs=values, attrs=aligned)


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
    spills = sum(int(n) for n in re.findall(r"(\d+) bytes spill", text))
    return {"registers": used, "spilled_bytes": spills}


def registers(ptx: str) -> dict[str, int | None]:
    """What is launched: without a limit, or at the launcher's lowest that spills nothing."""
    first = found = {"limit": None, **ptxas(ptx, None)}
    for limit in REGISTER_LIMITS:
        if found["spilled_bytes"] == 0:
            break
        if limit > first["registers"]:
            found = {"limit": limit, **ptxas(ptx, limit)}
    return found


def main(target: str, dtype: str, order: str, ndim: str, *equations: str) -> None:
    for equation in equations or REGISTRY:
        if int(ndim) not in REGISTRY[equation].dimensions:
            continue
        plan = plan_of(equation, dtype, int(order), int(ndim))
        warps = default_choice(plan).warps
        for name, code in sources(plan):
            options = {"num_warps": warps, "enable_fp_fusion": False}
            built = triton.compile(code, target=TARGETS[target], options=options)
            row = {"equation": equation, "kernel": name, "target": target, "dtype": dtype}
            row |= {"order": int(order), "ndim": int(ndim), "triton": triton.__version__}
            row["torch"] = torch.__version__
            if "ptx" in built.asm:
                row |= registers(built.asm["ptx"])
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
