"""Recovery of modes: closed forms, random matrices, and trained layers."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.linalg import eigh
from scipy.special import expit

from attn_lib.comparison import estimate
from attn_lib.problems import FiniteRank, MarchenkoPastur, PowerLaw, SingleHead
from attn_lib.simulation.gaussian_sensing import train_on_gaussians
from attn_lib.simulation.single_head import train_single_head
from attn_lib.theory import single_head
from attn_lib.theory.emergence import Recovery, learning_path, mode_overlaps, recovery_sizes
from attn_lib.theory.learned_modes import least_recovered


def modes(d, count=3, n_per_d=5.0, factor=1.2):
    """Single modes, each half as strong as the last; n = n_per_d times d samples."""
    s = 0.6 * d**0.5 * 0.5 ** np.arange(count)
    alpha = n_per_d / d
    target = FiniteRank(eigenvalues=s, d=d)
    return SingleHead(alpha=alpha, lam=factor * alpha**0.5, Delta=0.5, kappa=1.0, target=target)


@cache
def recovered(problem, **options):
    return recovery_sizes(problem, accuracy=1e-2, **dict(options))


def first_alpha(problem):
    """The first mode of two tokens, before which S = 0: averages over the labels only."""
    x, weight = np.polynomial.hermite_e.hermegauss(60)
    u, other = np.meshgrid(x, x)
    weight = np.outer(weight, weight) / (2 * np.pi)
    scale = (3 * (problem.target.second_moment + problem.Delta / 2)) ** 0.5
    a, b = expit(problem.beta0 * scale * u), expit(problem.beta0 * scale * (u / 3 + 8**0.5 / 3 * other))
    m_hat = 12 * problem.alpha * problem.beta * problem.beta0 * (weight * a * (1 - a)).sum()
    q_hat = problem.alpha * problem.beta**2 * (weight * (12 * (a - 0.5) ** 2 + 4 * (a - 0.5) * (b - 0.5))).sum()
    least = least_recovered(q_hat**0.5 / m_hat, 2 * problem.nuclear_penalty / m_hat)
    return problem.alpha * (least / problem.target.upper) ** 2


def test_closed_form_first_mode():
    """The level spreads over delta/sqrt(d) in the theory: 1 % of log alpha is left at d = 20 000."""
    problem = replace(modes(20_000, 2), beta=1.3, beta0=0.8)
    (found,) = recovered(problem, n_modes=1)
    assert found.solution.epsilon > 2 * found.solution.delta
    np.testing.assert_allclose(found.alpha, first_alpha(problem), rtol=1e-2, atol=0)


@pytest.mark.parametrize("n_per_d", [5.0, 30.0])
def test_closed_form_isolated_modes(n_per_d):
    """Corrections are of order 1/d, relatively to delta/s: 1e-3 at d = 2000."""
    solution = single_head.solve(modes(2000, n_per_d=n_per_d), accuracy=1e-2)
    found, delta, epsilon = mode_overlaps(solution), solution.delta, solution.epsilon
    s = found.eigenvalue
    overlap = np.where(s > least_recovered(delta, epsilon), 1 - (delta / s) ** 2, 0)
    level = solution.eta * np.maximum(s + delta**2 / s - epsilon, 0)
    np.testing.assert_allclose(found.weight, overlap, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(found.strength, level * overlap / s, rtol=2e-3, atol=2e-3)
    assert 0 < (overlap > 0).sum() < 3


@pytest.mark.parametrize("target", [PowerLaw(gamma=1.0, d=60), FiniteRank(eigenvalues=[4.0, 4.0, 1.0], d=40)])
def test_identity_strengths_sum_to_the_overlap(target):
    """sum of s u.S u is d m; central differences, 1e-5."""
    problem = SingleHead(alpha=0.2, lam=0.15, Delta=0.5, kappa=1.0, target=target)
    solution = single_head.solve(problem, accuracy=1e-2)
    found = mode_overlaps(solution)
    mass = np.array([(target.spectrum == s).mean() for s in found.eigenvalue])
    total = (mass * found.strength * found.eigenvalue**2).sum()
    np.testing.assert_allclose(total, solution.overlaps.m, rtol=1e-5, atol=1e-8)


def test_agrees_with_random_matrices():
    """eta ReLU(S0 + delta Z - epsilon) at d = 300, repeated and single eigenvalues: 4 standard errors and 2/d."""
    d, rng, samples = 300, np.random.default_rng(2), []
    target = FiniteRank(eigenvalues=np.repeat([12.0, 8.0, 4.0], [1, 15, 15]), d=d)
    solution = single_head.solve(SingleHead(alpha=0.05, lam=0.25, Delta=0.5, kappa=1.0, target=target), accuracy=1e-2)
    s, groups = target.spectrum, (slice(0, 1), slice(1, 16), slice(16, 31))
    for _ in range(6):
        noise = rng.standard_normal((d, d))
        x, v = np.linalg.eigh(np.diag(s) + solution.delta * (noise + noise.T) / (2 * d) ** 0.5)
        kept = np.maximum(x - solution.epsilon, 0)
        weight, level = v**2 @ (kept > 0), solution.eta * v**2 @ kept
        samples.append([[weight[g].mean() for g in groups], [(level[g] / s[g]).mean() for g in groups]])
    found = mode_overlaps(solution)
    for k, expected in enumerate((found.weight, found.strength)):
        for i in range(3):
            e = estimate(np.array(samples)[:, k, i])
            assert abs(e.value - expected[i]) < 4 * e.error + 2 / d, (k, i)
    assert found.weight[0] > 0.8 > 0.2 > found.weight[2]


@pytest.mark.parametrize("power", [0.0, 0.5])
def test_identity_recovery(power):
    """At the root s = s_c, to its precision; strong modes first; the slope is that of x - epsilon."""
    problem = modes(100, count=2)
    found = recovered(problem, power=power)
    assert found[0].alpha < found[1].alpha
    for r, s in zip(found, problem.target.eigenvalues, strict=True):
        at, lam = r.solution, problem.lam * (r.alpha / problem.alpha) ** power
        assert r.eigenvalue == s
        np.testing.assert_allclose(least_recovered(at.delta, at.epsilon), s, rtol=1e-3, atol=0)
        np.testing.assert_allclose(at.problem.lam, lam, rtol=1e-12, atol=0)
    path = learning_path(problem, r.alpha * np.exp([-0.02, 0.02]), power=power, accuracy=1e-2)
    low, high = (s + at.delta**2 / s - at.epsilon for at in path)
    np.testing.assert_allclose((high - low) / 0.04, r.slope, rtol=0.05, atol=0)  # a difference at one side, 0.01


def test_identity_path_of_solutions():
    """Each solution is that of a cold start; both are converged to 1e-2 of the rule, the same one."""
    problem = modes(50)
    path = learning_path(problem, [0.1, 0.5], power=0.5, accuracy=1e-2)
    for alpha, found in zip((0.1, 0.5), path, strict=True):
        cold = single_head.solve(replace(problem, alpha=alpha, lam=1.2 * alpha**0.5), accuracy=1e-2)
        np.testing.assert_allclose(found.overlaps, cold.overlaps, rtol=1e-2, atol=1e-6)


def test_agrees_with_fluctuations_of_outliers():
    """Standard deviation of x(s) over 200 matrices: 4 of its errors of 5 %, and 1/sqrt(d) for the next order."""
    d, rng = 100, np.random.default_rng(0)
    r = recovered(modes(d, count=2), power=0.5)[1]
    s, delta, top = r.eigenvalue, r.solution.delta, []
    for _ in range(200):
        noise = rng.standard_normal((d, d))
        matrix = delta * (noise + noise.T) / (2 * d) ** 0.5
        matrix[0, 0] += s
        top.append(eigh(matrix, eigvals_only=True, subset_by_index=[d - 1, d - 1])[0])
    np.testing.assert_allclose(np.std(top) / r.slope, r.spread(d), rtol=0.2 + 0.1, atol=0)


@pytest.mark.parametrize("n_per_d", [5.0, 30.0])
@pytest.mark.parametrize("d", [24, 40])
def test_theory_matches_simulation(d, n_per_d):
    """Gaussian measurements: 4 standard errors and 1/sqrt(d), as far as single outliers fluctuate."""
    problem = modes(d, n_per_d=n_per_d)
    theory = mode_overlaps(single_head.solve(problem, accuracy=1e-2))
    e = train_on_gaussians(problem, d=d, seeds=range(6), tolerance=1e-3)
    assert e.converged.all()
    found = [measured(*pair) for pair in zip(e.S, e.S0, strict=True)]
    for k, expected in enumerate((theory.weight, theory.strength)):
        for i in range(3):
            value = estimate(np.array(found)[:, k, i])
            assert abs(value.value - expected[i]) < 4 * value.error + d**-0.5, (k, i)


def test_theory_matches_simulation_order_of_recovery():
    """Tokens, between the predicted sizes of two modes: the stronger one is there, the weaker one is not."""
    for d in (30, 60):
        alpha = np.prod([r.alpha for r in recovered(modes(d, count=2))]) ** 0.5
        problem = replace(modes(d, count=2), alpha=alpha, lam=1.2 * alpha**0.5)
        e = train_single_head(problem, d=d, seeds=range(4), device="cpu", dtype="float32", tolerance=1e-3)
        weight = np.mean([measured(W @ W.T / d, S0)[0] for W, S0 in zip(e.W, e.S0, strict=True)], axis=0)
        assert weight[0] > 0.5 > weight[1], d


def measured(S, S0):
    """Weight in the range of S, and strength, of the three modes."""
    s, u = (part[..., ::-1][..., :3] for part in np.linalg.eigh(S0))
    x, v = np.linalg.eigh(S)
    return ((v[:, x > 1e-2].T @ u) ** 2).sum(axis=0), np.einsum("ij,ij->j", u, S @ u) / s


def test_rejects_bad_arguments():
    with pytest.raises(ValueError, match="target = "):
        recovery_sizes(replace(modes(20), target=MarchenkoPastur(kappa0=0.5)))
    with pytest.raises(ValueError, match="n_modes = 4"):
        recovery_sizes(modes(20), n_modes=4)
    with pytest.raises(ValueError, match="power = 1.0"):
        recovery_sizes(modes(20), power=1.0)
    with pytest.raises(ValueError, match="solution of type"):
        mode_overlaps(single_head.solve_direct(replace(modes(20), lam=0.1), accuracy=1e-2))
    in_the_noise = Recovery(1.0, single_head.solve(modes(20, factor=0.3), accuracy=1e-2), 1.0)
    with pytest.raises(ValueError, match="epsilon = "):
        in_the_noise.spread(20)
    for alphas in (0.1, [], [0.2, 0.1], [0.0, 1.0], [[0.1]], None):
        with pytest.raises(ValueError, match="alphas = "):
            learning_path(modes(20), alphas)
    with pytest.raises(ValueError, match="power = 'a'"):
        learning_path(modes(20), [0.1], power="a")
    for call in (recovery_sizes, lambda problem: learning_path(problem, [0.1])):
        with pytest.raises(ValueError, match="problem of type PowerLaw: must be a SingleHead"):
            call(PowerLaw(gamma=1.0, d=10))
