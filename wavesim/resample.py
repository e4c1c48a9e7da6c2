"""Between the user's time step and the internal one: band-limited, and each other's transpose."""

from __future__ import annotations

import torch
from torch import Tensor


def _band(n: int, taper: float, like: Tensor) -> Tensor:
    """Weights of the rfft bins of n samples: Nyquist zeroed, a cosine over the last fraction."""
    weights = torch.ones(n // 2 + 1, dtype=like.dtype, device=like.device)
    count = int(taper * len(weights))
    if count:
        ramp = torch.arange(1, count + 1, dtype=like.dtype, device=like.device) / (count + 1)
        weights[-count:] = torch.cos(ramp * (torch.pi / 2)).square()
    if n % 2 == 0:
        weights[-1] = 0
    return weights


def upsample(samples: Tensor, ratio: int, *, taper: float = 0.0, padding: int = 0) -> Tensor:
    """[..., n] at the user's step to [..., ratio n] at the internal one, by zeros in frequency.

    ``taper`` is the fraction of the band that a cosine brings to zero, ``padding`` the number of
    zero samples appended before the transform, both against wrap-around; exact for ratio 1.
    """
    if ratio == 1:
        return samples
    if samples.numel() == 0:
        return samples.new_zeros(*samples.shape[:-1], samples.shape[-1] * ratio)
    n = samples.shape[-1] + padding
    spectrum = torch.fft.rfft(samples, n=n) * _band(n, taper, samples)
    fine = torch.fft.irfft(spectrum, n=ratio * n) * ratio
    return fine[..., : ratio * samples.shape[-1]]


def downsample(samples: Tensor, ratio: int, *, taper: float = 0.0, padding: int = 0) -> Tensor:
    """[..., ratio n] to [..., n]: the transpose of `upsample` over the ratio."""
    if ratio == 1:
        return samples
    short = samples.shape[-1] // ratio
    if samples.numel() == 0:
        return samples.new_zeros(*samples.shape[:-1], short)
    n = short + padding
    spectrum = torch.fft.rfft(samples, n=ratio * n)[..., : n // 2 + 1] * _band(n, taper, samples)
    return torch.fft.irfft(spectrum, n=n)[..., :short] / ratio
