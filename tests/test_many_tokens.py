"""The channel of T tokens by Sobol points against closed forms, brute force and the deterministic two-token rule."""

import numpy as np
import pytest
from scipy.optimize import minimize

from attn_lib.comparison import estimate
from attn_lib.problems import FiniteRank, MarchenkoPastur, SingleHead
from attn_lib.simulation.gaussian_sensing import train_on_gaussians
from attn_lib.theory.attention_channel import TwoTokenChannel
from attn_lib.theory.many_tokens import ManyTokenChannel
from attn_lib.theory.many_tokens_prox import (
    MIN_CURVATURE,
    attention,
    descend,
    field_basis,
    loss,
    loss_derivatives,
    target_derivative,
)
from attn_lib.theory.single_head import solve
from attn_lib.theory.spectral_prior import Overlaps

OVERLAPS = Overlaps(m=1.38, q=1.46, Sigma=2.3)


def single_head(**changed):
    fields = {"alpha": 0.5, "lam": 0.01, "Delta": 0.5, "kappa": 1.0, "target": MarchenkoPastur(kappa0=0.5)}
    return SingleHead(**{**fields, **changed})


def softmax(z):
    w = np.exp(z - z.max(axis=-1, keepdims=True))
    return w / w.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("T", [2, 3, 5])
def test_identity_coordinates_of_fields(T):
    # |y|^2 = z^T C^-1 z over the entries a <= b, apart from the multiple of 1 1^T; linear algebra, so rounding only
    E = field_basis(T)
    assert len(E) == (T**2 + T - 2) // 2
    np.testing.assert_allclose(np.einsum("iab,jab->ij", E, E), 2 * np.eye(len(E)), rtol=0, atol=1e-13)
    z = np.random.default_rng(0).standard_normal((T, T))
    z = z + z.T
    y = np.einsum("iab,ab->i", E, z) / 2
    rest = z - np.tensordot(y, E, axes=1)
    np.testing.assert_allclose(rest, rest[0, 0] * np.ones((T, T)), rtol=0, atol=1e-13)
    a, b = np.triu_indices(T)
    norm = ((z - rest)[a, b] ** 2 / (1 + (a == b))).sum()
    np.testing.assert_allclose(norm, y @ y, rtol=1e-12, atol=0)


@pytest.mark.parametrize("T", [2, 3, 4])
def test_agrees_with_finite_differences(T):
    rng = np.random.default_rng(T)
    E, beta, beta0, step = field_basis(T), 1.3, 0.7, 1e-5
    y, y0 = rng.standard_normal((2, len(E), 4))
    target = attention(y0, E, beta0)
    g, H = loss_derivatives(y, target, E, beta)
    K = target_derivative(y, target, E, beta, beta0)
    np.testing.assert_allclose(
        target[..., 0], softmax(beta0 * np.tensordot(y0[:, 0], E, axes=1)), rtol=1e-12, atol=1e-14
    )
    for i, e in enumerate(np.eye(len(E))[..., None] * step):
        moved = [loss(y + s * e, target, E, beta) for s in (1, -1)]
        slopes = [loss_derivatives(y + s * e, target, E, beta)[0] for s in (1, -1)]
        crossed = [loss_derivatives(y, attention(y0 + s * e, E, beta0), E, beta)[0] for s in (1, -1)]
        # central differences: truncation step^2 = 1e-10 and rounding 1e-16 / step = 1e-11, times derivatives of order 1
        np.testing.assert_allclose((moved[0] - moved[1]) / (2 * step), g[i], rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose((slopes[0] - slopes[1]) / (2 * step), H[:, i], rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose((crossed[0] - crossed[1]) / (2 * step), K[:, i], rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("T", [3, 4])
def test_agrees_with_brute_force_prox(T):
    # all T(T+1)/2 entries, the metric C, no use of the invariance, another minimiser
    rng = np.random.default_rng(T)
    a, b = np.triu_indices(T)
    C = 1.0 + (a == b)
    Sigma, n = 2.3, 12
    mixed = np.linalg.cholesky([[1.75, 1.38], [1.38, 1.46]]) @ rng.standard_normal((2, n * len(C)))
    z0, omega = np.sqrt(C) * mixed.reshape(2, n, len(C))
    E = field_basis(T)

    def matrix(v):
        z = np.zeros((T, T))
        z[a, b] = z[b, a] = v
        return z

    def objective(v, w, v0):
        misfit = ((softmax(matrix(v0)) - softmax(matrix(v))) ** 2).sum()
        return misfit + ((v - w) ** 2 / C).sum() / (2 * Sigma)

    def coordinates(fields):
        return np.array([np.einsum("iab,ab->i", E, matrix(v)) / 2 for v in fields]).T

    target = attention(coordinates(z0), E, 1.0)
    y = descend(coordinates(omega), coordinates(omega), target, E, 1.0, Sigma)
    for i in range(n):
        found = min(
            (minimize(objective, start, args=(omega[i], z0[i]), tol=1e-12) for start in (omega[i], z0[i])),
            key=lambda r: r.fun,
        )
        here = loss(y[:, [i]], target[..., [i]], E, 1.0) + ((y[:, i] - coordinates(omega)[:, i]) ** 2).sum() / (
            2 * Sigma
        )
        # BFGS with numerical gradients stops at about 1e-6 in v, so at 1e-11 in the objective
        np.testing.assert_allclose(here, found.fun, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(y[:, i], coordinates([found.x])[:, 0], rtol=0, atol=1e-4)


@pytest.mark.parametrize("T", [2, 3, 4])
def test_closed_form_small_beta(T):
    # l = (beta/T)^2 Tr dz P dz with P = 1 - 1 1^T/T: curvatures 4 (beta/T)^2 on the T(T-1)/2 coordinates within the
    # range of P, 2 (beta/T)^2 on the T-1 mixed ones. Second moments of the points are exact; what is left is the next
    # order of the softmax, beta times fields of order 3
    beta, (m, q, Sigma) = 1e-4, Overlaps(m=1.2, q=1.5, Sigma=1e8)
    channel = ManyTokenChannel(single_head(n_tokens=T, beta=beta, beta0=beta), log2_points=9)
    h = (beta / T) ** 2 * np.repeat([4.0, 2.0], [T * (T - 1) // 2, T - 1])
    shrunk = h / (1 + Sigma * h)
    gap = q + 1.75 - 2 * m
    expected = [
        (h / 2 / (1 + Sigma * h) ** 2).sum() * gap,
        (shrunk**2).sum() * gap,
        shrunk.sum() * (q - m),
        shrunk.sum() * (m - 1.75),
        shrunk.sum(),
        -shrunk.sum(),
    ]
    found = channel.averages(Overlaps(m, q, Sigma))
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=0)


@pytest.mark.parametrize(
    "overlaps", [OVERLAPS, Overlaps(m=1.34, q=1.24, Sigma=0.33), Overlaps(m=0.8, q=3.0, Sigma=30.0)]
)
def test_agrees_with_the_two_token_rule(overlaps):
    problem = single_head()
    exact = np.array(TwoTokenChannel(problem, 14).averages(overlaps))  # to 1e-4 or better
    channel = ManyTokenChannel(problem, log2_points=12)
    found, error = channel.averages(overlaps), channel.standard_errors(overlaps)
    assert (np.abs(found - exact) < 4.5 * np.array(error) + 2e-4 * np.abs(exact)).all()
    assert (np.array(error)[:5] < 0.01 * np.abs(exact)[:5]).all()  # and the test has teeth


def test_closed_form_smallest_curvature():
    # two entries: |softmax(u) - (1, 0)|^2 = 2 (1-s)^2 with s the logistic of u_1 - u_2
    s = np.linspace(0, 1, 100_001)
    assert abs((8 * s * (1 - s) ** 2 * (3 * s - 1)).min() - MIN_CURVATURE) < 1e-8  # of a grid of 1e-5
    # longer rows; the second derivative of the loss of one row in its own entries, by differences of the gradient
    rng, lowest = np.random.default_rng(0), 0
    for T in (3, 4, 6):
        u = rng.standard_normal((4000, T)) * rng.uniform(0.3, 6, (4000, 1))
        p = np.eye(T)[0]

        def gradient(u, p=p):
            A = softmax(u)
            r = A - p
            return 2 * A * (r - (A * r).sum(axis=1, keepdims=True))

        step = 1e-5
        H = np.stack([(gradient(u + step * e) - gradient(u - step * e)) / (2 * step) for e in np.eye(T)], axis=2)
        lowest = min(lowest, np.linalg.eigvalsh((H + H.transpose(0, 2, 1)) / 2).min())
    assert MIN_CURVATURE - 1e-8 < lowest < 0.9 * MIN_CURVATURE


@pytest.mark.parametrize("T", [3, 4])
def test_identity_moreau_envelope(T):
    # for the sample of points itself: dM/dSigma = -E|g|^2/2 (common random numbers), M = E l + Sigma E|g|^2 / 2
    channel = ManyTokenChannel(single_head(n_tokens=T), log2_points=8)
    step = 1e-4

    def moreau(Sigma):
        averages = channel.averages(OVERLAPS._replace(Sigma=Sigma))
        return averages.loss + Sigma / 2 * averages.g_g

    slope = (moreau(2.3 + step) - moreau(2.3 - step)) / (2 * step)
    # truncation of order step^2 = 1e-8, rounding of the prox (1e-10) negligible at a minimum
    np.testing.assert_allclose(slope, -channel.averages(OVERLAPS).g_g / 2, rtol=1e-6, atol=0)


@pytest.mark.parametrize(("T", "overlaps"), [(3, OVERLAPS), (4, OVERLAPS), (3, Overlaps(m=1.3, q=1.24, Sigma=0.3))])
def test_identity_stein_and_derivative_forms(T, overlaps):
    m, q, _ = overlaps
    channel = ManyTokenChannel(single_head(n_tokens=T), log2_points=10)
    each = channel.scrambled_averages(overlaps)
    A, B = np.linalg.solve([[q, m], [m, 1.75]], [each.omega_g, each.z0_g])
    for difference in (A - each.response, B - each.response_star):
        error = difference.std(ddof=1) / channel.n_scrambles**0.5
        assert abs(difference.mean()) < 4.5 * error  # Student's t with 7 degrees of freedom: 0.3 %
    assert (A - each.response).std() < 0.03 * A.mean()  # and the test has teeth


def test_theory_matches_simulation_three_tokens():
    # Gaussian measurements, whose fields are those of the theory; the eigenvalues of the target do not fluctuate
    target = FiniteRank(eigenvalues=[3.0, 2.0, 1.5, 1.0, 0.0, 0.0, 0.0, 0.0])
    problem = single_head(alpha=0.6, target=target, n_tokens=3)
    theory = solve(problem, accuracy=5e-3)
    assert abs(theory.potential - theory.train_loss - theory.penalty) < 1e-9
    expected = {name: getattr(theory, name) for name in ("test_error", "train_loss", "penalty")}
    expected |= {"m": theory.overlaps.m, "q": theory.overlaps.q}
    for d, n_seeds in ((16, 8), (24, 6)):
        e = train_on_gaussians(problem, d=d, seeds=range(n_seeds), n_test=20_000)
        for name, value in expected.items():
            measured = estimate(getattr(e, name))
            # c = 1: corrections to a Gaussian model of d^2 unknowns are of relative order 1/d
            assert abs(measured.value - value) < 4 * measured.error + value / d, (d, name)
            assert 4 * measured.error < 0.25 * value  # and the test has teeth


@pytest.mark.parametrize(
    "changed", [{"n_tokens": 1}, {"log2_points": 5}, {"log2_points": 40}, {"n_scrambles": 1}, {"seed": -1}]
)
def test_rejects_bad_arguments(changed):
    with pytest.raises(ValueError, match=next(iter(changed))):
        if "n_tokens" in changed:
            field_basis(**changed)
        else:
            ManyTokenChannel(single_head(n_tokens=3), **changed)


@pytest.mark.parametrize("overlaps", [Overlaps(2.0, 1.0, 1.0), Overlaps(0.0, -1.0, 1.0), Overlaps(0.0, np.nan, 1.0)])
def test_rejects_overlaps_of_no_gaussian(overlaps):
    with pytest.raises(FloatingPointError, match="must satisfy m"):
        ManyTokenChannel(single_head(n_tokens=3), log2_points=6).averages(overlaps)
