r"""Drawing the data of layers that leave the assumptions of Part II: targets, tokens of any law, and labels.

A target may lack symmetry or have several heads, and keys may belong to tokens of their own. With nothing changed a
seed has the data of :mod:`~attn_lib.simulation.single_head_sampling`.
"""

from typing import NamedTuple

import numpy as np
import torch

from attn_lib.simulation._hardware import BLOCK
from attn_lib.simulation.heads_risk import preactivations
from attn_lib.simulation.sampling import generator
from attn_lib.simulation.sensing import pairs
from attn_lib.simulation.single_head_sampling import draw_matrix, uniform_rotation

__all__ = ["NEXT_HEAD", "VariantData", "variant_data"]

NEXT_HEAD = 1_000_000  # added to a seed for the target of the next head


class VariantData(NamedTuple):
    """Targets M0 (head, d, d), tokens x (n, T, d), those of the keys (None in self-attention), labels Y (n, T, T)."""

    M0: torch.Tensor
    x: torch.Tensor
    keys: torch.Tensor | None
    Y: torch.Tensor


def variant_data(
    problem,
    tokens,
    *,
    d,
    n,
    seed,
    stream="train",
    symmetric_target=True,
    target_heads=1,
    cross=False,
    device="cpu",
    dtype=torch.float64,
):
    r"""Targets, tokens and labels of a seed.

    A target without symmetry is :math:`M_0=S_0R` with a uniform rotation R: the singular values of S0 and no relation
    between its two sides. Its noise is independent for all T^2 pre-activations, of variance Delta/2, as in
    cross-attention; that of self-attention with a symmetric target is as in
    :func:`~attn_lib.simulation.single_head_sampling.labelled_tokens`.

    Parameters
    ----------
    problem : SingleHead
    tokens
        A law of :mod:`attn_lib.simulation.tokens`.
    d, n : int
        Dimension and number of samples.
    seed : int
        >= 0.
    stream : str
        "train", or "test" for fresh samples.
    symmetric_target : bool
    target_heads : int
        >= 1.
    cross : bool
        Whether keys belong to tokens of their own.
    device : str
        Where the result goes. Random numbers are drawn on the CPU, some at a time.
    dtype : torch.dtype
        Of tokens and labels, which are computed in float64.

    Returns
    -------
    VariantData
    """
    M0 = np.stack([_target(problem, d, seed + NEXT_HEAD * h, symmetric_target) for h in range(target_heads)])
    T, M0 = problem.n_tokens, torch.as_tensor(M0, device=device)
    symmetric_noise = symmetric_target and not cross
    n_noise = T * (T + 1) // 2 if symmetric_noise else T * T
    widths = (T * d, target_heads * n_noise, T * d * cross)
    rng, variances = generator(seed, stream), tokens.variances(d).to(device)
    x, keys, Y = (torch.empty(n, T, k, device=device, dtype=dtype) for k in (d, d * cross, T))
    size = max(1, BLOCK // sum(widths))
    for rows in (slice(i, min(i + size, n)) for i in range(0, n, size)):
        shape = rows.stop - rows.start, sum(widths)
        numbers = torch.as_tensor(rng.standard_normal(shape), device=device)
        g, noise, g_keys = numbers.split(widths, dim=1)
        block = tokens.draw(g.unflatten(1, (T, d)), seed)
        block_keys = tokens.draw(g_keys.unflatten(1, (T, d)), seed) if cross else None
        noise = noise.unflatten(1, (target_heads, n_noise)) * (problem.Delta / 2) ** 0.5
        if symmetric_noise:
            a, b = pairs(T, device)
            xi = noise.new_zeros(shape[0], target_heads, T, T)
            xi[..., a, b] = xi[..., b, a] = torch.where(a == b, 2**0.5, 1.0) * noise
        else:
            xi = noise.unflatten(-1, (T, T))
        z = preactivations(block, M0, variances, block_keys)
        x[rows], Y[rows] = block, torch.softmax(problem.beta0 * (z + xi), dim=-1).mean(1)
        if cross:
            keys[rows] = block_keys
    return VariantData(M0, x, keys if cross else None, Y)


def _target(problem, d, seed, symmetric):
    """S0, or S0 R."""
    S0 = draw_matrix(problem, d, seed)
    if symmetric:
        return S0
    # a stream of its own, as the embeddings of attn_lib.simulation.tokens have
    return S0 @ uniform_rotation(np.random.default_rng([1001, seed]), d)
