"""What a call costs besides its time loop: PyTorch operations, and waits for the device."""

from __future__ import annotations

import pytest
import torch

from benchmarks.cases import Case, Experiment
from benchmarks.host import call, dry, operations
from wavesim import PML, Receivers, Sources, media, scalar
from wavesim.media import replicate

pytestmark = pytest.mark.filterwarnings("ignore:PML.frequency")  # one step has no spectrum

# of a second call: kernels, and all operations (views too), by what is asked for
LIMITS = {
    ("scalar", False, False): (12, 40),
    ("scalar", False, True): (14, 48),
    ("scalar", True, False): (35, 106),
    ("scalar", True, True): (37, 114),
    ("acoustic", False, False): (34, 75),
    ("acoustic", True, False): (80, 191),
    ("acoustic", False, True): (57, 113),
    ("elastic", False, False): (60, 128),
    ("elastic", False, True): (103, 201),
    ("elastic", True, False): (128, 294),
    ("maxwell_tm", False, False): (55, 103),
    ("maxwell_tm", False, True): (56, 109),
    ("maxwell_tm", True, False): (135, 279),
}


@pytest.mark.parametrize(("equation", "gradient", "validate"), LIMITS)
def test_a_second_call_takes_no_more_operations_than_it_needs(equation, gradient, validate):
    """Each costs the host some microseconds on a GPU; their number does not depend on sizes."""
    once = call(Experiment(Case(equation, (30, 30), 1, 1), gradient, "cpu"), validate)
    with dry():
        once()
        counted, _ = operations(once)
    kernels, views = counted.kernels.total(), counted.views.total()
    most, most_in_all = LIMITS[equation, gradient, validate]
    assert kernels <= most, counted.kernels
    assert kernels + views <= most_in_all, counted.views


@pytest.mark.parametrize("gradient", [False, True], ids=["forward", "gradient"])
@pytest.mark.parametrize("equation", ["scalar", "acoustic", "elastic", "maxwell_tm"])
def test_a_call_waits_once_for_the_device_to_be_checked_and_else_never(equation, gradient):
    """One packed readback, none with validate=False, also for several shots and in backward."""
    for validate, expected in ((True, ["tolist"]), (False, [])):
        once = call(Experiment(Case(equation, (30, 30), 3, 1), gradient, "cpu"), validate)
        with dry():
            once()
            counted, waits = operations(once)
        assert waits == expected
        assert counted.kernels["_local_scalar_dense"] == counted.kernels["nonzero"] == 0


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.int8, torch.uint8], ids=str)
def test_locations_of_any_integer_type_are_the_same_cells(dtype):
    """Also cell 0 of every axis, which `IGNORE` cut to 16 bits looks like."""
    at = torch.tensor([[[0, 0], [3, 4]]])

    def record(locations: torch.Tensor) -> torch.Tensor:
        f = torch.ones(1, 2, 6)
        return scalar(
            torch.full((7, 9), 1500.0),
            spacing=5.0,
            dt=5e-4,
            sources=Sources(f, locations),
            receivers=Receivers(locations),
            boundary=PML(width=2, frequency=25.0),
        ).receivers

    got = record(at.to(dtype))
    assert torch.equal(got, record(at))
    assert got.abs().amax(-1).min() > 0


@pytest.mark.parametrize("shape", [(5, 6), (2, 5, 6), (1, 1), (1, 3)], ids=str)
def test_replication_and_its_transpose_are_derivatives_of_each_other(shape, monkeypatch):
    """First and second derivatives in both modes against differences, and PyTorch's values."""
    widths = ((2, 3), (0, 4))
    v = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    v.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: replicate(x, widths), (v,), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(lambda x: replicate(x, widths), (v,))
    whole = v if v.ndim == 3 else v[None]
    want = torch.nn.functional.pad(whole, (0, 4, 2, 3), mode="replicate")
    assert torch.equal(replicate(v, widths), want)
    monkeypatch.setattr(media, "PADDED", 0)  # as for a model of 2^31 cells
    assert torch.equal(replicate(v, widths), want)


def test_replication_takes_function_transforms():
    """vmap of a gradient is the gradient one by one."""
    v = torch.randn(3, 5, 6, generator=torch.Generator().manual_seed(0))

    def gradient(x: torch.Tensor) -> torch.Tensor:
        return torch.func.grad(lambda y: replicate(y, ((2, 3), (1, 0))).sin().sum())(x)

    assert torch.allclose(torch.func.vmap(gradient)(v), torch.stack([gradient(x) for x in v]))
