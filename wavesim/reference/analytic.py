"""Analytic solutions that the physics tests compare with. Needs SciPy, a development extra.

Conventions are those of the equation files; nothing here is used by a run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import hypot, pi, prod

import numpy as np

EPSILON_0 = 8.8541878128e-12
MU_0 = 1.2566370614359173e-06


def ricker(frequency: float, nt: int, dt: float, peak_time: float) -> np.ndarray:
    """Ricker wavelet [nt], largest value 1 at ``peak_time`` s; frequency of its spectral peak, Hz.

    Ricker (1953), Geophysics 18. ``(1 - 2 a) exp(-a)`` with ``a = (pi f (t - peak_time))^2``.

    >>> float(ricker(25.0, 5, 0.01, 0.02)[2])
    1.0
    """
    a = (pi * frequency * (np.arange(nt) * dt - peak_time)) ** 2
    return (1 - 2 * a) * np.exp(-a)


def scalar_green(frequency: np.ndarray, distance: float, speed: float, ndim: int) -> np.ndarray:
    """Outgoing Green's function of ``u_tt / c^2 - laplace u = delta(x) delta(t)`` in frequency.

    With time dependence ``exp(+i omega t)`` and ``k = omega / c``: ``exp(-i k r) / (2 i k)`` in
    1-D, ``-(i / 4) H_0^(2)(k r)`` in 2-D, ``exp(-i k r) / (4 pi r)`` in 3-D, that is
    ``delta(t - r / c) / (4 pi r)``. Morse and Feshbach (1953), Methods of Theoretical Physics, 7.

    Args:
        frequency: Hz, any shape; complex values (negative imaginary part) damp in time.
        distance: r, m, positive. speed: c, m/s. ndim: 1, 2 or 3.

    Returns:
        Complex array of the shape of ``frequency``, in m^(2 - ndim) s.

    Raises:
        ValueError: another ndim, or a distance that is not positive.

    Example:
        >>> abs(scalar_green(np.array([25.0]), 100.0, 1500.0, 3)).item() * 4 * np.pi * 100
        1.0
    """
    from scipy.special import hankel2

    if ndim not in (1, 2, 3):
        raise ValueError(f"ndim: got {ndim}, expected 1, 2 or 3.")
    if not distance > 0:
        raise ValueError(f"distance: got {distance}, expected a positive number of metres.")
    k = 2 * pi * np.asarray(frequency) / speed
    if ndim == 1:
        return np.exp(-1j * k * distance) / (2j * k)
    if ndim == 2:
        return -0.25j * hankel2(0, k * distance)
    return np.exp(-1j * k * distance) / (4 * pi * distance)


def scalar_response(
    amplitudes: np.ndarray,
    dt: float,
    *,
    spacing: Sequence[float],
    distance: float,
    speed: float,
) -> np.ndarray:
    """What `wavesim.scalar` records in a homogeneous full space from one source cell.

    The equation is ``u_tt = v^2 (laplace u - f)`` with f in one cell, a point of strength
    ``prod(spacing)``: the record is ``-prod(spacing) (G * f)(t)`` with `scalar_green`'s G.

    Args:
        amplitudes: f [nt], per m^2 times the unit of u, at ``k dt``, sampled finely enough.
        dt: s. spacing: m, one number per axis: its length is the number of dimensions.
        distance: between source and receiver, m, positive. speed: m/s.

    Returns:
        u [nt] at ``k dt``.

    Example:
        >>> wavelet = ricker(25.0, 200, 1e-3, 0.05)
        >>> u = scalar_response(wavelet, 1e-3, spacing=[5.0] * 3, distance=75.0, speed=1500.0)
        >>> int(np.argmin(u))  # 50 ms of the wavelet's peak and 50 ms of travel
        100
        >>> round(float(u.min() / (-(5.0**3) / (4 * np.pi * 75.0))), 6)
        1.0
    """

    def transfer(frequency):
        return -prod(spacing) * scalar_green(frequency, distance, speed, len(spacing))

    return response(amplitudes, dt, transfer)


def response(
    amplitudes: np.ndarray,
    dt: float,
    transfer: Callable[[np.ndarray], np.ndarray],
    delay: float = 0.0,
) -> np.ndarray:
    """Convolution of amplitudes with a causal transfer function, in frequency.

    Along a contour below the real axis (Phinney 1965, J. Geophys. Res. 70), so that neither a pole
    at zero nor wrap-around matters.

    Args:
        amplitudes: [nt], sampled finely enough. dt: s.
        transfer: from complex frequencies, Hz, to the response with ``exp(+i omega t)``.
        delay: s by which the samples returned are later than the amplitudes of the same index.

    Returns:
        [nt] real.

    Example:
        >>> late = response(ricker(25.0, 100, 1e-3, 0.05), 1e-3,
        ...                 lambda f: np.exp(-2j * pi * f * 0.02))
        >>> int(np.argmax(late))
        70
    """
    nt = len(amplitudes)
    n = 4 * nt
    damping = np.log(1e6) / (n * dt)  # of exp(-damping t): what wraps around has lost 1e6
    times = np.arange(n) * dt
    frequency = np.fft.rfftfreq(n, dt) - 1j * damping / (2 * pi)
    padded = np.pad(np.asarray(amplitudes, dtype=float), (0, n - nt)) * np.exp(-damping * times)
    spectrum = np.fft.rfft(padded) * transfer(frequency) * np.exp(2j * pi * frequency * delay)
    return (np.fft.irfft(spectrum, n) * np.exp(damping * times))[:nt]


@dataclass(frozen=True)
class Medium:
    """A homogeneous electromagnetic medium: relative epsilon and mu, sigma in S/m."""

    epsilon: float = 1.0
    sigma: float = 0.0
    mu: float = 1.0

    def wavenumber(self, frequency: np.ndarray) -> np.ndarray:
        """k, 1/m, of ``exp(i omega t - i k r)``: decaying, so its imaginary part is negative."""
        omega = 2 * pi * np.asarray(frequency, dtype=complex)
        epsilon = EPSILON_0 * self.epsilon + self.sigma / (1j * omega)
        k = omega * np.sqrt(MU_0 * self.mu * epsilon)
        return np.where(k.imag > 0, -k, k)

    def impedance(self, frequency: np.ndarray) -> np.ndarray:
        """``omega mu / k``, ohm."""
        omega = 2 * pi * np.asarray(frequency, dtype=complex)
        return omega * MU_0 * self.mu / self.wavenumber(frequency)


def line_current(
    frequency: np.ndarray, offset: Sequence[float], channel: str, medium: Medium
) -> np.ndarray:
    """Field of a line current of 1 A along y in a homogeneous full space, in frequency.

    ``E_y = -(omega mu / 4) H_0^(2)(k r)``, and from ``i omega mu H = -curl E``
    ``H_z = (i k / 4) H_1^(2)(k r) x / r``, ``H_x = -(i k / 4) H_1^(2)(k r) z / r``. Harrington
    (1961), Time-Harmonic Electromagnetic Fields, section 5-6.

    Args:
        frequency: Hz, complex with a negative imaginary part, or positive.
        offset: (z, x) of the receiver from the source, m. channel: "ey", "hz" or "hx".

    Returns:
        V/m or A/m per A, of the shape of ``frequency``.

    Example:
        >>> far = line_current(np.array([1e9]), (0.0, 50.0), "ey", Medium())
        >>> far /= line_current(np.array([1e9]), (0.0, 50.0), "hz", Medium())
        >>> abs(far).round(1)  # minus the wave impedance of vacuum
        array([376.7])
    """
    from scipy.special import hankel2

    r, k = hypot(*offset), medium.wavenumber(frequency)
    if channel == "ey":
        return -pi * np.asarray(frequency) * MU_0 * medium.mu / 2 * hankel2(0, k * r)
    part = {"hz": offset[1], "hx": -offset[0]}[channel] / r
    return 0.25j * k * hankel2(1, k * r) * part


def current_dipole(
    frequency: np.ndarray, offset: Sequence[float], source: str, channel: str, medium: Medium
) -> np.ndarray:
    """Field of a point current of 1 A m in a homogeneous full space, in frequency.

    With ``G = exp(-i k r) / (4 pi r)``, p along the current and n from source to receiver,
    ``E = -i omega mu G (p (1 - i/(k r) - 1/(k r)^2) - n (n . p) (1 - 3i/(k r) - 3/(k r)^2))`` and
    ``H = i k G (1 - i/(k r)) p x n``. Jackson (1998), Classical Electrodynamics, section 9.2.

    Args:
        frequency: Hz, complex with a negative imaginary part, or positive.
        offset: (z, y, x) of the receiver from the source, m.
        source: "ez", "ey" or "ex". channel: one of these, or "hz", "hy" or "hx".

    Returns:
        V/m or A/m per A m, of the shape of ``frequency``.

    Example:
        >>> at = np.array([1e9])
        >>> abs(current_dipole(at, (0.0, 0.0, 9.0), "ex", "ey", Medium())).item()
        0.0
    """
    r, k = float(np.linalg.norm(offset)), medium.wavenumber(frequency)
    n = dict(zip("zyx", np.asarray(offset) / r, strict=True))
    green, q = np.exp(-1j * k * r) / (4 * pi * r), 1 / (k * r)
    along, axis = source[1], channel[1]
    if channel[0] == "e":
        near, radial = 1 - 1j * q - q**2, 1 - 3j * q - 3 * q**2
        shape = float(axis == along) * near - n[axis] * n[along] * radial
        return -2j * pi * np.asarray(frequency) * MU_0 * medium.mu * green * shape
    after = {"x": "y", "y": "z", "z": "x"}
    if axis == along:
        return 0 * green
    cross = -n[after[axis]] if after[along] == axis else n[after[along]]
    return 1j * k * green * (1 - 1j * q) * cross


def reflection(frequency: np.ndarray, first: Medium, second: Medium) -> np.ndarray:
    """Of the electric field at normal incidence, ``(eta_2 - eta_1) / (eta_2 + eta_1)``.

    >>> reflection(np.array([1e8]), Medium(1.0), Medium(9.0)).real.round(12)
    array([-0.5])
    """
    one, two = first.impedance(frequency), second.impedance(frequency)
    return (two - one) / (two + one)


def _radial(frequency: np.ndarray, distance: float, speed: float, ndim: int) -> tuple:
    """`scalar_green` and its first two derivatives with respect to the distance."""
    from scipy.special import hankel2

    k = 2 * pi * np.asarray(frequency) / speed
    g = scalar_green(frequency, distance, speed, ndim)
    if ndim == 1:
        first = -1j * k * g
    elif ndim == 2:
        first = 0.25j * k * hankel2(1, k * distance)
    else:
        first = -(1j * k + 1 / distance) * g
    return g, first, -(ndim - 1) / distance * first - k**2 * g


def acoustic_response(
    rate: np.ndarray,
    dt: float,
    *,
    spacing: Sequence[float],
    offset: Sequence[float],
    speed: float,
    density: float,
    channel: int | None = None,
) -> np.ndarray:
    """What `wavesim.acoustic` records in a full space from a source s in channel "p" of one cell.

    ``p_tt = v^2 laplace p + K s_t``, so p is what the scalar equation gives for ``f = -rho s_t``:
    ``rho i omega G s`` in frequency, times the cell's volume; velocity is ``-dG/dr s`` along the
    line from the source. A source's sample k acts at ``(k + 1/2) dt``.

    Args:
        rate: s [nt], 1/s. dt: s. spacing: m, one number per axis. offset: receiver minus source,
            m, a component per axis, half cells included. speed: m/s. density: kg/m^3.
        channel: the axis of a velocity, recorded at ``(k - 1/2) dt``; None is the pressure.

    Returns:
        Pa or m/s, [nt].

    Example:
        >>> s = ricker(25.0, 200, 1e-3, 0.05)
        >>> at = {"spacing": [5.0] * 3, "offset": [0.0, 0.0, 75.0]}
        >>> p = acoustic_response(s, 1e-3, **at, speed=1500.0, density=1000.0)
        >>> vx = acoustic_response(s, 1e-3, **at, speed=1500.0, density=1000.0, channel=2)
        >>> round(float(p.max() / (1000.0 * 1500.0 * vx.max())), 1)  # a plane wave's, far from it
        1.0
    """
    distance = float(np.linalg.norm(offset))

    def transfer(frequency):
        omega = 2 * pi * frequency
        g, first, _ = _radial(frequency, distance, speed, len(spacing))
        if channel is None:
            return prod(spacing) * density * 1j * omega * g * np.exp(-0.5j * omega * dt)
        return -prod(spacing) * first * offset[channel] / distance * np.exp(-1j * omega * dt)

    return response(rate, dt, transfer)


def elastic_response(
    amplitudes: np.ndarray,
    dt: float,
    *,
    spacing: Sequence[float],
    offset: Sequence[float],
    speeds: tuple[float, float],
    density: float,
    source: int | None,
    channel: int | None,
) -> np.ndarray:
    """What `wavesim.elastic` records in a full space from one source cell, 2-D (plane strain), 3-D.

    The displacement of a force f is ``(k_s^2 g_s f + grad div (g_s - g_p) f) / (rho omega^2)``, g
    being `scalar_green`'s at the speeds of P and S: in 3-D the solution of Stokes (1849), in 2-D
    that of Eason, Fulton and Sneddon (1956), Phil. Trans. R. Soc. A 248. A pressure rate s gives
    the velocity ``-grad g_p s / (rho vp^2)``, P only. Forces act at ``k dt``, pressure rates at
    ``(k + 1/2) dt``.

    Args:
        amplitudes: force density, N/m^3, or pressure rate, Pa/s, [nt]. dt: s. spacing: m, one
            number per axis. offset: receiver minus source, m, a component per axis, half cells
            included. speeds: vp and vs, m/s. density: kg/m^3.
        source: the force's axis; None is the pressure rate.
        channel: the velocity's axis, recorded at ``(k - 1/2) dt``; None is minus the mean of the
            normal stresses, at ``k dt``.

    Returns:
        m/s or Pa, [nt].

    Example:
        >>> f, at = ricker(25.0, 300, 1e-3, 0.05), {"spacing": [5.0] * 3, "offset": [0, 0, 300.0]}
        >>> v = elastic_response(
        ...     f, 1e-3, **at, speeds=(3000.0, 1500.0), density=2000.0, source=0, channel=0)
        >>> abs(int(np.argmax(v)) - 250) < 10  # across the force: S, after 50 + 200 ms
        True
    """
    ndim, distance = len(spacing), float(np.linalg.norm(offset))
    vp, vs = speeds
    along = np.asarray(offset, dtype=float) / distance

    def transfer(frequency):
        omega, volume = 2 * pi * frequency, prod(spacing)
        p, p1, p2 = _radial(frequency, distance, vp, ndim)
        modulus = density * (vp**2 - 2 * vs**2 * (1 - 1 / ndim))
        if source is None and channel is None:
            late = np.exp(-0.5j * omega * dt)
            return volume * modulus * 1j * omega * p / (density * vp**4) * late
        if source is None:
            late = np.exp(-1j * omega * dt)
            return -volume * p1 * along[channel] / (density * vp**2) * late
        if channel is None:
            return -volume * modulus * p1 * along[source] / (density * vp**2)
        s, s1, s2 = _radial(frequency, distance, vs, ndim)
        across = (s1 - p1) / distance
        both = along[source] * along[channel]
        same = float(source == channel)
        second = across * (same - both) + (s2 - p2) * both
        moved = (same * (omega / vs) ** 2 * s + second) / (density * omega**2)
        return volume * 1j * omega * moved * np.exp(-0.5j * omega * dt)

    return response(amplitudes, dt, transfer)


def rayleigh_speed(vp: float, vs: float) -> float:
    """Speed of the wave along the free surface of a half-space, m/s: Rayleigh (1885).

    The root c < vs of ``(2 - c^2 / vs^2)^2 = 4 sqrt((1 - c^2 / vp^2) (1 - c^2 / vs^2))``.

    >>> round(rayleigh_speed(3**0.5, 1.0), 4)
    0.9194
    """
    from scipy.optimize import brentq

    def excess(c: float) -> float:
        a, b = (c / vp) ** 2, (c / vs) ** 2
        return (2 - b) ** 2 - 4 * ((1 - a) * (1 - b)) ** 0.5

    return brentq(excess, 0.5 * vs, (1 - 1e-9) * vs)


def scalar_semidiscrete(
    initial: np.ndarray, steps: int, dt: float, *, spacing: Sequence[float], speed: float
) -> tuple[np.ndarray, np.ndarray]:
    """Leapfrog in time with exact derivatives in space, from a field at rest: (u_steps, u_-1).

    The domain is periodic. Each Fourier mode turns by ``theta`` a step with
    ``sin(theta / 2) = c |k| dt / 2``; a finite-difference run minus this one shows the error in
    space alone, at any dt. Dablain (1986), Geophysics 51.

    Args:
        initial: field at time 0, [z, y, x] or fewer axes. steps: number of steps. dt: s.
        spacing: m, one number per axis. speed: m/s.

    Raises:
        ValueError: dt so large that the highest wavenumber has no stable solution.

    Example:
        >>> x = np.arange(16) * 2 * np.pi / 16
        >>> u, before = scalar_semidiscrete(np.cos(x), 1, 0.1, spacing=[x[1]], speed=1.0)
        >>> np.allclose(u, np.cos(x) * (1 - 0.1**2 / 2)) and np.allclose(u, before)
        True
    """
    axes = [2 * pi * np.fft.fftfreq(n, h) for n, h in zip(initial.shape, spacing, strict=True)]
    size = np.sqrt(sum(k**2 for k in np.meshgrid(*axes, indexing="ij")))
    sine = speed * size * dt / 2
    if sine.max() > 1:
        raise ValueError(f"dt: got {dt}, expected at most {2 / (speed * size.max())}.")
    theta, spectrum = 2 * np.arcsin(sine), np.fft.fftn(initial)
    after = np.fft.ifftn(spectrum * np.cos(steps * theta)).real
    return after, np.fft.ifftn(spectrum * np.cos(theta)).real
