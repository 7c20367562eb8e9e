"""Thresholds of Part II, the interpolating phase, and the Bayes-optimal bound."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq, minimize_scalar

from attn_lib.problems import FiniteRank, MarchenkoPastur, PowerLaw, SingleHead
from attn_lib.theory.bayes_optimal import alpha_bayes, posterior_freedom, solve_bayes_optimal
from attn_lib.theory.ridgeless import solve_ridgeless
from attn_lib.theory.single_head import solve
from attn_lib.theory.thresholds import alpha_interpolation, alpha_recovery, constraints

HALF = MarchenkoPastur(kappa0=0.5)


def semicircle(f, low):
    """Integral of f over the semicircle law above low."""
    return quad(lambda x: f(x) * np.sqrt(4 - x * x) / (2 * np.pi), low, 2, epsabs=1e-13, epsrel=1e-13)[0]


def noisy_target(kappa0, d, seed):
    """S0 of a Wishart target and a GOE matrix with tr Z^2 = 1."""
    rng = np.random.default_rng(seed)
    W, Z = rng.standard_normal((d, round(kappa0 * d))), rng.standard_normal((d, d))
    return W @ W.T / np.sqrt(W.size), (Z + Z.T) / np.sqrt(2 * d)


# Thresholds


@pytest.mark.parametrize(
    ("value", "reference"),
    [
        (alpha_recovery(0.25), 0.14697),
        (alpha_recovery(0.5), 0.21109),
        (alpha_interpolation(HALF, Delta=0.5), 0.15348),
        (alpha_interpolation(HALF, Delta=0.0), 0.875 / 4),
        (alpha_bayes(0.5), 0.1875),
    ],
)
def test_agrees_with_reference_rows(value, reference):
    np.testing.assert_allclose(value, reference, rtol=0, atol=1e-5)  # digits of the reference


@pytest.mark.parametrize("kappa0", [1e-4, 0.02, 0.25, 0.5, 0.9, 1.0, 3.0])
def test_agrees_with_statistical_dimension(kappa0):
    """Of the descent cone: the least mean squared distance of a GOE matrix to the scaled subdifferential."""
    rest = max(1 - kappa0, 0.0)
    fixed = 1 - rest**2

    def distance(e):
        return fixed + rest * min(kappa0, 1.0) * e**2 + rest**2 * semicircle(lambda x: (x - e) ** 2, e)

    least = minimize_scalar(distance, bounds=(0.0, 2.0), method="bounded", options={"xatol": 1e-9})
    # the minimum is quadratic: an error 1e-9 of e is far below that of the quadrature
    np.testing.assert_allclose(4 * alpha_recovery(kappa0), min(least.fun, distance(0.0)), rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("Delta", [0.01, 0.5, 20.0])
def test_agrees_with_quadrature_of_a_sampled_spectrum(Delta):
    """f = tr S0 (S0 + delta Z)_+ and the divergence of the projection, summed over the eigenvalues of large matrices.

    Matrices of d = 500 carry a bias of order 1/d; with 4 of them the statistical error is smaller.
    """
    target = MarchenkoPastur(kappa0=0.5)

    def sampled(delta):
        found = []
        for S0, Z in samples:
            x, V = np.linalg.eigh(S0 + delta * Z)
            above = np.maximum(x, 0)
            gap = np.subtract.outer(x, x) + np.eye(len(x))
            divergence = np.subtract.outer(above, above) / gap + np.diag(x > 0)
            found.append([above @ np.einsum("ij,ij->j", V, S0 @ V) / len(x), divergence.mean()])
        return np.mean(found, axis=0)

    samples = [noisy_target(0.5, 250, seed) for seed in range(2)]
    Q0 = np.mean([np.trace(S0 @ S0) / len(S0) for S0, _ in samples])
    delta = brentq(lambda delta: sampled(delta)[0] - Q0 - Delta / 2, 1e-2, 40.0, xtol=1e-3)
    np.testing.assert_allclose(alpha_interpolation(target, Delta=Delta), sampled(delta)[1] / 4, rtol=2 / 250, atol=0)


def test_closed_form_interpolation_without_and_with_large_noise():
    for target in (HALF, MarchenkoPastur(kappa0=2.0), FiniteRank(eigenvalues=[3.0, 1.0], d=10)):
        full = alpha_interpolation(target, Delta=0.0)
        assert full == (1 - (1 - target.rank) ** 2 / 2) / 4
        # the approach to no noise is like delta ~ Delta^(1/3); at Delta = 1e-9 delta is of order 1e-3
        np.testing.assert_allclose(alpha_interpolation(target, Delta=1e-9), full, rtol=2e-3, atol=0)
        # pure noise: half of the constraints, with a correction of order tr S0 / delta ~ 1/Delta
        np.testing.assert_allclose(alpha_interpolation(target, Delta=1e8), 1 / 8, rtol=1e-6, atol=0)


def test_identity_thresholds_are_ordered_and_fall_with_noise():
    for kappa0 in (0.05, 0.3, 0.7):
        at_no_noise = alpha_interpolation(MarchenkoPastur(kappa0=kappa0), Delta=0.0)
        assert alpha_bayes(kappa0) < alpha_recovery(kappa0) < at_no_noise
        falling = [alpha_interpolation(MarchenkoPastur(kappa0=kappa0), Delta=D) for D in (0.0, 1e-6, 0.1, 1.0, 30.0)]
        assert (np.diff(falling) < 0).all()
        assert falling[-1] > 1 / 8


def test_identity_other_numbers_of_tokens_scale():
    assert [constraints(T) for T in (2, 3, 5)] == [4, 10, 28]
    for T in (3, 5):
        scale = 4 / (T**2 + T - 2)
        for function, argument, fields in (
            (alpha_interpolation, HALF, {"Delta": 0.5}),
            (alpha_interpolation, HALF, {"Delta": 0.0}),
            (alpha_recovery, 0.3, {}),
            (alpha_bayes, 0.3, {}),
        ):
            many, two = function(argument, n_tokens=T, **fields), function(argument, **fields)
            np.testing.assert_allclose(many, scale * two, rtol=1e-12, atol=0)


def test_closed_form_small_rank_recovery():
    # N alpha = 6 kappa0 (1 - c kappa0^(2/5)): three times the number of unknowns, with c of order 1
    for kappa0 in (1e-8, 1e-12):
        np.testing.assert_allclose(4 * alpha_recovery(kappa0), 6 * kappa0, rtol=3 * kappa0**0.4, atol=0)
    np.testing.assert_allclose(alpha_recovery(1e-12) / alpha_bayes(1e-12), 3.0, rtol=1e-3, atol=0)


# The interpolating phase


@pytest.mark.parametrize("Delta", [0.0, 0.5])
def test_agrees_with_small_lam(Delta):
    """The solution at lam > 0 tends to the ridgeless one.

    Slowly: a saturated label binds only when the response, of order 1/lam, exceeds the inverse square of the softmax's
    slope there. Their fraction, and with it the distance, more than halves with each decade of lam.
    """
    limit = solve_ridgeless(HALF, alpha=0.1, Delta=Delta)
    wanted = np.array([limit.m, limit.q, limit.delta, limit.epsilon, limit.eta, limit.rank, limit.test_error])
    distances, losses, start = [], [], None
    for lam in (1e-3, 1e-4, 1e-5):
        s = solve(SingleHead(alpha=0.1, lam=lam, Delta=Delta, kappa=1.0, target=HALF), accuracy=1e-3, start=start)
        found = [s.overlaps.m, s.overlaps.q, s.delta, s.epsilon, s.eta, s.rank, s.test_error]
        distances.append(np.abs(found / wanted - 1))
        losses.append(s.train_loss)
        start = s.hats
    for far, near in zip(distances[:-1], distances[1:], strict=True):
        assert (near < far / 2 + 2e-3).all(), (far, near)  # twice the accuracy asked of solve
    np.testing.assert_allclose(distances[-1], 0, rtol=0, atol=0.05)  # 3 % of the labels have |u| > ln(1/lam)/2
    assert losses[1] < losses[0] / 10 and losses[2] < losses[1] / 10


def least_trace(S0, y, A, n_iter=1500):
    """The matrix S >= 0 of least trace with A S = y: Douglas-Rachford splitting on Gaussian measurements."""
    d = len(S0)
    pseudo_inverse = np.linalg.pinv(A)
    V = np.zeros((d, d))
    for _ in range(n_iter):
        S = V - (pseudo_inverse @ (A @ V.ravel() - y)).reshape(d, d)
        x, U = np.linalg.eigh(2 * S - V)
        new = (U * np.maximum(x - 0.05, 0)) @ U.T
        V = V + new - S
    assert np.abs(new - S).max() < 1e-4
    return new


@pytest.mark.parametrize("Delta", [0.0, 0.5])
def test_theory_matches_simulation_of_least_trace(Delta):
    """Gaussian measurements, N alpha d^2/2 of them, each z(S0) in law, with the noise of an orthonormal coordinate."""
    alpha, found = 0.08, {}
    for d, seeds in ((24, range(5)), (40, range(3))):
        rows = []
        for seed in seeds:
            S0, _ = noisy_target(0.5, d, seed)
            rng = np.random.default_rng(100 + seed)
            A = rng.standard_normal((round(2 * alpha * d**2), d, d)) / np.sqrt(d)
            A = ((A + A.transpose(0, 2, 1)) / np.sqrt(2)).reshape(-1, d * d)
            y = A @ S0.ravel() + np.sqrt(Delta) * rng.standard_normal(len(A))
            S = least_trace(S0, y, A)
            rows.append([np.trace(S @ S0) / d, np.trace(S @ S) / d, np.trace(S) / d])
        found[d] = np.mean(rows, axis=0), np.std(rows, axis=0, ddof=1) / len(rows) ** 0.5
    limit = solve_ridgeless(HALF, alpha=alpha, Delta=Delta)
    for d, (mean, error) in found.items():
        # the spectrum of a target of size d differs from its law by order 1/d
        allowed = 4 * error + 2 / d * np.array([limit.m, limit.q, limit.trace])
        assert (np.abs(mean - [limit.m, limit.q, limit.trace]) < allowed).all(), (d, mean, error, limit)


def test_identity_ends_of_the_interpolating_phase():
    # alpha on the curve of the second equation is stationary in epsilon where epsilon = 0: square roots
    end = alpha_interpolation(HALF, Delta=0.5)
    far, near = (solve_ridgeless(HALF, alpha=end - distance, Delta=0.5) for distance in (1e-6, 1e-8))
    for a, b in ((far.epsilon, near.epsilon), (1.75 - far.m, 1.75 - near.m)):
        np.testing.assert_allclose(a / b, 10, rtol=2e-2, atol=0)  # the next order is epsilon itself, 3e-3
    np.testing.assert_allclose([near.epsilon, near.m], [0, 1.75], rtol=0, atol=2e-3)
    end = alpha_recovery(0.5)
    last = solve_ridgeless(HALF, alpha=end - 1e-4, Delta=0.0)
    assert last.test_error < 1e-6 < solve_ridgeless(HALF, alpha=end - 1e-2, Delta=0.0).test_error
    # e of the recovery threshold, in units of the null block's semicircle; corrections of order delta ~ 1e-3
    e = brentq(lambda e: e - semicircle(lambda x: x - e, e), 0.0, 2.0)
    np.testing.assert_allclose(last.epsilon / last.delta, e * 0.5**0.5, rtol=1e-2, atol=0)


def test_identity_equations_of_the_ridgeless_phase():
    """The equations before elimination, with tails by quadrature of a sampled spectrum's density: from the overlaps."""
    s = solve_ridgeless(HALF, alpha=0.1, Delta=0.5, n_tokens=2, beta=2.0, beta0=1.0)
    b, N = 0.5, 4
    # delta^2 = (Q' - 2 m/b + q/b^2)/(N alpha), and eta = b
    np.testing.assert_allclose(s.delta**2, (1.75 - 2 * s.m / b + s.q / b**2) / (N * 0.1), rtol=1e-9, atol=0)
    same = solve_ridgeless(HALF, alpha=0.1, Delta=0.5)
    np.testing.assert_allclose(
        [s.m / b, s.q / b**2, s.trace / b, s.rank], [same.m, same.q, same.trace, same.rank], rtol=1e-10, atol=0
    )
    np.testing.assert_allclose(s.test_error, same.test_error, rtol=1e-9, atol=0)  # beta0 is the same


def test_identity_three_tokens_see_the_same_matrix():
    two, three = solve_ridgeless(HALF, alpha=0.1, Delta=0.5), solve_ridgeless(HALF, alpha=0.04, Delta=0.5, n_tokens=3)
    np.testing.assert_allclose([two.m, two.q, two.rank], [three.m, three.q, three.rank], rtol=1e-9, atol=0)


# The Bayes-optimal bound


@pytest.mark.parametrize(("kappa0", "t"), [(0.5, 0.3), (0.5, 0.03), (0.25, 1.0)])
def test_agrees_with_denoising_of_sampled_matrices(kappa0, t):
    """D(t) with the best eigenvalues for the noisy eigenvectors, v.S0 v, in two sizes.

    They are a little too good, by fluctuations of each of order d^-1/2: D is below its limit by order 1/(d t).
    """

    def sampled(d, seed):
        S0, Z = noisy_target(kappa0, d, seed)
        _, V = np.linalg.eigh(S0 + t**0.5 * Z)
        best = np.einsum("ij,ij->j", V, S0 @ V)
        return (np.trace(S0 @ S0) - best @ best) / d / t

    for d in (100, 300):
        found = [sampled(d, seed) for seed in range(4)]
        allowed = 4 * np.std(found, ddof=1) / 2 + 5 / d
        np.testing.assert_allclose(np.mean(found), posterior_freedom(kappa0, t), rtol=0, atol=allowed)


def test_closed_form_posterior_freedom():
    # a target of large kappa0 is a multiple of the identity and a GOE matrix: D = 1/(1 + t), corrections 1/kappa0
    for t in (0.1, 1.0, 10.0):
        np.testing.assert_allclose(posterior_freedom(1e7, t), 1 / (1 + t), rtol=1e-5, atol=0)
    for kappa0 in (0.1, 0.5, 0.9):  # corrections of order t
        np.testing.assert_allclose(posterior_freedom(kappa0, 1e-7), 2 * kappa0 - kappa0**2, rtol=1e-5, atol=0)


def test_agrees_with_posterior_mean_of_a_label():
    """4 E (s(u0) - E[s(u0) given u])^2 by nested Gauss-Hermite quadrature."""
    bound = solve_bayes_optimal(0.5, alpha=0.1, Delta=0.5, beta0=1.5)
    x, w = np.polynomial.hermite_e.hermegauss(80)
    w = w / w.sum()
    u = np.sqrt(3 * bound.q) * x
    label = 1 / (1 + np.exp(-1.5 * (u[:, None] + np.sqrt(3 * (1.75 - bound.q)) * x)))
    variance = label**2 @ w - (label @ w) ** 2
    np.testing.assert_allclose(bound.test_error, 4 * w @ variance, rtol=1e-6, atol=0)


def test_identity_bayes_optimal_is_the_lower_bound():
    for alpha in (0.02, 0.1, 0.15):
        for Delta in (0.0, 0.5):
            bound = solve_bayes_optimal(0.5, alpha=alpha, Delta=Delta)
            student = solve_ridgeless(HALF, alpha=alpha, Delta=Delta)
            assert bound.matrix_error < 1.5 - 2 * student.m + student.q
            assert bound.test_error < student.test_error
    # recovery without noise; with noise the error tends to that of the labels, and q to Q0
    known = solve_bayes_optimal(0.5, alpha=0.19, Delta=0.0)
    assert known.matrix_error == 0 and known.test_error == 0
    assert 0 < solve_bayes_optimal(0.5, alpha=100.0, Delta=0.5).matrix_error < 2e-3


# Bad input


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: constraints(1), "n_tokens = 1"),
        (lambda: alpha_recovery(0.0), "kappa0 = 0.0"),
        (lambda: alpha_recovery(float("nan")), "kappa0 = nan"),
        (lambda: alpha_bayes(-1.0), "kappa0 = -1.0"),
        (lambda: alpha_interpolation(HALF, Delta=-0.1), "Delta = -0.1"),
        (lambda: alpha_interpolation(0.5, Delta=0.1), "target = 0.5"),
        (lambda: solve_ridgeless(HALF, alpha=0.16, Delta=0.5), "alpha = 0.16: must be below 0.15348"),
        (lambda: solve_ridgeless(HALF, alpha=0.212, Delta=0.0), "alpha = 0.212: must be below 0.21108"),
        (lambda: solve_ridgeless(HALF, alpha=0.1, Delta=0.5, beta=0.0), "beta = 0.0"),
        (lambda: posterior_freedom(0.5, 0.0), "t = 0.0"),
        (lambda: solve_bayes_optimal(0.5, alpha=0.1, Delta=-1.0), "Delta = -1.0"),
        (lambda: solve_bayes_optimal(0.5, alpha=0.1, Delta=0.0, beta0=0.0), "beta0? = 0.0"),
    ],
)
def test_rejects_bad_arguments(call, match):
    with pytest.raises(ValueError, match=match):
        call()


def test_closed_form_power_law_target_counts_as_full_rank():
    target = PowerLaw(gamma=1.0, d=50)
    assert alpha_recovery(target.rank) == alpha_interpolation(target, Delta=0.0) == 0.25
    assert 1 / 8 < alpha_interpolation(target, Delta=0.5) < 0.25
