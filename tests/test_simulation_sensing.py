"""Gaussian measurements, universality, and what weight decay does to S."""

import numpy as np
import pytest
import torch

from attn_lib.comparison import estimate
from attn_lib.problems import FiniteRank, MarchenkoPastur, SingleHead
from attn_lib.simulation.gaussian_sensing import GaussianMeasurement, train_on_gaussians
from attn_lib.simulation.lbfgs import minimise
from attn_lib.simulation.sensing import TokenMeasurement, pairs
from attn_lib.simulation.single_head import train_single_head
from attn_lib.simulation.single_head_risk import FactorisedRisk
from attn_lib.theory.single_head import solve


def single_head(**changed):
    fields = {"alpha": 1.0, "lam": 0.01, "Delta": 0.5, "kappa": 1.0, "target": MarchenkoPastur(kappa0=0.5)}
    return SingleHead(**{**fields, **changed})


def measurement_of(kind, d, n, n_tokens, seed=0):
    rng = np.random.default_rng(seed)
    if kind == "tokens":
        return TokenMeasurement(torch.as_tensor(rng.standard_normal((1, n, n_tokens, d))))
    n_pairs = n_tokens * (n_tokens + 1) // 2
    return GaussianMeasurement(torch.as_tensor(rng.standard_normal((1, n, n_pairs, d * (d + 1) // 2))), d)


def symmetric(d, seed):
    W = np.random.default_rng(seed).standard_normal((d, d))
    return torch.as_tensor((W + W.T) / (2 * d) ** 0.5)[None]


@pytest.mark.parametrize("n_tokens", [2, 3])
def test_identity_adjoint_of_gaussian_measurement(n_tokens):
    measurement, S = measurement_of("gaussian", 7, 5, n_tokens), symmetric(7, 1)
    g = torch.as_tensor(np.random.default_rng(2).standard_normal((1, 5, n_tokens * (n_tokens + 1) // 2)))
    total = measurement.adjoint(g)
    assert torch.equal(total, total.mT)
    torch.testing.assert_close((g * measurement.measure(S)).sum(), (total * S).sum(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["tokens", "gaussian"])
def test_identity_covariance_of_fields(kind):
    # E z_ab(S) z_cd(S') = (1 + delta_ab) tr S S' on equal pairs, 0 otherwise, exactly at any d
    d, n = 10, 20_000
    S, S1 = symmetric(d, 1), symmetric(d, 2) + 0.4 * symmetric(d, 1)
    measurement = measurement_of(kind, d, n, 3)
    z, z1 = (measurement.measure(matrix)[0].numpy() for matrix in (S, S1))
    a, b = pairs(3).numpy()
    products = z[:, :, None] * z1[:, None, :]
    expected = np.diag((1.0 + (a == b)) * float((S * S1).sum()) / d)
    error = products.std(axis=0, ddof=1) / n**0.5
    assert (np.abs(products.mean(axis=0) - expected) < 4.5 * error).all()  # 36 entries: 2e-4
    assert (error < 0.05).all()


def test_agrees_with_naive_gaussian_matrices():
    # the matrices A_ab themselves, read off by measuring the elementary symmetric matrices
    d, measurement = 4, measurement_of("gaussian", 4, 3000, 2)
    A = np.zeros((3000, 3, d, d))
    for i in range(d):
        for j in range(d):
            unit = torch.zeros(1, d, d, dtype=torch.float64)
            unit[0, i, j] += 0.5
            unit[0, j, i] += 0.5
            A[:, :, i, j] = measurement.measure(unit)[0]
    S = symmetric(d, 3)
    np.testing.assert_allclose(
        np.einsum("npij,ij->np", A, S[0].numpy()), measurement.measure(S)[0], rtol=1e-12, atol=1e-12
    )
    # variances (1 + delta_ab)(1 + delta_ij)/(2 d); 5 standard errors of a variance of 3000 Gaussians are 13 %
    variance = A.var(axis=0) * 2 * d / (1 + np.eye(d)) / np.array([2, 1, 2])[:, None, None]
    np.testing.assert_allclose(variance, 1, rtol=0, atol=0.13)


def paired(problem, d, n_seeds):
    """Relative difference of tokens to Gaussians, seed by seed on the same target, and the Gaussians' own values."""
    tokens = train_single_head(problem, d=d, seeds=range(n_seeds), n_test=20_000, device="cpu")
    gaussians = train_on_gaussians(problem, d=d, seeds=range(n_seeds), n_test=20_000)
    assert tokens.converged.all()
    assert gaussians.converged.all()
    names = ("test_error", "train_loss", "penalty", "q")
    pairs_of = {name: (getattr(tokens, name), getattr(gaussians, name)) for name in names}
    return {name: (estimate((t - g) / g.mean()), estimate(g)) for name, (t, g) in pairs_of.items()}


def test_theory_matches_simulation_on_gaussian_measurements():
    # the theory on the drawn eigenvalues has no fluctuations of the target left
    target = FiniteRank(eigenvalues=[3.0, 2.0, 1.5, 1.0, 0.5, 0.5, 0.0, 0.0, 0.0, 0.0])
    problem = single_head(target=target)
    theory = solve(problem)
    for d, n_seeds in ((20, 12), (40, 4)):
        e = train_on_gaussians(problem, d=d, seeds=range(n_seeds), n_test=20_000)
        for name, expected in (
            ("test_error", theory.test_error),
            ("train_loss", theory.train_loss),
            ("penalty", theory.penalty),
            ("q", theory.overlaps.q),
        ):
            value = estimate(getattr(e, name))
            # c = 1: relative corrections to a Gaussian model of d^2 unknowns, 1/d with a coefficient of order one
            assert abs(value.value - expected) < 4 * value.error + expected / d, (d, name)
            assert 4 * value.error < 0.2 * expected  # and the test has teeth


def test_identity_learned_matrix_has_the_overlaps():
    e = train_on_gaussians(single_head(), d=10, seeds=range(2), n_test=100)
    for k in range(2):
        found = [(e.S[k] * other[k]).sum() / 10 for other in (e.S, e.S0)]
        np.testing.assert_allclose(found, (e.q[k], e.m[k]), rtol=1e-12, atol=0)


def test_theory_matches_simulation_universality():
    # tokens differ from Gaussians by their fourth cumulant, of relative order 12 tr S^4/(tr S^2)^2 / d: the coefficient
    # of the response to it is of order one, c = 2
    problem = single_head()
    for d, n_seeds in ((16, 12), (32, 6)):
        for name, (difference, _) in paired(problem, d, n_seeds).items():
            assert abs(difference.value) < 4 * difference.error + 2 / d, (d, name)


class SquaredFields:
    """Sum of ``(z - y)^2``, the loss that makes the problem in S convex."""

    def __init__(self, y, n_tokens):
        self.y, (self.a, _) = y, pairs(n_tokens)

    def value_and_gradient(self, z):
        return ((z - self.y) ** 2).sum((-2, -1)), 2 * (z - self.y)


def accelerated_proximal_gradient(measurement, y, weight, d, n_iter):
    """Minimum over S >= 0 of ``|z(S) - y|^2 + weight Tr S``: gradient steps, each followed by the soft threshold."""
    probe = symmetric(d, 9)
    for _ in range(60):
        probe = measurement.adjoint(measurement.measure(probe))
        curvature = probe.norm()
        probe = probe / curvature
    step = 1 / (2 * 1.02 * curvature)
    S = ahead = torch.zeros(1, d, d, dtype=torch.float64)
    t = 1.0
    for _ in range(n_iter):
        gradient = measurement.adjoint(2 * (measurement.measure(ahead) - y))
        values, vectors = torch.linalg.eigh(ahead - step * gradient)
        new = vectors * (values - step * weight).clamp(min=0)[:, None, :] @ vectors.mT
        t_new = (1 + (1 + 4 * t * t) ** 0.5) / 2
        ahead, S, t = new + (t - 1) / t_new * (new - S), new, t_new
    return S


@pytest.mark.parametrize("kind", ["tokens", "gaussian"])
def test_agrees_with_convex_minimisation_over_S(kind):
    # weight decay on W is a trace penalty on S >= 0: two problems, two algorithms, one minimum
    d, n_tokens, n, lam = 12, 2, 60, 0.3
    measurement = measurement_of(kind, d, n, n_tokens)
    rng = np.random.default_rng(5)
    W0 = torch.as_tensor(rng.standard_normal((d, 4)))
    y = measurement.measure((W0 @ W0.T / (4 * d) ** 0.5)[None]) + 0.5 * torch.as_tensor(rng.standard_normal((1, n, 3)))
    S = accelerated_proximal_gradient(measurement, y, lam * d, d, 4000)
    convex = ((measurement.measure(S) - y) ** 2).sum() + lam * d * torch.einsum("sii->", S)
    assert 1 <= (torch.linalg.eigvalsh(S) > 1e-6).sum() < d
    risk = FactorisedRisk(measurement, SquaredFields(y, n_tokens), lam, d=d, p=d)
    for seed in range(3):
        W = torch.as_tensor(np.random.default_rng(seed).standard_normal((1, d * d)))
        minimum = minimise(risk, W, tolerance=1e-7, max_iter=20_000)
        assert minimum.converged.all()
        # both stop at gradients of 1e-7, values are then good to 1e-10; the minimiser to the root of that
        torch.testing.assert_close(minimum.value[0], convex, rtol=1e-8, atol=0)
        torch.testing.assert_close(risk.matrix(minimum.Q), S, rtol=0, atol=2e-4)


def test_closed_form_nuclear_norm_of_a_product():
    # min of (|U|^2 + |V|^2)/2 over U V^T = M is the sum of singular values: reached by the SVD, and nowhere undercut
    rng = np.random.default_rng(0)
    M = rng.standard_normal((6, 3)) @ rng.standard_normal((3, 5))
    left, s, right = np.linalg.svd(M, full_matrices=False)
    U, V = left * np.sqrt(s), right.T * np.sqrt(s)
    np.testing.assert_allclose(((U**2).sum() + (V**2).sum()) / 2, s.sum(), rtol=1e-12, atol=0)
    for seed in range(20):
        R = np.random.default_rng(seed).standard_normal((5, 5))
        other = ((U @ R) ** 2).sum() / 2 + ((V @ np.linalg.inv(R).T) ** 2).sum() / 2
        assert other > s.sum()


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("d", {"d": 1}),
        ("d", {"d": 100_000}),
        ("alpha", {"alpha": 1e-9}),
        ("kappa", {"kappa": 0.01}),
        ("n_test", {"n_test": 1}),
        ("tolerance", {"tolerance": 0.0}),
        ("max_iter", {"max_iter": 0}),
        ("seeds", {"seeds": [-1]}),
    ],
)
def test_rejects_bad_arguments(name, changed):
    problem = single_head(**{k: changed.pop(k) for k in ("alpha", "kappa") if k in changed})
    with pytest.raises(ValueError, match=f"^{name} = "):
        train_on_gaussians(problem, **{"d": 10, "seeds": [0], **changed})
