"""The diagonal model: state evolution of the LASSO, scikit-learn's minimiser, and the two against each other."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from attn_lib.comparison import estimate
from attn_lib.fixed_point import ConvergenceError
from attn_lib.problems import DiagonalModel, FiniteRank, MarchenkoPastur, PowerLaw
from attn_lib.simulation.lasso import draw_measurements, optimality_violation, train_lasso
from attn_lib.theory.lasso import moments, noise_gain, solve_lasso

BOTH = pytest.mark.parametrize("nonnegative", [False, True])
PROBLEM = DiagonalModel(alpha=0.5, lam=0.5, Delta=0.5, target=PowerLaw(gamma=1.0, d=200))
NOTHING = FiniteRank(eigenvalues=[0.0])


def soft(x, threshold, nonnegative):
    """The soft threshold by its definition."""
    positive = max(x - threshold, 0.0)
    return positive if nonnegative else positive - max(-x - threshold, 0.0)


@BOTH
@pytest.mark.parametrize("a", [0.7, 1.5, 3.0])
def test_closed_form_pure_noise(a, nonnegative):
    sides, alpha, Delta = 1 if nonnegative else 2, 0.8, 0.5
    gain = sides * ((1 + a**2) * norm.sf(a) - a * norm.pdf(a))
    delta = (Delta / (alpha - gain)) ** 0.5
    lam = 2 * a * delta * (alpha - sides * norm.sf(a))
    s = solve_lasso(DiagonalModel(alpha=alpha, lam=lam, Delta=Delta, target=NOTHING, nonnegative=nonnegative))
    found = [s.delta, s.epsilon, s.excess, s.active, s.m]
    # 1e-9: rounding, amplified by the root search in a
    np.testing.assert_allclose(found, [delta, a * delta, delta**2 * gain, sides * norm.sf(a), 0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("alpha", [1.2, 3.0])
def test_closed_form_least_squares(alpha):
    s = solve_lasso(replace(PROBLEM, alpha=alpha, lam=0.0))
    # the mean of the trace of an inverse Wishart matrix, n/d -> alpha
    np.testing.assert_allclose([s.excess, s.train_loss], [0.5 / (alpha - 1), 0.5 * (alpha - 1)], rtol=1e-10, atol=0)
    assert s.epsilon == 0 and s.active == pytest.approx(1, rel=1e-12, abs=0)


def test_closed_form_many_samples():
    target, epsilon, alpha = FiniteRank(eigenvalues=[3.0, 1.0, 0.2], d=10), 0.5, 1e8
    s = solve_lasso(DiagonalModel(alpha=alpha, lam=2 * alpha * epsilon, Delta=0.5, target=target))
    # what is left is the bias: every entry is moved by the threshold, at most to zero; noise adds 1e-8
    np.testing.assert_allclose(s.excess, np.mean(np.minimum(target.spectrum, epsilon) ** 2), rtol=1e-6, atol=0)


def test_closed_form_strong_penalty():
    s = solve_lasso(replace(PROBLEM, lam=1e6))
    Q0 = PROBLEM.target.second_moment
    np.testing.assert_allclose([s.excess, s.train_loss], [Q0, 0.5 * (0.5 + Q0)], rtol=1e-12, atol=0)
    assert s.active == s.q == s.m == s.penalty == 0


@pytest.mark.parametrize(("alpha", "sides"), [(1.0, 2), (0.5, 1)])
def test_closed_form_peak(alpha, sides):
    lam, Delta = 1e-9, 0.5
    s = solve_lasso(DiagonalModel(alpha=alpha, lam=lam, Delta=Delta, target=NOTHING, nonnegative=sides == 1))
    peak = (Delta**2 / (2 * sides * norm.pdf(0) * lam)) ** (2 / 3)
    # corrections are of order a = epsilon/delta, here 1e-6
    np.testing.assert_allclose(s.delta**2, peak, rtol=1e-4, atol=0)


def test_closed_form_finite_peak():
    theta, Delta = 1.3, 0.5
    target = FiniteRank(eigenvalues=[theta])
    s = solve_lasso(DiagonalModel(alpha=0.5, lam=0.0, Delta=Delta, target=target, nonnegative=True))
    # half of the entries pass where the threshold is their common value; 1e-9: as for pure noise
    noise = (np.pi / 2) ** 0.5 * (Delta + theta**2) / theta
    np.testing.assert_allclose([s.delta, s.epsilon, s.active], [noise, theta, 0.5], rtol=1e-9, atol=0)


@BOTH
@pytest.mark.parametrize(("v", "a"), [(0.04, 0.0), (1.0, 1.3), (30.0, 2.5)])
def test_agrees_with_integration(v, a, nonnegative):
    target, delta = FiniteRank(eigenvalues=[4.0, 1.0, 0.3], d=4), v**0.5

    def mean(f):
        """Of f(theta, theta*) over the entries and the noise; quad is told where the threshold has its kinks."""
        total = 0.0
        for theta in target.spectrum:
            kinks = np.sort([(-theta + sign * a * delta) / delta for sign in (-1, 1)])
            edges = [-12.0, *np.clip(kinks, -12, 12), 12.0]
            total += sum(
                quad(lambda g, t=theta: f(soft(t + delta * g, a * delta, nonnegative), t) * norm.pdf(g), low, high)[0]
                for low, high in zip(edges, edges[1:], strict=False)
            )
        return total / 4

    x = moments(target, v, a, nonnegative)
    found = [v * x.kept + x.zeroed, x.active, x.l1, x.m, x.q]
    expected = [mean(f) for f in (
        lambda y, t: (y - t) ** 2, lambda y, t: y != 0, lambda y, t: abs(y), lambda y, t: y * t, lambda y, t: y**2,
    )]  # fmt: skip
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-10)  # what quad reaches by default
    gain = quad(lambda g: soft(g, a, nonnegative) ** 2 * norm.pdf(g), -12, 12, points=[-a, a])[0]
    assert noise_gain(a, nonnegative) == pytest.approx(gain, rel=1e-7, abs=1e-12)


@BOTH
@pytest.mark.parametrize(("alpha", "lam"), [(0.3, 0.2), (1.0, 0.01), (4.0, 3.0)])
def test_identity_envelope(alpha, lam, nonnegative):
    problem = replace(PROBLEM, alpha=alpha, lam=lam, nonnegative=nonnegative)
    s = solve_lasso(problem)

    def slope(name):
        value = getattr(problem, name)
        ends = [solve_lasso(replace(problem, **{name: value * (1 + h)})) for h in (-1e-4, 1e-4)]
        low, high = (end.train_loss + end.penalty for end in ends)
        return (high - low) / (2e-4 * value)

    # the minimum of the risk grows by the l1 norm with lam, and by the mean Moreau envelope with a sample;
    # differences of second order of an analytic function at relative steps of 1e-4
    np.testing.assert_allclose(slope("lam"), s.penalty / lam, rtol=1e-6, atol=0)
    np.testing.assert_allclose(slope("alpha"), s.delta**2 * (alpha - s.active), rtol=1e-6, atol=0)
    Q0 = problem.target.second_moment
    np.testing.assert_allclose(s.excess, Q0 - 2 * s.m + s.q, rtol=1e-10, atol=1e-12)
    assert s.residual < 1e-10


@BOTH
def test_identity_interpolation(nonnegative):
    limit = solve_lasso(replace(PROBLEM, alpha=0.3, lam=0.0, nonnegative=nonnegative))
    near = solve_lasso(replace(PROBLEM, alpha=0.3, lam=1e-7, nonnegative=nonnegative))
    assert limit.active == pytest.approx(0.3, rel=1e-12, abs=0)
    assert limit.train_loss < 1e-20 and limit.penalty == 0
    # the corrections are linear in lam
    np.testing.assert_allclose([near.excess, near.epsilon], [limit.excess, limit.epsilon], rtol=1e-5, atol=0)


@BOTH
@pytest.mark.parametrize("d", [100, 200])
def test_theory_matches_simulation(d, nonnegative):
    for k, (alpha, lam) in enumerate([(0.5, 0.3), (2.0, 1.0)]):
        target = PowerLaw(gamma=1.0, d=d)
        problem = DiagonalModel(alpha=alpha, lam=lam, Delta=0.5, target=target, nonnegative=nonnegative)
        s = solve_lasso(problem)
        e = train_lasso(problem, seeds=range(100 * k, 100 * k + 40))
        assert e.converged.all()
        for name in ("excess", "m", "q", "active", "train_loss", "penalty"):
            measured, theory = estimate(getattr(e, name)), getattr(s, name)
            # a relative bias of 2/d is what two entries of the list, or two samples, can make
            assert abs(measured.value - theory) < 4 * measured.error + 2 * theory / d, (alpha, name)


@BOTH
def test_closed_form_single_entry(nonnegative):
    problem = DiagonalModel(alpha=6.0, lam=0.8, Delta=0.5, target=FiniteRank(eigenvalues=[1.0]))
    problem = replace(problem, nonnegative=nonnegative)
    e = train_lasso(problem, seeds=range(8))
    for seed, theta in zip(e.seeds, e.theta, strict=True):
        X, y = draw_measurements(problem, seed)
        projection, square = X[:, 0] @ y, X[:, 0] @ X[:, 0]
        assert theta[0] == pytest.approx(soft(projection, 0.4, nonnegative) / square, rel=1e-4, abs=1e-6)


@BOTH
def test_identity_minimum_of_the_risk(nonnegative):
    problem = replace(PROBLEM, alpha=2.0, nonnegative=nonnegative)
    e = train_lasso(problem, seeds=[5], tolerance=1e-7)
    (theta,), (X, y) = e.theta, draw_measurements(problem, 5)
    value = 200 * (e.train_loss[0] + e.penalty[0])
    rng = np.random.default_rng(0)
    for size in (1e-3, 1e-2, 1e-1):
        for _ in range(5):
            other = theta + size * rng.standard_normal(200) * (theta != 0)
            other = np.maximum(other, 0) if nonnegative else other
            assert ((y - X @ other) ** 2).sum() + problem.lam * np.abs(other).sum() > value
    assert optimality_violation(theta, X, y, problem.lam, nonnegative) <= 1e-7
    assert optimality_violation(theta * 1.01, X, y, problem.lam, nonnegative) > 1e-3


def test_identity_data_only_grow():
    small, large = (draw_measurements(replace(PROBLEM, alpha=alpha), 3) for alpha in (0.5, 2.0))
    np.testing.assert_array_equal(small[0], large[0][:100])
    np.testing.assert_array_equal(small[1], large[1][:100])


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"alpha": 0}, "alpha = 0"),
        ({"alpha": 1e10}, "alpha = 1"),
        ({"lam": -1.0}, "lam = -1.0"),
        ({"lam": float("inf")}, "lam = inf"),
        ({"Delta": 0.0}, "Delta = 0.0"),
        ({"nonnegative": 1}, "nonnegative = 1"),
        ({"target": MarchenkoPastur(kappa0=0.5)}, "target = Marchenko"),
    ],
)
def test_rejects_bad_problems(changed, named):
    with pytest.raises(ValueError, match=named):
        replace(PROBLEM, **changed)


@pytest.mark.parametrize(
    ("changed", "arguments", "named"),
    [
        ({"lam": 0.0}, {}, "lam = 0.0"),
        ({"alpha": 1e-3}, {}, "alpha = 0.001"),
        ({}, {"seeds": []}, "seeds"),
        ({}, {"seeds": [1, 1]}, "seeds"),
        ({}, {"tolerance": 0.0}, "tolerance = 0.0"),
        ({}, {"max_iter": 0}, "max_iter = 0"),
        ({}, {"max_iter": 10**10}, "max_iter = 10000000000"),
    ],
)
def test_rejects_bad_training(changed, arguments, named):
    with pytest.raises(ValueError, match=named):
        train_lasso(replace(PROBLEM, **changed), **{"seeds": [0], **arguments})


@pytest.mark.parametrize(("alpha", "changed"), [(1.0, {}), (0.5, {"nonnegative": True, "target": NOTHING})])
def test_rejects_a_divergent_error(alpha, changed):
    with pytest.raises(ConvergenceError, match="diverges"):
        solve_lasso(replace(PROBLEM, alpha=alpha, lam=0.0, **changed))


def test_rejects_values_out_of_range():
    for v, a, named in ((0.0, 1.0, "v = 0.0"), (1.0, -1.0, "a = -1.0"), (np.nan, 1.0, "v = nan")):
        with pytest.raises(ValueError, match=named):
            moments(PROBLEM.target, v, a)
    for a in (np.nan, -1.0, np.inf):
        with pytest.raises(ValueError, match=f"a = {a}: must be a finite number >= 0"):
            noise_gain(a)
    with pytest.raises(ValueError, match=r"Delta = 1e\+300: must be a finite number > 0, from 1e-100 to 1e100"):
        replace(PROBLEM, Delta=1e300)
    one = np.ones((1, 1))
    with pytest.raises(ValueError, match="lam = 0"):
        optimality_violation(np.ones(1), one, np.ones(1), 0)
    with pytest.raises(ValueError, match="theta = "):
        optimality_violation(-np.ones(1), one, -np.ones(1), 0.2, nonnegative=True)
    with pytest.raises(ValueError, match="problem of type PowerLaw: must be a DiagonalModel"):
        solve_lasso(PROBLEM.target)


def test_rejects_what_rounding_hides():
    target = FiniteRank(eigenvalues=[1e5, 1.0], d=7)
    problem = DiagonalModel(alpha=3.0, lam=1.0, Delta=1e-12, target=target)
    with pytest.raises(ConvergenceError, match="residual") as caught:
        solve_lasso(problem)
    assert caught.value.partial.residual > 1e-8
