"""The test error at any overlaps: other coordinates, the state evolution, drawn data; and its minima."""

import numpy as np
import pytest
from scipy.optimize import minimize

from attn_lib.comparison import estimate
from attn_lib.problems import PositionalSemantic
from attn_lib.simulation.attention import gram_matrices, squared_error, student_attention
from attn_lib.simulation.sampling import draw_sample, draw_target
from attn_lib.theory import positional_semantic as ps
from attn_lib.theory.population import population_error, population_minimum

SECOND = PositionalSemantic(alpha=1, omega=0.2, sigma=0.6, A=((0.3, 0.7), (0.8, 0.2)))


def product_rule(problem, kappa, m, b, degree=24):
    """The same average in the fields of the tokens themselves, by a Gauss-Hermite product rule."""
    x, weight = np.polynomial.hermite_e.hermegauss(degree)
    weight = weight / weight.sum()
    t1, t2, x1, x2 = np.meshgrid(x, x, x, x, indexing="ij")
    sigma, noise = problem.sigma, problem.sigma * np.hypot(m, b)

    def diagonal(h1, h2):
        return 1 / (1 + np.exp(-h1 * (h1 - h2))), 1 / (1 + np.exp(-h2 * (h2 - h1)))

    T = diagonal(sigma * t1, sigma * t2)
    S = diagonal(kappa * sigma * t1 + m + noise * x1, kappa * sigma * t2 - m + noise * x2)
    square = sum(
        ((1 - problem.omega) * T[k] + problem.omega * problem.A[k][k] - S[k]) ** 2 for k in range(2)
    )  # both entries of a row deviate equally: the factor 1/2 cancels
    return sigma**2 * np.einsum("abcd,a,b,c,d->", square, weight, weight, weight, weight)


@pytest.mark.parametrize(("kappa", "m", "b"), [(0.9, 0, 0), (0, 0.3, 0), (0, 0.2, 0.4), (0.6, 0.2, 0.3)])
def test_agrees_with_product_rule(kappa, m, b):
    found = population_error(SECOND, kappa=kappa, m=m, b=b)
    # rtol: the product rule of degree 24 has an error of 1e-6 for these logistic functions
    np.testing.assert_allclose(found, product_rule(SECOND, kappa, m, b), rtol=5e-6, atol=0)


@pytest.mark.parametrize("start", ["semantic", "positional"])
def test_agrees_with_state_evolution(start):
    solution = ps.solve(PositionalSemantic(alpha=1.5, omega=0.3), start)
    o, rho = solution.overlaps, solution.problem.rho
    kappa = o.theta / rho
    found = population_error(solution.problem, kappa=kappa, m=o.m, b=np.sqrt(o.q / rho - kappa**2 - o.m**2))
    np.testing.assert_allclose(found, solution.test_error, rtol=1e-4, atol=0)  # the accuracy of the solution


@pytest.mark.parametrize("problem", [PositionalSemantic(alpha=1, omega=0.3), SECOND])
def test_closed_form_uniform_attention(problem):
    """S = 1/2 is the linear layer with a wrong W: the baseline's error plus sigma^2 |W - 1/2|^2 / 2."""
    lin = ps.linear_baseline(problem)
    expected = lin.test_error + problem.rho / 2 * ((lin.W - 0.5) ** 2).sum()
    # rtol: the documented accuracy; the ball of the rule leaves out a tail of 1.5e-8, where T is far from its mean
    np.testing.assert_allclose(population_error(problem), expected, rtol=1e-6, atol=0)


def test_identity_no_layer_without_semantic_overlap_beats_the_baseline():
    rng = np.random.default_rng(0)
    for problem in (PositionalSemantic(alpha=1, omega=0.3), PositionalSemantic(alpha=1, omega=0.9), SECOND):
        lin = ps.linear_baseline(problem).test_error
        for m, b in rng.uniform(0, 1, (10, 2)):
            assert population_error(problem, m=m, b=b) > lin


@pytest.mark.parametrize("omega", [0.3, 0.5, 0.8])
def test_agrees_with_a_minimiser_over_all_overlaps(omega):
    """No mixture of the two directions, and no noise beyond what is unavoidable, is better than the better branch."""
    problem = PositionalSemantic(alpha=1, omega=omega)
    best = min(population_minimum(problem, start).test_error for start in ("semantic", "positional"))
    for start in ((0.8, 0.1, 0.2), (0.2, 0.4, 0.2), (0.5, 0.3, 0.1)):
        found = minimize(
            lambda v: population_error(problem, kappa=v[0], m=v[1], b=v[2], step=0.8),
            start,
            method="Nelder-Mead",
            options={"xatol": 1e-3, "fatol": 1e-8},
        )
        assert found.fun > best * (1 - 1e-4)  # the coarser rule of this search


@pytest.mark.parametrize("d", [200, 800])
def test_theory_matches_simulation_of_a_given_layer(d):
    problem, kappa, m, b = PositionalSemantic(alpha=1, omega=0.3), 0.5, 0.3, 0.2
    errors = []
    for seed in range(20):
        Q_star = draw_target(d, seed)
        r = np.random.default_rng(seed).standard_normal(d)
        basis, _ = np.linalg.qr(np.stack([np.ones(d), Q_star, r], axis=1))
        Q = kappa * Q_star + m + b * np.sqrt(d) * basis[:, 2]
        x, T = draw_sample(problem, Q_star, n=500, seed=seed, stream="test")
        errors.append(squared_error(T, student_attention(x, Q), gram_matrices(x)).mean() / 2)
    measured, theory = estimate(errors), population_error(problem, kappa=kappa, m=m, b=b)
    # fixed beforehand: neglected terms of order 1/d, the largest being |S p|^2/(2d) <= 1/d
    assert abs(measured.value - theory) < 4 * measured.error + 1 / d


def test_rejects_an_unknown_start():
    with pytest.raises(ValueError, match="start = 'mixed': must be one of"):
        population_minimum(SECOND, "mixed")
