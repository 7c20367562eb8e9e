"""Answers to exercises of Part II: message_passing, thresholds, inductive_bias."""

import numpy as np

from attn_lib.exercises.answer import Answer

__all__ = ["ANSWERS"]


def _own_fields():
    """Mean square of the fields of the samples that made S^1, over that with the Onsager term, for d to infinity.

    With z = omega - Sigma C g, of which g is a function of the target's field alone, and Stein's lemma.
    """
    from attn_lib.problems import MarchenkoPastur, SingleHead
    from attn_lib.theory.matrix_evolution import evolve

    alpha = 0.5
    target = MarchenkoPastur(kappa0=0.5)
    path = evolve(SingleHead(alpha=alpha, lam=0.01, Delta=0.5, kappa=1.0, target=target), n_iter=1)
    m, q, Sigma = path.m[1], path.q[1], path.Sigma[1]
    cross, square = -m * path.m_hat[0] / (2 * alpha), path.q_hat[0] / (2 * alpha)  # E omega.g and E g.Cg
    return 1 + (-2 * Sigma * cross + Sigma**2 * square) / (3 * q)


def _measurements(d=16, rank=4, n_draws=4000):
    """Statistical dimension of the descent cone of the trace at a matrix of that size and rank.

    The mean squared distance of a Gaussian matrix from the multiples of the subdifferential, each the closest one; by
    draws with a fixed seed, exact to 0.3 per cent.
    """
    rng = np.random.default_rng(0)
    null = rng.standard_normal((n_draws, d - rank, d - rank))
    x = np.linalg.eigvalsh((null + null.transpose(0, 2, 1)) / 2)
    trace = rank**0.5 * rng.standard_normal(n_draws)  # of the block of the range
    distances = [
        rank * tau**2 - 2 * tau * trace + (np.maximum(x - tau, 0) ** 2).sum(axis=1) for tau in np.linspace(0, 4, 81)
    ]
    return rank * (rank + 1) / 2 + rank * (d - rank) + np.min(distances, axis=0).mean()


def _cleaned():
    """Part of q below zero, and ratio of the test errors without it and with it; by integrals over the density."""
    from attn_lib.problems import MarchenkoPastur, SingleHead
    from attn_lib.spectra import FreeConvolution
    from attn_lib.theory.single_head import test_error
    from attn_lib.theory.tuning import optimal_lam

    problem = SingleHead(alpha=0.5, lam=1.0, Delta=0.5, kappa=1.0, target=MarchenkoPastur(kappa0=0.25))
    found = optimal_lam(problem, direct=True, within=(0.015, 0.06), accuracy=1e-2)
    x = np.linspace(0, problem.target.upper + 3 * found.delta, 4001)

    def kept(delta):
        return np.trapezoid(x**2 * FreeConvolution(problem.target, delta).density(x), x)

    J, h = kept(found.delta), 0.01 * found.delta
    slope = (kept(found.delta + h) - kept(found.delta - h)) / (2 * h)
    m, q = found.eta * (J - found.delta / 2 * slope), found.eta**2 * J
    return 1 - q / found.overlaps.q, test_error(problem, m, q) / found.test_error


ANSWERS = {
    "mpa-exercise-onsager": Answer(
        asked="the mean of the sum over a <= b of z_ab^2/(1 + delta_ab) over the training samples, for z(S^1), divided "
        "by the same with the first Onsager term, for omega^1",
        value=_own_fields,
        rtol=0.07,  # at d = 40: 3 per cent of bias, and 1.5 from one data set to another
        mistakes=(
            (lambda right: 1 / right, "this is the inverse, with the term over without it"),
            (lambda right: right**0.5, "this is the ratio of the lengths, asked for is that of the squares"),
            (lambda right: 1.0, "on fresh samples it would be so, but S^1 was made from these samples"),
        ),
    ),
    "th-success": Answer(
        asked="the number of measurements at which half of the runs recover a target of rank 4, at d = 16",
        value=_measurements,
        rtol=0.06,  # 2 per cent of statistical error with 12 runs at every eighth number, and 2 of the asymptotics
        mistakes=(
            (lambda right: right / 512, "this is alpha for two tokens, asked for is the number of measurements"),
            (
                lambda right: 16 * 4 - 4 * 3 / 2,
                "this is the number of free parameters of such a matrix; least trace needs more",
            ),
            (
                lambda right: 16 * 17 / 2,
                "this is the number of all entries; few eigenvalues are not zero, and that helps",
            ),
        ),
    ),
    "ib-clean": Answer(
        asked="two numbers for large d: the part of q that is removed, between 0 and 1, and the test error after over "
        "that before",
        value=_cleaned,
        rtol=0.02,
        mistakes=(
            (lambda part, ratio: (1 - part, ratio), "the first number is the part that is left, not what is removed"),
            (lambda part, ratio: (part, 1 - ratio), "the second number is the part of the error that is removed"),
            (lambda part, ratio: (part, 1 / ratio), "the second number is the inverse, before over after"),
        ),
    ),
}
