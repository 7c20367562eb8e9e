"""Answers to exercises of Part I: attention_layer, glm_mapping, fixed_points.

All problems have the parameters of these chapters: alpha = 1.5, omega = 0.3, and sigma = 0.5, lam = 0.01 by default.
"""

import numpy as np

from attn_lib.exercises.answer import Answer

__all__ = ["ANSWERS"]


def _problem(**changed):
    from attn_lib.problems import PositionalSemantic

    return PositionalSemantic(**{"alpha": 1.5, "omega": 0.3, **changed})


def _crossing(A_trace=0.5, **changed):
    """Where (1 - omega) c + omega tr A = 1; c is the mean trace of the teacher's softmax, which is W at omega = 0."""
    from attn_lib.theory.positional_semantic import linear_baseline

    c = np.trace(linear_baseline(_problem(omega=0, **changed)).W)
    return (c - 1) / (c - A_trace)


def _first_half(crossing, A_trace=0.5, A_11=0.3):
    """Where the mean of T_11 is one half."""
    mean = (1 - crossing * A_trace) / (1 - crossing) / 2  # of the teacher's softmax, from the crossing of the trace
    return (mean - 0.5) / (mean - A_11)


def _leak(d=1000):
    """In the limit, from the overlaps; fresh fields are Gaussian around (sqrt 2 m, 0) in the rotated coordinates."""
    from attn_lib.gaussian import gaussian_ball
    from attn_lib.proximal import attention_diagonal
    from attn_lib.theory.positional_semantic import solve

    solution = solve(_problem(), "positional")
    q, m, _, _ = solution.overlaps
    (u, v), weight = gaussian_ball(0.2, 8, [False, False])
    S = np.array(attention_diagonal(np.sqrt(2) * m + np.sqrt(q) * u, np.sqrt(q) * v))
    return 100 * (((2 * S - 1) ** 2).sum(axis=0) @ weight) / (2 * d) / solution.test_error


def _ratios(tokens=2):
    """Standard deviation of delta^2 for a component delta, over that of the square of a Gaussian, which is sqrt 2.

    With one token: of the square of a component of it.
    """
    half, weight = np.polynomial.laguerre.laggauss(8)  # |x| of a Laplace law is exponential
    laws = (np.array([-1.0, 1.0]), np.ones(2)), (np.concatenate([-half, half]), np.concatenate([weight, weight]))
    found = []
    for x, w in laws:
        w = w / w.sum()
        square, W = ((x[:, None] - x) ** 2, np.outer(w, w)) if tokens == 2 else (x**2, w)
        mean = (W * square).sum()
        found.append(np.sqrt((W * (square / mean - 1) ** 2).sum() / 2))
    return tuple(found)


def _slopes():
    from attn_lib.theory.positional_semantic import solve

    return tuple(solve(_problem(), start).overlaps.q / (2 * 0.5**2) for start in ("semantic", "positional"))


ANSWERS = {
    "exercise-swap": Answer(
        asked="the omega at which the mean trace of the target is one, for A' and sigma = 0.5",
        value=_crossing,
        rtol=0.02,
        mistakes=(
            (_first_half, "here the mean of T_11 alone is one half; the trace has T_22 too"),
            (lambda right: _crossing(sigma=1.0), "the teacher fields have variance sigma^2, not one"),
            (lambda right: _crossing(A_trace=0.0), "A' has a trace too, with the weight omega"),
        ),
    ),
    # limit against d = 1000: eight training sets and 2000 sentences each give 3 %; the trained q lies some per cent
    # below the theory on this branch
    "exercise-leak": Answer(
        asked="the share of the term in the test error of the positional solution at d = 1000, in per cent",
        value=_leak,
        rtol=0.12,
        mistakes=(
            (lambda right: right / 100, "this looks like the fraction; asked for are per cent"),
            (lambda right: right / 2, "a factor of two is missing: both rows count"),
            (lambda right: 2 * right, "a factor of two is too much: the error per sample is |y - f|^2 / (2 d)"),
        ),
    ),
    "ex-mapping-universality": Answer(
        asked="the limit of the standard deviation of Delta over that for Gaussian tokens, for signs and for Laplace",
        value=_ratios,
        rtol=0.02,
        mistakes=(
            (lambda *right: np.square(right), "these look like ratios of variances"),
            (lambda *right: _ratios(tokens=1), "a component of delta is a sum over two tokens: what is its kurtosis?"),
            (lambda signs, laplace: (laplace, signs), "the signs come first"),
        ),
    ),
    "fixed-points-lam": Answer(
        asked="d(min R / d) / d(lambda) on the semantic and on the positional branch",
        value=_slopes,
        rtol=0.01,
        mistakes=(
            (lambda *right: np.multiply(2, right), "a factor of two is too much: the penalty is lambda |Q|^2 / 2"),
            (lambda *right: np.divide(right, 2), "this looks like q, which is sigma^2 |Q|^2 / d"),
            (lambda semantic, positional: (positional, semantic), "the semantic branch comes first"),
        ),
    ),
}
