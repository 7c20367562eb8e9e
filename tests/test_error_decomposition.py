"""The error decomposition: its weights, its pieces, and where they sum to the excess error."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm

from attn_lib.comparison import estimate
from attn_lib.problems import FiniteRank, MarchenkoPastur, PowerLaw, SingleHead
from attn_lib.simulation.erm import train_single_head
from attn_lib.theory import single_head
from attn_lib.theory.error_decomposition import TOLERANCE, decompose, slope, weights

DEFAULT = SingleHead(alpha=1.0, lam=0.1, Delta=0.5, kappa=1.0, target=MarchenkoPastur(kappa0=0.5))
PROBLEMS = {
    "noise": DEFAULT,
    "no noise": replace(DEFAULT, Delta=0.0),
    "other temperature": replace(DEFAULT, beta=1.4, target=PowerLaw(gamma=1.0, d=50)),
}


@cache
def solved(problem):
    return single_head.solve(problem, accuracy=1e-2)


def power_law(gamma, alpha, d, factor=0.4):
    target = PowerLaw(gamma=gamma, d=d)
    return replace(DEFAULT, alpha=alpha, lam=factor * alpha**0.5, target=target)


def derivatives(problem, s):
    r"""Of the error of s S0 for two tokens, 4 E f(u), in R_2 and twice in s, by parts.

    u = s v + sqrt(3 R_2) g with v ~ N(0, 3 Q0), so that d/dR_2 E f = (3/2) E f'' and d^2/ds^2 E f = E v^2 f''.
    """
    nodes, weight = np.polynomial.hermite_e.hermegauss(80)
    v, noise = np.meshgrid((3 * problem.target.second_moment) ** 0.5 * nodes, (1.5 * problem.Delta) ** 0.5 * nodes)
    weight = np.outer(weight, weight) / (2 * np.pi)
    label, beta = expit(problem.beta0 * (v + noise)), problem.beta
    a = expit(beta * s * v)
    curvature = 8 * beta**2 * a * (1 - a) * (a * (1 - a) + (a - label) * (1 - 2 * a))
    gradient = 8 * beta * (a - label) * a * (1 - a)
    return (weight * gradient * v).sum(), 1.5 * (weight * curvature).sum(), (weight * v**2 * curvature).sum()


@pytest.mark.parametrize("name", PROBLEMS)
def test_agrees_with_gaussian_integration_by_parts(name):
    """Differences of fourth order with steps of 2e-3 are good to 1e-7, the rule here too."""
    problem, found = PROBLEMS[name], weights(PROBLEMS[name])
    gradient, c1, second = derivatives(problem, found.s_star)
    np.testing.assert_allclose(gradient, 0, rtol=0, atol=1e-6)
    expected = (c1, second / (2 * problem.target.second_moment) - c1)
    np.testing.assert_allclose((found.c1, found.c2), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(slope(problem, 0.3), derivatives(problem, 0.3)[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", PROBLEMS)
def test_identity_quadratic_form(name):
    """What the quadratic form leaves out is of third order in the distance: it falls eightfold when that is halved."""
    problem, found = PROBLEMS[name], weights(PROBLEMS[name])
    Q0, left = problem.target.second_moment, []
    for t in (0.1, 0.05):
        s, R2 = found.s_star - t, 2 * t**2 * Q0
        exact = single_head.test_error(problem, s * Q0, s**2 * Q0 + R2) - found.irreducible
        left.append(abs(exact - found.c1 * (R2 + t**2 * Q0) - found.c2 * t**2 * Q0) / exact)
    assert left[1] < 0.6 * left[0] < 0.3


@pytest.mark.parametrize(("n_tokens", "rtol"), [(2, 1e-3), (3, 1e-2)])
def test_closed_form_linear_softmax(n_tokens, rtol):
    """Weak fields: softmax is 1/T + (z - mean of the row)/T, e = (1 - 1/T^2) tr (S - S0)^2; three tokens by Sobol."""
    weak = replace(DEFAULT, Delta=0.0, n_tokens=n_tokens, target=FiniteRank(eigenvalues=[0.01]))
    found = weights(weak)
    np.testing.assert_allclose(found.c1, 1 - n_tokens**-2, rtol=rtol, atol=0)
    np.testing.assert_allclose(found.c2, 0, rtol=0, atol=rtol)


def test_identity_only_beta_times_s_matters():
    """With beta the best multiple falls as 1/beta and what a distance costs grows as beta^2, within rounding."""
    one = SingleHead(alpha=1.0, lam=0.1, Delta=0.5, kappa=1.0, target=MarchenkoPastur(kappa0=0.5))
    first, other = weights(one), weights(replace(one, beta=30.0))
    assert 30 * other.s_star == pytest.approx(first.s_star, rel=1e-5, abs=0)  # the minimum is flat
    assert other.c1 / 900 == pytest.approx(first.c1, rel=1e-5, abs=0)
    assert other.c2 / 900 == pytest.approx(first.c2, rel=1e-4, abs=0)


def test_identity_best_multiple_of_the_target():
    same, noisy = weights(PROBLEMS["no noise"]), weights(DEFAULT)
    np.testing.assert_allclose(same[:2], (1, 0), rtol=1e-7, atol=1e-12)  # xatol of the search
    assert noisy.s_star < 1 and noisy.irreducible > 0 > noisy.c2


@pytest.mark.parametrize("alpha", [0.1, 2.0])
@pytest.mark.parametrize("target", [MarchenkoPastur(kappa0=0.5), PowerLaw(gamma=1.0, d=100)])
def test_identity_coupled_parts_sum_to_the_distance(target, alpha):
    """Differences of fourth order in delta leave 1e-9; they cancel between the two parts anyway."""
    parts = decompose(solved(replace(DEFAULT, target=target, alpha=alpha)), isolated=False)
    np.testing.assert_allclose(parts.over + parts.under + parts.approx, parts.distance, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(parts.R2, parts.distance - parts.mismatch, rtol=1e-7, atol=1e-9)
    assert 0 < parts.recovered < 1


@pytest.mark.parametrize("isolated", [True, False])
def test_identity_contributions_sum_to_the_total(isolated):
    parts = decompose(solved(power_law(1.0, 0.3, 200)), isolated=isolated)
    expected = parts.radial + parts.c1_local * parts.R2
    np.testing.assert_allclose(parts.total, expected, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(sum(parts.contributions.values()), expected, rtol=1e-10, atol=1e-14)


def test_closed_form_noise_in_the_bulk():
    """The moments of a semicircle above e = 2 cos(angle)."""
    solution = solved(power_law(1.0, 0.03, 500))
    parts = decompose(solution)
    bulk = 1 - parts.recovered
    angle = np.arccos(solution.epsilon / (2 * solution.delta * bulk**0.5))
    e = 2 * np.cos(angle)
    mass, first = (angle - np.sin(2 * angle) / 2) / np.pi, 4 * np.sin(angle) ** 3 / (3 * np.pi)
    second = (angle - np.sin(4 * angle) / 4) / np.pi
    expected = (bulk * solution.eta * solution.delta) ** 2 * (second - 2 * e * first + e**2 * mass)
    np.testing.assert_allclose(parts.over, expected, rtol=1e-9, atol=1e-14)


def test_closed_form_all_modes_recovered():
    """Each pair of recovered levels is counted twice: 2 delta^2 + 3 delta^4 tr S0^-2 for delta^2, eta = 1, no noise."""
    target, delta = PowerLaw(gamma=1.0, d=20), 0.05
    state = replace(solved(replace(DEFAULT, Delta=0.0, target=target)), eta=1.0, delta=delta, epsilon=0.0)
    parts = decompose(state)
    expected = 2 * delta**2 + 3 * delta**4 * (target.spectrum**-2).mean()
    np.testing.assert_allclose(parts.over + parts.under + parts.approx, expected, rtol=1e-5, atol=1e-9)
    assert parts.recovered == 1
    coupled = decompose(state, isolated=False)  # levels 0.01 apart at the edge: 2 % by the next order
    np.testing.assert_allclose(coupled.over + coupled.under + coupled.approx, delta**2, rtol=0.02, atol=1e-9)


def test_closed_form_recovered_fraction_of_a_continuous_law():
    """As the threshold falls below the bulk all of it is recovered, and its square is Q0."""
    target = MarchenkoPastur(kappa0=0.25)  # the bulk begins at 0.5
    parts = decompose(replace(solved(replace(DEFAULT, target=target)), delta=0.1, epsilon=0.15))
    np.testing.assert_allclose((parts.recovered, parts.under), (0.25, 0), rtol=1e-10, atol=1e-10)


def measured(S, S0, r, s_star):
    """The three distances of a matrix, its leading eigenvectors counted as learned modes."""
    d, (levels, v) = len(S), np.linalg.eigh(S)
    terms = levels * (levels - 2 * s_star * np.einsum("ij,ij->j", v, S0 @ v))
    split, squares = d - round(r * d), np.linalg.eigvalsh(S0) ** 2 * s_star**2
    return terms[:split].sum() / d, squares[:split].sum() / d, (terms[split:].sum() + squares[split:].sum()) / d


@pytest.mark.parametrize("target", [MarchenkoPastur(kappa0=0.5), PowerLaw(gamma=1.0, d=300)])
def test_agrees_with_random_matrices(target):
    """eta ReLU(S0 + delta Z - epsilon) drawn at d = 300: 4 standard errors and 2/d of the distance."""
    d, solution = 300, solved(replace(DEFAULT, target=target, alpha=0.2))
    parts, rng, found = decompose(solution, isolated=False), np.random.default_rng(1), []
    for _ in range(4):
        noise = rng.standard_normal((d, d))
        S0 = rng.standard_normal((d, d // 2))
        S0 = np.diag(target.spectrum) if isinstance(target, PowerLaw) else S0 @ S0.T / (d * d / 2) ** 0.5
        x, v = np.linalg.eigh(S0 + solution.delta * (noise + noise.T) / (2 * d) ** 0.5)
        S = v * solution.eta * np.maximum(x - solution.epsilon, 0) @ v.T
        found.append(measured(S, S0, parts.recovered, parts.s_star))
    for name, samples in zip(("over", "under", "approx"), np.transpose(found), strict=True):
        e = estimate(samples)
        assert abs(e.value - getattr(parts, name)) < 4 * e.error + 2 / d * parts.distance, name


@pytest.mark.parametrize("alpha", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("gamma", [1.0, 1.5])
def test_published_parts_sum_to_the_excess(gamma, alpha):
    """d = 1000, Delta = 0.5, lam = 0.4 sqrt(alpha): within TOLERANCE, which was fixed beforehand."""
    parts = decompose(solved(power_law(gamma, alpha, 1000)))
    assert parts.holds
    np.testing.assert_allclose(parts.total, parts.excess, rtol=TOLERANCE, atol=1e-9)


def test_identity_domain():
    """Isolated levels do not describe a law with a density, nor one of which all modes are recovered."""
    assert not decompose(solved(replace(DEFAULT, lam=0.01))).holds
    assert not decompose(solved(replace(DEFAULT, alpha=100.0, lam=0.01, target=PowerLaw(gamma=1.0, d=50)))).holds


@pytest.mark.parametrize(("d", "seeds"), [(40, range(6)), (80, range(3))])
def test_theory_matches_simulation(d, seeds):
    """Trained layers: 4 standard errors and 4/d of the distance (corrections of order 1/d)."""
    problem = power_law(1.0, 0.3, d)
    parts = decompose(solved(problem), isolated=False)
    e = train_single_head(problem, d=d, seeds=seeds, device="cpu", dtype="float32")
    assert e.converged.all()
    S = e.W @ e.W.transpose(0, 2, 1) / d
    found = [measured(*pair, parts.recovered, parts.s_star) for pair in zip(S, e.S0, strict=True)]
    for name, samples in zip(("over", "under", "approx"), np.transpose(found), strict=True):
        value = estimate(samples)
        assert abs(value.value - getattr(parts, name)) <= 4 * value.error + 4 / d * parts.distance, name


@pytest.mark.parametrize("eigenvalue", [30.0, 300.0, 600.0])
def test_agrees_with_adaptive_quadrature_for_wide_fields(eigenvalue):
    """S = S0, noisy labels: an average over the noise of integrals in u, which differ from zero near u = 0 only."""
    problem = replace(DEFAULT, target=FiniteRank(eigenvalues=[eigenvalue], d=100))
    Q0 = problem.target.second_moment
    nodes, mass = np.polynomial.hermite_e.hermegauss(40)

    def error(shift):
        density = norm(scale=(3 * Q0) ** 0.5).pdf
        return quad(lambda u: density(u) * (expit(u + shift) - expit(u)) ** 2, -60, 60, limit=500, epsabs=1e-12)[0]

    expected = 4 * sum(w * error(0.75**0.5 * x) for x, w in zip(nodes, mass, strict=True)) / mass.sum()
    np.testing.assert_allclose(single_head.test_error(problem, Q0, Q0), expected, rtol=1e-6, atol=1e-9)  # its accuracy


def test_rejects_fields_that_are_too_wide():
    problem = replace(DEFAULT, target=FiniteRank(eigenvalues=[3000.0], d=100))
    with pytest.raises(ValueError, match="fields of standard deviation 520"):
        single_head.test_error(problem, 9e4, 9e4)


def test_rejects_what_has_no_threshold():
    direct = single_head.solve_direct(replace(DEFAULT, lam=0.01), accuracy=1e-2)
    nothing = solved(replace(DEFAULT, lam=20.0))
    for solution in (direct, nothing, None):
        with pytest.raises(ValueError, match="solution of type"):
            decompose(solution)
    with pytest.raises(ValueError, match="s = nan"):
        slope(DEFAULT, np.nan)
