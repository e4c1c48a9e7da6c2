"""The public functions, one an equation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Unpack

import torch
from torch import Tensor

from .config import require
from .equations import REGISTRY, Equation
from .equations.maxwell import without_averaging
from .report import Result
from .run import Options, run
from .run import tune as tune_call
from .tuning import Tuned


def scalar(v: Tensor, **options: Unpack[Options]) -> Result:
    """Propagate scalar waves, ``u_tt = v^2 (laplace u - f)``, in 1, 2 or 3 dimensions.

    Exactly differentiable with respect to ``v``, the source amplitudes and the initial state,
    through the records and the final state, for the discrete system that is computed. Derived
    settings (largest speed, boundary profile, step ratio) are constants for every gradient.

    Args:
        v: wave speed, m/s, [z, y, x] (or [y, x], or [x]), or one model per shot with a leading
            shot axis. float32 or float64; everything else must have the same dtype and device.
        spacing: grid spacing, m, one number or one per axis.
        dt: time step of amplitudes and records, s. Where it is too large for stability, several
            internal steps are taken and the amplitudes are resampled.
        sources: amplitudes ``f`` and locations; channel "u" if given as a mapping.
        receivers: locations where u is recorded: sample k is the field at ``k dt``, before the
            update of step k, so the first one is the initial field.
        boundary: absorbing layers, added outside the model.
        order: order of accuracy in space: 2, 4, 6 or 8.
        nt: number of time samples; needed without sources.
        initial: state to start from, as returned in ``result.state``, or fields "u" and "um1".
        max_velocity: speed that decides step ratio and boundary profile, m/s; by default the
            model's largest. Give it to keep both fixed while the model changes.
        substeps: False refuses a dt that needs internal steps.
        resampling: taper and padding of the resampling.
        backend: "auto" (Triton for tensors on a GPU, else eager), "triton" or "eager".
        history: what the gradient keeps of the forward run.
        validate: False skips all checks of values, and with them the only readback from the
            device; it needs ``max_velocity`` and the boundary's ``frequency``.
        autotune: how the kernels are laid out, which changes their speed and no bit of the result:
            "cached" takes what was found fastest before (`wavesim.tune`), else a default; True
            measures first, forward and backward, where nothing is kept; False takes the default.

    Returns:
        A `Result`: ``receivers`` [shot, receiver, time], ``state`` and ``report``.

    Raises:
        TypeError, ValueError: naming argument, got, expected and what to do.
        RuntimeError: the backend asked for cannot be had, or nothing could be tuned.

    Example:
        >>> import torch
        >>> from wavesim import Receivers, Sources
        >>> v = torch.full((30, 40), 2000.0, requires_grad=True)
        >>> wavelet = torch.randn(1, 1, 50)
        >>> out = scalar(v, spacing=5.0, dt=5e-4,
        ...              sources=Sources(wavelet, torch.tensor([[[2, 20]]])),
        ...              receivers=Receivers(torch.tensor([[[2, 5], [2, 35]]])))
        >>> out.receivers.shape
        torch.Size([1, 2, 50])
        >>> out.receivers.square().sum().backward()
    """
    return run(REGISTRY["scalar"], {"v": v}, options)


def acoustic(v: Tensor, rho: Tensor, **options: Unpack[Options]) -> Result:
    """Propagate acoustic waves with variable density in 1, 2 or 3 dimensions.

    ``rho v_t = -grad p + f``, ``p_t = -K (div v - s)``, ``K = rho v^2``, on a staggered grid:
    velocity component i lies half a cell up axis i. Sample k of p is p at ``k dt``, of a velocity
    component half an internal step (``report.internal_dt``) earlier.

    Args:
        v: speed, m/s, at least 0, [z, y, x], [y, x] or [x], with a shot axis first if per shot.
        rho: density, kg/m^3, at least 0; where it is 0 (a vacuum) the pressure stays 0.
        options: as in `scalar`. Source channels: "p" (volume injection rate s, 1/s), "vz", "vy",
            "vx" (force density f, N/m^3). Receiver channels: "p" (Pa), "vz", "vy", "vx" (m/s).
            Without a mapping "p" is meant. A point of a velocity channel names the half cell above
            its cell, so it ends one cell before the model does.

    Returns, raises: as `scalar`.

    Example:
        >>> import torch
        >>> from wavesim import Receivers, Sources
        >>> v, rho = torch.full((20, 30), 1500.0), torch.full((20, 30), 1000.0)
        >>> at = torch.tensor([[[3, 4]]])
        >>> out = acoustic(v, rho, spacing=5.0, dt=5e-4, sources=Sources(torch.randn(1, 1, 9), at),
        ...                receivers={"p": Receivers(at), "vx": Receivers(at)})
        >>> out.receivers["vx"].shape, out.offsets["vx"]
        (torch.Size([1, 1, 9]), (0.0, 0.5))
    """
    return run(REGISTRY["acoustic"], {"v": v, "rho": rho}, options)


def elastic(lamb: Tensor, mu: Tensor, buoyancy: Tensor, **options: Unpack[Options]) -> Result:
    """Propagate elastic waves in an isotropic medium, in 2 or 3 dimensions.

    ``v_t = B (div s + f)``, ``s_t = lamb tr(e) I + 2 mu e`` with the strain rate e, on the grid of
    Virieux (1986) and Levander (1988): normal stresses at the nodes, v_i half a cell up axis i,
    s_ij half a cell up both. `wavesim.moduli` makes the parameters from vp, vs and density.

    Args:
        lamb, mu: Lame's parameters, Pa; mu is 0 in a fluid.
        buoyancy: 1 / density, m^3/kg; 0 means a vacuum, where lamb and mu should be 0 too.
        options: as in `scalar`. Source channels: "p" (pressure rate, Pa/s, subtracted from every
            normal stress), "vz", "vy", "vx" (force density, N/m^3), and every stress by its name,
            "szz", "syy", "sxx", "syz", "sxz", "sxy" (stress rate, Pa/s; `wavesim.moment_tensor`).
            Receiver channels: the same; "p" is minus the mean of the normal stresses. Without a
            mapping "p" is meant.

    Returns, raises: as `scalar`. Sample k of a stress is at ``k dt``, of a velocity half an
    internal step earlier.

    Example:
        >>> import torch
        >>> from wavesim import Receivers, Sources, moduli
        >>> vp, vs, rho = (torch.full((20, 30), x) for x in (2000.0, 1000.0, 2200.0))
        >>> at = torch.tensor([[[3, 4]]])
        >>> out = elastic(*moduli(vp, vs, rho), spacing=5.0, dt=5e-4,
        ...               sources={"vy": Sources(torch.randn(1, 1, 9), at)},
        ...               receivers={"p": Receivers(at), "vx": Receivers(at)})
        >>> out.receivers["p"].shape
        torch.Size([1, 1, 9])
    """
    return run(REGISTRY["elastic"], {"lamb": lamb, "mu": mu, "buoyancy": buoyancy}, options)


def maxwell_tm(
    epsilon: Tensor,
    sigma: Tensor,
    mu: Tensor,
    *,
    averaging: str = "arithmetic",
    **options: Unpack[Options],
) -> Result:
    """Propagate electromagnetic waves in 2-D, transverse magnetic: Ey, Hx, Hz on axes [z, x].

    ``mu H_t = -curl E - M``, ``epsilon E_t = curl H - sigma E - J`` for right-handed x, y, z, on
    the grid of Yee (1966): Ey at the nodes, Hx half a cell up z, Hz half a cell up x.

    Args:
        epsilon, mu: relative permittivity and permeability, above 0, [z, x].
        sigma: conductivity, S/m, at least 0.
        averaging: "arithmetic" takes parameters at each field's own place as the mean of the
            nodes around it; "collocated" takes its cell's, as TIDE does.
        options: as in `scalar`. Source channels: "ey" (current, A, spread over the cell's area),
            "hz", "hx" (magnetic current, V). Receiver channels: "ey" (V/m), "hz", "hx" (A/m);
            without a mapping "ey" is meant. Sample k is E at ``k dt`` plus an internal step
            (``report.internal_dt``; so at ``(k + 1) dt`` where the step ratio is 1), after the
            source of step k, and H at half an internal step before that.

    Returns, raises: as `scalar`. The layers depend on a frequency only if `PML` names one.

    Example:
        >>> import torch
        >>> from wavesim import Receivers, Sources
        >>> epsilon, sigma, mu = torch.full((20, 30), 4.0), torch.zeros(20, 30), torch.ones(20, 30)
        >>> at = torch.tensor([[[3, 4]]])
        >>> out = maxwell_tm(epsilon, sigma, mu, spacing=0.02, dt=4e-11,
        ...                  sources=Sources(torch.randn(1, 1, 9), at), receivers=Receivers(at))
        >>> out.receivers.shape
        torch.Size([1, 1, 9])
    """
    parameters = {"epsilon": epsilon, "sigma": sigma, "mu": mu}
    return run(_averaged("maxwell_tm", averaging), parameters, options)


def maxwell(
    epsilon: Tensor,
    sigma: Tensor,
    mu: Tensor,
    *,
    averaging: str = "arithmetic",
    **options: Unpack[Options],
) -> Result:
    """Propagate electromagnetic waves in 3-D; equations and arguments as in `maxwell_tm`.

    E_i lies half a cell up axis i, H_i half a cell up the other two; channels "ex", "ey", "ez"
    (currents, A m, spread over the cell's volume) and "hx", "hy", "hz"; parameters [z, y, x].

    Example:
        >>> import torch
        >>> from wavesim import PML, Receivers, Sources
        >>> epsilon, mu = torch.full((9, 8, 7), 4.0), torch.ones(9, 8, 7)
        >>> at = torch.tensor([[[3, 4, 2]]])
        >>> out = maxwell(epsilon, 0 * mu, mu, spacing=0.02, dt=3e-11, boundary=PML(width=4),
        ...               sources={"ex": Sources(torch.randn(1, 1, 9), at)},
        ...               receivers={"hy": Receivers(at)})
        >>> out.offsets["hy"]
        (0.5, 0.0, 0.5)
    """
    parameters = {"epsilon": epsilon, "sigma": sigma, "mu": mu}
    return run(_averaged("maxwell", averaging), parameters, options)


def _averaged(name: str, averaging: str) -> Equation:
    known = ("arithmetic", "collocated")
    require(averaging in known, "averaging", repr(averaging), f"one of {known}")
    equation = REGISTRY[name]
    return equation if averaging == "arithmetic" else without_averaging(equation)


def simulate(equation: str, parameters: Mapping[str, Tensor], **options: Unpack[Options]) -> Result:
    """Run any registered equation; `scalar` documents every option.

    equation: a name in `wavesim.equations.REGISTRY`. parameters: its model parameters by name.

    >>> import torch
    >>> from wavesim import PML
    >>> out = simulate("scalar", {"v": torch.full((9, 9), 1500.0)}, spacing=[1.0, 1.0], dt=1e-4,
    ...                boundary=PML(width=3, frequency=25.0), nt=4)
    >>> sorted(out.state.fields)
    ['u', 'um1']
    """
    return run(_registered(equation, parameters), parameters, options)


def tune(
    equation: str,
    parameters: Mapping[str, Tensor],
    *,
    gradient: bool | None = None,
    progress: bool = True,
    folder: str | Path | None = None,
    **options: Unpack[Options],
) -> dict[str, Tuned]:
    """Find the fastest layout of the kernels for a call, and keep it for later calls; run nothing.

    Candidates are timed on tensors of their own, a few seconds a direction. Where a result is kept
    already nothing is measured. All candidates give the same bits.

    Args:
        equation, parameters, options: as in `simulate`, on a GPU. Of the values only those matter
            that decide shapes; the number of time samples does not.
        gradient: whether to tune the backward run and the forward run that it needs, too; by
            default if a parameter requires a gradient.
        progress: False shows no bar.
        folder: where results are kept; by default where calls look for them, the folder "tuning"
            in WAVESIM_CACHE_DIR or in the platform's cache folder.

    Returns:
        By direction ("forward", "forward with history", "adjoint with history") its ``choice``,
        its ``seconds`` a step, and all that was ``measured``.

    Raises:
        ValueError: the call is wrong, or not one for the Triton backend on a GPU.
        RuntimeError: no candidate runs, there is no memory for it, or the call is captured in a
            CUDA graph.

    Example::

        v = torch.full((300, 300), 2000.0, device="cuda")
        found = wavesim.tune("scalar", {"v": v}, gradient=True, spacing=[5.0, 5.0], dt=5e-4, nt=1,
                             boundary=wavesim.PML(frequency=25.0))
        found["forward"].choice
    """
    spec = _registered(equation, parameters)
    if gradient is None:
        wanted = any(p.requires_grad for p in parameters.values())
        gradient = torch.is_grad_enabled() and wanted
    where = None if folder is None else Path(folder)
    return tune_call(spec, parameters, options, gradient=gradient, progress=progress, folder=where)


def _registered(equation: str, parameters: Mapping[str, Tensor]) -> Equation:
    require(equation in REGISTRY, "equation", repr(equation), f"one of {sorted(REGISTRY)}")
    spec = REGISTRY[equation]
    names = [p.name for p in spec.parameters]
    require(sorted(parameters) == sorted(names), "parameters", sorted(parameters), str(names))
    return spec
