"""Binned spectra, the regimes of the excess error, and their exponents."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from attn_lib.fixed_point import ConvergenceError
from attn_lib.problems import DiagonalModel, MarchenkoPastur, PowerLaw, SingleHead
from attn_lib.spectra import FreeConvolution, binned
from attn_lib.spectra.binned import Binned, shortened
from attn_lib.spectra.laws import FiniteRank
from attn_lib.theory import scaling_regimes, spectral_prior
from attn_lib.theory.attention_channel import TwoTokenChannel, conjugates
from attn_lib.theory.error_decomposition import weights
from attn_lib.theory.lasso import solve_lasso
from attn_lib.theory.regime_windows import universal_penalty, window_exponent
from attn_lib.theory.scaling_laws import RATES, fit_exponent, learning_curve
from attn_lib.theory.scaling_regimes import regime, scales
from attn_lib.theory.single_head import solve
from attn_lib.theory.spectral_prior import Overlaps


def power_law(gamma, d, lam=1.0, alpha=1.0):
    return SingleHead(alpha=alpha, lam=lam, Delta=0.5, kappa=1.0, target=PowerLaw(gamma=gamma, d=d))


@pytest.mark.parametrize("delta", [0.1, 3.0])
def test_closed_form_binned_moments(delta):
    """The Gauss rule of every bin is exact for polynomials of degree 15; 1e-12 for rounding in sums of 1000 terms."""
    law = PowerLaw(gamma=0.75, d=1000)
    values, mass = Binned(law=law, delta=delta).atoms
    assert (mass > 0).all()
    assert len(values) < 800
    for k in range(16):
        scale = law.upper**k
        np.testing.assert_allclose(mass @ (values**k / scale), (law.spectrum**k / scale).mean(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("gamma", [0.75, 1.0, 1.5])
@pytest.mark.parametrize("delta", [0.03, 0.3, 3.0])
def test_agrees_with_full_list(gamma, delta):
    """All integrals of the tail, d = 1000: 1e-10 relative, 100 times the rounding of the paths; some above the bulk."""
    law = PowerLaw(gamma=gamma, d=1000)
    short = Binned(law=law, delta=delta)
    for eps in (0.0, delta, 2.5 * delta):
        expected = FreeConvolution(law, delta).tail(eps)
        np.testing.assert_allclose(FreeConvolution(short, delta).tail(eps), expected, rtol=1e-10, atol=1e-12)


def allowed_points(law, delta, rng):
    """Points w with N(w) <= 1/delta^2, half of them on its border."""
    a = rng.uniform(-delta, law.upper, 400)
    b = FreeConvolution(law, delta)._height(a)
    return a + 1j * np.where(rng.random(400) < 0.5, b, b * (1 + rng.random(400)))


@pytest.mark.parametrize("delta", [0.3, 3.0])
def test_identity_error_bound(monkeypatch, delta):
    """With bins so coarse that the error is seen it stays below the bound, and is not much smaller for nothing."""
    monkeypatch.setattr(binned, "_THETA", 0.9)
    monkeypatch.setattr(binned, "_ATOMS", 1)
    law = PowerLaw(gamma=1.0, d=1000)
    short = Binned(law=law, delta=delta)
    w = allowed_points(law, delta, np.random.default_rng(1))
    error = delta * np.abs(short.resolvent(w) - law.resolvent(w)).max()
    assert 1e-5 < error < short.error_bound


def test_identity_error_bound_as_used():
    """The bound of the bins as they are is below 1e-13, for delta over three decades."""
    for gamma in (0.75, 1.5):
        law = PowerLaw(gamma=gamma, d=1000)
        assert max(Binned(law=law, delta=delta).error_bound for delta in (0.03, 0.3, 3.0, 30.0)) < 1e-13


def test_agrees_with_solution_without_bins(monkeypatch):
    """The fixed point on the full list, d = 1000: both are solved to 1e-11, relative; 1e-8 for what that makes of m."""
    problem = power_law(1.0, 1000, lam=0.4 * 0.1**0.5, alpha=0.1)
    short = solve(problem, accuracy=1e-2)
    monkeypatch.setattr(spectral_prior, "shortened", lambda law, delta: law)
    full = solve(problem, accuracy=1e-2)
    np.testing.assert_allclose(short.overlaps, full.overlaps, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(short.test_error, full.test_error, rtol=1e-8, atol=1e-12)


def test_closed_form_short_lists_stay():
    for law in (PowerLaw(gamma=1.0, d=200), FiniteRank(eigenvalues=[1.0], d=10**6), MarchenkoPastur(kappa0=0.5)):
        assert shortened(law, 0.3) is law
    long = PowerLaw(gamma=1.0, d=1000)
    assert shortened(long, 0.6) is shortened(PowerLaw(gamma=1.0, d=1000), 0.65)
    assert shortened(long, 0.6).delta <= 0.6 < 2**0.5 * shortened(long, 0.6).delta


@pytest.mark.parametrize(("gamma", "d", "Delta"), [(0.51, 200, 0.5), (0.51, 10**5, 0.5), (1.0, 200, 100.0)])
def test_agrees_with_scales_on_a_finer_rule(gamma, d, Delta):
    problem = replace(power_law(gamma, d), Delta=Delta)
    s, Q0 = weights(problem).s_star, problem.target.second_moment
    overlaps = Overlaps(m=s * Q0, q=s**2 * Q0, Sigma=0.0)
    fine = TwoTokenChannel(problem, 36, 6.5)
    m_hat, q_hat, _ = conjugates(fine, overlaps, fine.averages(overlaps), "derivative")
    # the documented accuracy
    np.testing.assert_allclose(scales(problem), (q_hat**0.5 / m_hat, 2 / m_hat), rtol=1e-2, atol=0)


def test_rejects_scales_that_no_rule_resolves(monkeypatch):
    monkeypatch.setattr(scaling_regimes, "_ACCURACY", 1e-14)
    monkeypatch.setattr(scaling_regimes, "_MAX_RULES", 2)
    with pytest.raises(ConvergenceError, match="noise and threshold are uncertain by"):
        scales(power_law(0.9, 210))


def test_closed_form_universal_penalty():
    r"""Pure noise of variance Delta/alpha: the threshold is :math:`\sqrt{2\log d}` in its units, up to 1/alpha."""
    alpha, d = 1e4, 1000
    nothing = FiniteRank(eigenvalues=[0.0])
    lam = universal_penalty(alpha, 0.5, d)
    s = solve_lasso(DiagonalModel(alpha=alpha, lam=lam, Delta=0.5, target=nothing))
    np.testing.assert_allclose(s.epsilon / s.delta, (2 * np.log(d)) ** 0.5, rtol=2 / alpha, atol=0)
    for alpha, Delta, d, named in ((0.0, 0.5, 10, "alpha"), (1.0, np.inf, 10, "Delta"), (1.0, 0.5, 1, "d = 1")):
        with pytest.raises(ValueError, match=named):
            universal_penalty(alpha, Delta, d)


def test_agrees_with_scales_by_hand():
    """A and B of two tokens written out, by 10^6 samples: 4 standard errors and the 1e-3 of the channel's rule."""
    problem = power_law(1.0, 50, lam=0.3, alpha=7.0)
    s, Q0, n = weights(problem).s_star, problem.target.second_moment, 10**6
    rng = np.random.default_rng(3)
    z = rng.standard_normal((3, n)) * (Q0 * np.array([[2.0], [2.0], [1.0]])) ** 0.5
    noise = rng.standard_normal((3, n)) * (problem.Delta * np.array([[1.0], [1.0], [0.5]])) ** 0.5
    (u, v), (x, y) = ((f[0] - f[2], f[1] - f[2]) for f in (z, z + noise))
    lu, lv = (4 * (expit(s * a) - expit(b)) * expit(s * a) * expit(-s * a) for a, b in ((u, x), (v, y)))
    A = 3 * lu**2 + 3 * lv**2 + 2 * lu * lv
    B = sum(12 * expit(s * a) * expit(-s * a) * expit(b) * expit(-b) for a, b in ((u, x), (v, y)))
    found = scales(problem)
    expected = (A.mean() / (2 * problem.alpha)) ** 0.5 / B.mean(), problem.lam / (problem.alpha * B.mean())
    relative = 1e-3 + 4 / n**0.5 * (A.std() / A.mean() / 2 + B.std() / B.mean())
    np.testing.assert_allclose(found, expected, rtol=relative, atol=1e-9)


def test_agrees_with_solutions_of_many_samples():
    """The scales of a solution near the target: corrections of the order of the distance, 1e-3 here."""
    problem = power_law(1.0, 50, lam=0.1, alpha=1000.0)
    solution = solve(problem, accuracy=1e-3)
    np.testing.assert_allclose(scales(problem), (solution.delta, solution.epsilon), rtol=5e-3, atol=1e-9)


def test_agrees_with_solutions_of_the_plateau():
    problem = power_law(1.0, 200, lam=300.0)
    solution = solve(problem, accuracy=1e-3)
    assert regime(problem).name == "plateau"
    assert solution.rank == 0
    np.testing.assert_allclose(
        scales(problem, learned=False), (solution.delta, solution.epsilon), rtol=5e-3, atol=1e-9
    )  # 1e-3 of the coarsest rule


@pytest.mark.parametrize(("gamma", "within"), [(1.5, 0.02), (1.0, 0.03)])
def test_published_sequential_recovery(gamma, within):
    """d = 1000, alpha from 0.01 to 1: tolerances fixed beforehand, for what is not yet asymptotic."""
    fit = fit_exponent(learning_curve(power_law(gamma, 1000, lam=0.4), np.geomspace(0.01, 1, 5), power=0.5))
    assert fit.predicted == RATES["sequential recovery"](gamma)
    assert abs(fit.value - fit.predicted) < within


def test_published_sequential_recovery_slowly():
    """gamma = 0.75 has corrections of order d^(-1/6): the exponent is too large, and comes nearer with d."""
    found = [
        fit_exponent(
            learning_curve(power_law(0.75, d, lam=0.4), np.geomspace(0.03, 0.3, 4), power=0.5, accuracy=1e-2)
        ).value
        for d in (1000, 30_000)
    ]
    assert -0.42 < found[0] < found[1] - 0.01 < -1 / 3 - 0.01


@pytest.mark.parametrize(
    ("name", "gamma", "lam", "alphas", "within"),
    [
        ("variance", 1.0, 0.05, np.geomspace(300, 30_000, 4), 0.05),
        ("partial shrinkage", 1.5, 100.0, np.geomspace(300, 3000, 4), 0.1),
        ("full shrinkage", 1.0, 1000.0, np.geomspace(1e5, 1e6, 4), 0.05),
        ("plateau", 1.0, 300.0, np.geomspace(0.01, 1, 4), 0.01),
    ],
)
def test_published_rates(name, gamma, lam, alphas, within):
    """Tolerances fixed beforehand: 0.05 as for the variance, twice that for few recovered modes, 0 where S = 0."""
    fit = fit_exponent(learning_curve(power_law(gamma, 200, lam=lam), alphas, accuracy=1e-5))
    assert fit.predicted == pytest.approx(RATES[name](gamma), rel=1e-12, abs=1e-12)
    assert abs(fit.value - fit.predicted) < within
    assert fit.spread < within


def test_rejects_what_is_no_power_law():
    cases = {
        "different regimes": (0.1, [0.001, 0.01, 1, 100], 0.0),
        "at least 4": (0.1, [0.01, 0.02, 0.04], 0.0),
        "must be constant": (50.0, np.geomspace(300, 3000, 4), 0.1),
        "within 0.1 of one power law": (100.0, np.geomspace(30, 3000, 5), 0.0),
    }
    for message, (lam, alphas, power) in cases.items():
        curve = learning_curve(power_law(1.5, 1000, lam=lam), alphas, power=power, accuracy=1e-2)
        with pytest.raises(ValueError, match=message):
            fit_exponent(curve)


def test_rejects_bad_input():
    problem = power_law(1.0, 50)
    for alphas in ([1.0, 0.5], [0.0, 1.0], [], [[1.0]], "a"):
        with pytest.raises(ValueError, match="alphas ="):
            learning_curve(problem, alphas)
    with pytest.raises(ValueError, match="target ="):
        regime(replace(problem, target=MarchenkoPastur(kappa0=0.5)))
    with pytest.raises(ValueError, match="Delta = 0.0"):
        regime(replace(problem, Delta=0.0))
    with pytest.raises(ValueError, match="law ="):
        Binned(law=MarchenkoPastur(kappa0=0.5), delta=1.0)
    with pytest.raises(ValueError, match="delta ="):
        Binned(law=PowerLaw(gamma=1.0, d=50), delta=0.0)
    with pytest.raises(ValueError, match="delta = 0.0"):
        shortened(PowerLaw(gamma=1.0, d=500), 0.0)
    with pytest.raises(ValueError, match="target = MarchenkoPastur"):
        learning_curve(replace(problem, target=MarchenkoPastur(kappa0=0.5)), [0.1])
    with pytest.raises(ValueError, match="curve of type list: must be a Curve"):
        fit_exponent([1.0, 0.5])
    for call in (regime, scales, lambda problem: learning_curve(problem, [0.1])):
        with pytest.raises(ValueError, match="problem of type PowerLaw: must be a SingleHead"):
            call(problem.target)


def test_closed_form_window_exponent():
    """Power laws inside the window, anything outside of it; rounding of logarithms."""
    target, alpha = PowerLaw(gamma=1.0, d=1000), np.geomspace(1e-3, 1e3, 31)
    epsilon = alpha**-0.5
    inside = (epsilon >= 4 * target.lower) & (epsilon <= target.upper / 10)
    y = np.where(inside, 2 * alpha**-0.7, 5.0)
    found = window_exponent("sequential recovery", target, alpha=alpha, y=y, delta=epsilon / 2, epsilon=epsilon)
    np.testing.assert_allclose(found, (-0.7, 0.0, -0.5), rtol=1e-12, atol=1e-12)
    # the same points are too noisy for shrinkage
    arrays = {"alpha": alpha, "y": y, "epsilon": epsilon}
    assert window_exponent("partial shrinkage", target, delta=epsilon / 2, **arrays) is None
    assert window_exponent("partial shrinkage", target, delta=epsilon / 6, **arrays).predicted == -1


def test_rejects_unknown_window():
    with pytest.raises(ValueError, match="regime = 'plateau': must be one of"):
        window_exponent("plateau", PowerLaw(gamma=1.0, d=10), alpha=[1], y=[1], delta=[1], epsilon=[1])
