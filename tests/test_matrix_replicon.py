"""The replicon of Part II and the evolution of matrix message passing: closed forms, samples, fixed points."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from attn_lib.fixed_point import ConvergenceError
from attn_lib.problems import MarchenkoPastur, PowerLaw, SingleHead
from attn_lib.spectra.laws import Semicircle
from attn_lib.theory.attention_channel import TwoTokenChannel
from attn_lib.theory.attention_prox import lowest
from attn_lib.theory.many_tokens import ManyTokenChannel
from attn_lib.theory.matrix_evolution import evolve
from attn_lib.theory.matrix_replicon import growth, jump, pair_response, replicon
from attn_lib.theory.single_head import solve
from attn_lib.theory.spectral_prior import Hats, Overlaps

PROBLEM = SingleHead(alpha=0.5, lam=0.01, Delta=0.5, kappa=1.0, target=MarchenkoPastur(kappa0=0.5))


@pytest.mark.parametrize("delta", [0.3, 1.0, 4.0])
def test_closed_form_half_of_a_semicircle(delta):
    """The divided difference of U_k is a sum of k products U_i U_j, orthonormal under the semicircle.

    So with the coefficients b_k of max(x, 0) in U_k the average is the sum of k b_k^2: b_1 = 1/2, no other odd one,
    and b_2m = +-(4/pi) / ((2m - 1)(2m + 3)). The sum is 4/pi^2.
    """
    found = pair_response(Semicircle(variance=1.0), delta, 0.0)
    np.testing.assert_allclose(found, 4 / np.pi**2, rtol=1e-10, atol=0)


def test_closed_form_beyond_the_edges():
    law = MarchenkoPastur(kappa0=0.5)
    np.testing.assert_allclose(pair_response(law, 0.5, -3.0), 1.0, rtol=1e-10)
    np.testing.assert_allclose(pair_response(law, 0.5, 9.0), 0.0, atol=1e-10)


@pytest.mark.parametrize(
    ("law", "delta", "epsilon"),
    [
        (MarchenkoPastur(kappa0=0.5), 0.57, 0.07),
        (MarchenkoPastur(kappa0=0.5), 0.01, 0.02),
        (MarchenkoPastur(kappa0=2.0), 0.3, 1.0),
        (PowerLaw(gamma=1.0, d=200), 0.6, 1.5),
    ],
)
def test_agrees_with_eigenvalues_of_sampled_matrices(law, delta, epsilon):
    d, found = 800, []
    rng = np.random.default_rng(0)
    for _ in range(4):
        if isinstance(law, MarchenkoPastur):
            p0 = round(law.kappa0 * d)
            W0 = rng.standard_normal((d, p0))
            S0 = W0 @ W0.T / np.sqrt(p0 * d)
        else:
            S0 = np.diag(np.repeat(law.spectrum, d // law.d))
        Z = rng.standard_normal((d, d))
        x = np.linalg.eigvalsh(S0 + delta * (Z + Z.T) / np.sqrt(2 * d))
        high, low = x[x > epsilon], x[x <= epsilon]
        mixed = (((high - epsilon)[:, None] / (high[:, None] - low)) ** 2).sum()
        found.append((high.size**2 + 2 * mixed) / d**2)
    error = np.std(found, ddof=1) / 2
    # linear statistics are biased by order 1/d
    assert abs(np.mean(found) - pair_response(law, delta, epsilon)) < 4 * error + 1 / d


@pytest.mark.parametrize("alpha", [0.5, 2.0])
def test_agrees_with_random_kicks_of_random_fields(alpha):
    """E |g(omega + kick) - g(omega)|^2 over samples, with a prox by Newton in the three pre-activations."""
    problem = replace(PROBLEM, alpha=alpha)
    solution = solve(problem, accuracy=1e-3)
    (m, q, Sigma), N = solution.overlaps, 20_000
    rng, C = np.random.default_rng(1), np.array([[3.0, 1.0], [1.0, 3.0]])
    root, Q_prime = np.linalg.cholesky(C), 1.5 + 0.25
    z0 = root @ rng.standard_normal((2, N)) * Q_prime**0.5
    omega = m / Q_prime * z0 + (q - m**2 / Q_prime) ** 0.5 * root @ rng.standard_normal((2, N))
    target, size = 1 / (1 + np.exp(-z0)), 1e-4

    def force(omega):
        z = omega.copy()
        for _ in range(300):  # damped steps of a contraction, one well only
            s = 1 / (1 + np.exp(-z))
            g = 4 * (s - target) * s * (1 - s)
            z += 0.3 / (1 + Sigma / 2) * (omega - z - Sigma * C @ g)
        np.testing.assert_allclose(z + Sigma * C @ g, omega, atol=1e-8)
        return g

    change = force(omega + size * root @ rng.standard_normal((2, N))) - force(omega)
    squares = np.einsum("in,ij,jn->n", change, C, change) / size**2
    pairs = pair_response(problem.target, solution.delta, solution.epsilon)
    factor = 2 * alpha / solution.hats.Sigma_hat**2 * pairs
    error = factor * squares.std() / np.sqrt(N)
    assert abs(factor * squares.mean() - replicon(solution)) < 4 * error


def test_agrees_with_the_channel_of_many_tokens():
    solution = solve(PROBLEM)
    channel = ManyTokenChannel(PROBLEM)
    channel.averages(solution.overlaps)
    found = growth(channel, solution.overlaps.Sigma, solution.hats.Sigma_hat, solution.delta, solution.epsilon)
    np.testing.assert_allclose(found, replicon(solution), rtol=1e-2)  # the standard error of the Sobol points


def test_agrees_with_flips_of_random_kicks():
    """Samples that change wells under a kick; the overlaps need not be those of a fixed point."""
    at = SimpleNamespace(problem=PROBLEM, overlaps=Overlaps(1.2, 2.0, 60.0), hats=Hats(1, 1, 1), delta=1.0, epsilon=0.1)
    rng, C, size = np.random.default_rng(0), np.array([[3.0, 1.0], [1.0, 3.0]]), 0.03
    root, (m, q, Sigma), Q_prime = np.linalg.cholesky(C), at.overlaps, 1.75
    found = []
    for _ in range(8):
        z0, own, kick = root @ rng.standard_normal((3, 2, 40_000))
        omega = m / Q_prime * Q_prime**0.5 * z0 + (q - m**2 / Q_prime) ** 0.5 * own
        target = 1 / (1 + np.exp(-(Q_prime**0.5) * z0))
        change = lowest(omega, target, 1.0, Sigma) - lowest(omega + size * kick, target, 1.0, Sigma)
        squares = np.einsum("in,ij,jn->n", change, np.linalg.inv(C), change)  # of C^1/2 dg, times Sigma^2
        found.append(squares[squares > 0.5].sum() / squares.size / Sigma**2 / size)
    factor = 2 * PROBLEM.alpha * pair_response(PROBLEM.target, 1.0, 0.1)
    error = factor * np.std(found, ddof=1) / 8**0.5
    # wells merge at the ends of the ties, within a distance of the order of the kick: a tenth
    assert abs(factor * np.mean(found) - jump(at)) < 4 * error + 0.1 * jump(at)


def test_identity_no_jump_where_the_prox_is_convex():
    at = SimpleNamespace(problem=PROBLEM, overlaps=Overlaps(1.2, 2.0, 0.5), hats=Hats(1, 1, 1), delta=1.0, epsilon=0.1)
    assert jump(at) == 0


@pytest.mark.parametrize(("alpha", "damping"), [(0.5, 0.0), (2.0, 0.0), (2.0, 0.2)])
def test_identity_evolution_ends_at_the_fixed_point(alpha, damping):
    problem = replace(PROBLEM, alpha=alpha)
    solution = solve(problem)
    path = evolve(problem, n_iter=100 if damping else 40, damping=damping)
    for name in ("m", "q", "Sigma"):
        # the rule of a path is coarser than the last one of solve
        np.testing.assert_allclose(getattr(path, name)[-1], getattr(solution.overlaps, name), rtol=2e-4)
    for name in ("m_hat", "q_hat", "Sigma_hat"):
        np.testing.assert_allclose(getattr(path, name)[-1], getattr(solution.hats, name), rtol=2e-4)
    np.testing.assert_allclose(path.growth[-1], replicon(solution), rtol=1e-3)
    np.testing.assert_allclose(path.test_error[-1], solution.test_error, rtol=2e-4)
    np.testing.assert_allclose(path.rank[-1], solution.rank, rtol=2e-4)


def test_identity_first_iteration_is_that_of_an_untrained_layer():
    """At S = 0 the prox is that of omega = 0: z = -Sigma C g, and the averages are over the target alone."""
    path = evolve(PROBLEM, n_iter=1, Sigma=0.5)
    channel = TwoTokenChannel(PROBLEM).refined()
    rng = np.random.default_rng(0)
    root = np.linalg.cholesky(np.array([[3.0, 1.0], [1.0, 3.0]]))
    target = 1 / (1 + np.exp(-(channel.Q_prime**0.5) * root @ rng.standard_normal((2, 400_000))))
    z = np.zeros_like(target)
    for _ in range(200):
        s = 1 / (1 + np.exp(-z))
        g = 4 * (s - target) * s * (1 - s)
        z += 0.4 * (-0.5 * np.array([[3.0, 1.0], [1.0, 3.0]]) @ g - z)
    squares = 3 * (g**2).sum(axis=0) + 2 * g[0] * g[1]
    error = 2 * PROBLEM.alpha * squares.std() / squares.size**0.5
    assert abs(path.q_hat[0] - 2 * PROBLEM.alpha * squares.mean()) < 4 * error


@pytest.mark.parametrize(
    ("argument", "value"), [("n_iter", 0), ("noise", -0.1), ("Sigma", 0.0), ("damping", 1.0), ("damping", -0.1)]
)
def test_rejects_bad_arguments_of_the_evolution(argument, value):
    with pytest.raises(ValueError, match=f"{argument} = .*must be"):
        evolve(PROBLEM, **({"n_iter": 2} | {argument: value}))


def test_rejects_jumps_of_three_tokens():
    at = SimpleNamespace(problem=replace(PROBLEM, n_tokens=3), overlaps=Overlaps(1.2, 2.0, 0.5))
    with pytest.raises(ValueError, match="n_tokens = 3: must be"):
        jump(at)


def test_rejects_a_threshold_above_the_spectrum():
    with pytest.raises(ConvergenceError, match="above the whole spectrum"):
        evolve(replace(PROBLEM, lam=10.0), n_iter=2)
