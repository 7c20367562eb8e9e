"""Matrix message passing: against an iteration written out, against the trained layer, against its theory."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from attn_lib.problems import MarchenkoPastur, SingleHead
from attn_lib.simulation.matrix_amp import iterates, train_by_matrix_amp
from attn_lib.simulation.matrix_passing import soft_threshold, token_metric
from attn_lib.simulation.matrix_prox import AttentionProx
from attn_lib.simulation.single_head import train_single_head
from attn_lib.simulation.single_head_sampling import draw_matrix, labelled_tokens
from attn_lib.theory.matrix_evolution import evolve

PROBLEM = SingleHead(alpha=0.5, lam=0.01, Delta=0.5, kappa=1.0, target=MarchenkoPastur(kappa0=0.5))
SKEWED = replace(PROBLEM, beta=1.4, beta0=0.8, kappa=0.9)


def matrices(x):
    """A_ab of one sample, for a <= b."""
    T, d = x.shape
    return [
        (np.outer(x[a], x[b]) + np.outer(x[b], x[a])) / (2 * d**0.5) - (a == b) * np.eye(d) / d**0.5
        for a in range(T)
        for b in range(a, T)
    ]


def rows(z, T):
    full = np.zeros((T, T))
    full[np.triu_indices(T)] = z
    return full + np.triu(full, 1).T


def loss(z, Y, beta):
    A = np.exp(beta * rows(z, len(Y)))
    return ((Y - A / A.sum(axis=1, keepdims=True)) ** 2).sum()


def prox_by_search(omega, Y, C, beta, Sigma):
    """The deepest of the minima that a general minimiser finds."""
    metric = np.linalg.inv(C) / (2 * Sigma)

    def objective(z):
        return loss(z, Y, beta) + (z - omega) @ metric @ (z - omega)

    starts = [omega, 0 * omega, *np.random.default_rng(0).standard_normal((3, len(omega)))]
    found = [minimize(objective, start, method="BFGS", options={"gtol": 1e-9}) for start in starts]
    return min(found, key=lambda f: f.fun).x


def divergence_by_differences(f, R, step=1e-6):
    """Trace of the derivative of f over an orthonormal basis of symmetric matrices."""
    total = 0.0
    for i in range(len(R)):
        for j in range(i + 1):
            E = np.zeros_like(R)
            E[i, j] = E[j, i] = 1.0 if i == j else 0.5**0.5
            total += ((f(R + step * E) - f(R - step * E)) * E).sum() / (2 * step)
    return total


def test_agrees_with_iterations_written_out():
    problem, d, n, seed, Sigma, damping = SKEWED, 5, 4, 3, 0.7, 0.3
    S_star = draw_matrix(problem, d, seed)
    x, Y = (a.numpy() for a in labelled_tokens(problem, S_star, n=n, seed=seed))
    threshold = 2 * problem.kappa**0.5 * problem.lam
    A = [np.array(matrices(sample)) for sample in x]
    C = [2 / d * np.einsum("aij,bij->ab", a, a) for a in A]
    states = iterates(problem, S_star, n=n, seed=seed, noise=0.3, Sigma=Sigma, damping=damping)
    S, g, scale = next(states).S.numpy(), [np.zeros(3)] * n, None

    def threshold_of(R):
        r, vectors = np.linalg.eigh(R)
        return vectors * np.maximum(r - threshold, 0) @ vectors.T

    def force(i, omega):
        return np.linalg.solve(C[i], omega - prox_by_search(omega, Y[i], C[i], problem.beta, Sigma)) / Sigma

    for state in islice(states, 2):
        omega = [np.einsum("aij,ij->a", a, S) + Sigma * c @ f for a, c, f in zip(A, C, g, strict=True)]
        g = [force(i, omega[i]) for i in range(n)]
        step, Sigma_hat = 1e-3, 0.0
        for i in range(n):
            slopes = [(force(i, omega[i] + e) - force(i, omega[i] - e)) / (2 * step) for e in step * np.eye(3)]
            Sigma_hat += 2 / d**2 * np.sum(C[i] * np.array(slopes).T)
        R = Sigma_hat * S - 2 / d * sum(np.einsum("a,aij->ij", f, a) for f, a in zip(g, A, strict=True))
        scale = Sigma_hat if scale is None else (1 - damping) * Sigma_hat + damping * scale
        S, Sigma = threshold_of(R) / scale, 2 / d**2 / scale * divergence_by_differences(threshold_of, R)
        # BFGS finds z to about 1e-7, which the differences divide by 1e-3
        np.testing.assert_allclose(state.S.numpy(), S, rtol=0, atol=1e-3)
        np.testing.assert_allclose([state.Sigma, state.Sigma_hat], [Sigma, Sigma_hat], rtol=1e-3)


def test_agrees_with_scalar_products_of_the_measurements():
    x = np.random.default_rng(0).standard_normal((3, 3, 7))
    expected = [2 / 7 * np.einsum("aij,bij->ab", A, A) for A in (np.array(matrices(sample)) for sample in x)]
    np.testing.assert_allclose(token_metric(torch.as_tensor(x)).numpy(), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("threshold", [-10.0, 0.1, 0.9, 10.0])
def test_agrees_with_differences_of_the_soft_threshold(threshold):
    R = np.random.default_rng(1).standard_normal((6, 6))
    R = R + R.T
    value, divergence = soft_threshold(torch.as_tensor(R), threshold)
    numerical = divergence_by_differences(lambda A: soft_threshold(torch.as_tensor(A), threshold)[0].numpy(), R)
    # differences over 1e-6 of numbers of order 1 in double precision
    np.testing.assert_allclose(divergence, numerical, rtol=1e-7, atol=1e-7)
    assert np.linalg.eigvalsh(value.numpy())[0] > -1e-12


@pytest.mark.parametrize("n_tokens", [2, 3, 4])
@pytest.mark.parametrize("Sigma", [0.3, 3.0, 60.0])
def test_identity_prox_is_stationary_and_no_random_start_goes_lower(n_tokens, Sigma):
    problem, d, n = replace(PROBLEM, n_tokens=n_tokens, beta=1.3), 30, 60
    S_star = draw_matrix(problem, d, 0)
    x, Y = labelled_tokens(problem, S_star, n=n, seed=0)
    prox, rng = AttentionProx(Y, problem.beta, token_metric(x)), np.random.default_rng(2)
    omega = torch.as_tensor(1.5 * rng.standard_normal((n, n_tokens * (n_tokens + 1) // 2)))
    z = prox.solve(omega, Sigma)
    g = prox.gradient(z)
    residual = z - omega + Sigma * (prox.C @ g[..., None])[..., 0]
    # a Newton step of 1e-9 was the last one
    np.testing.assert_allclose(residual.numpy(), 0, atol=1e-7)
    kick = 1e-4
    response = prox.response(z, Sigma).numpy()
    moved = [prox.gradient(prox.solve(omega + s * kick * torch.eye(omega.shape[1])[0], Sigma)) for s in (1, -1)]
    stays = (moved[0] - moved[1]).abs().amax(1).numpy() < 20 * kick  # samples that do not jump in between
    assert stays.mean() > 0.9
    slope = (moved[0] - moved[1]).numpy() / (2 * kick)
    np.testing.assert_allclose(slope[stays], response[stays, :, 0], rtol=1e-3, atol=1e-3)  # third derivatives
    for i in range(6):
        other = prox_by_search(omega[i].numpy(), Y[i].numpy(), prox.C[i].numpy(), problem.beta, Sigma)
        metric = np.linalg.inv(prox.C[i].numpy()) / (2 * Sigma)
        values = [
            loss(v, Y[i].numpy(), problem.beta) + (v - omega[i].numpy()) @ metric @ (v - omega[i].numpy())
            for v in (z[i].numpy(), other)
        ]
        assert values[0] < values[1] + 1e-7


def test_agrees_with_the_trained_layer():
    d, seeds = 40, [5]
    run = train_by_matrix_amp(PROBLEM, d=d, seeds=seeds, n_iter=60, tolerance=1e-6)
    assert run.converged.all()
    trained = train_single_head(PROBLEM, d=d, seeds=seeds, tolerance=1e-6)
    S = trained.W @ trained.W.transpose(0, 2, 1) / d
    # W = sqrt(S) turns a gradient of 1e-6 into less than 1e-4 in S
    np.testing.assert_allclose(run.S, S, rtol=0, atol=1e-3)
    np.testing.assert_allclose(run.train_loss[:, -1], trained.train_loss, rtol=1e-4)
    np.testing.assert_allclose(run.penalty[:, -1], trained.penalty, rtol=1e-4)
    np.testing.assert_allclose(run.q[:, -1], trained.q, rtol=1e-4)
    np.testing.assert_allclose(run.m[:, -1], trained.m, rtol=1e-4)


def test_identity_fixed_points_are_stationary_for_three_tokens():
    d, n_tokens = 24, 3
    problem = replace(PROBLEM, n_tokens=n_tokens, lam=0.03, beta=1.2, kappa=0.9)
    run = train_by_matrix_amp(problem, d=d, seeds=[0], n_iter=80, tolerance=1e-8)
    assert run.converged[0]
    x, Y = labelled_tokens(problem, run.S_star[0], n=run.settings.n, seed=0)
    S = torch.as_tensor(run.S[0]).requires_grad_()
    z = (x @ S @ x.mT - S.trace() * torch.eye(n_tokens)) / d**0.5
    risk = ((torch.softmax(problem.beta * z, dim=-1) - Y) ** 2).sum() + d * problem.nuclear_penalty * S.trace()
    (gradient,) = torch.autograd.grad(risk, S)
    gradient = ((gradient + gradient.T) / 2).numpy()
    scale = d * problem.nuclear_penalty
    # least eigenvalue >= 0, and 0 on the range of S: the last step bounds what is left
    assert np.linalg.eigvalsh(gradient)[0] > -1e-4 * scale
    np.testing.assert_allclose(gradient @ run.S[0] / scale, 0, atol=1e-4)


def test_identity_rows_repeat_their_end_and_overlaps_belong_to_S():
    run = train_by_matrix_amp(PROBLEM, d=30, seeds=[1], n_iter=60, tolerance=1e-3)
    made = run.n_iter[0]
    assert run.converged[0] and made < 60
    for name in ("m", "q", "Sigma", "test_error", "train_loss", "penalty"):
        assert (getattr(run, name)[0, made:] == getattr(run, name)[0, -1]).all()
    assert (run.step[0, made:] == 0).all() and (run.step[0, :made] > 0).all()
    ends = [np.trace(run.S[0] @ other) / 30 for other in (run.S_star[0], run.S[0])]
    np.testing.assert_allclose([run.m[0, -1], run.q[0, -1]], ends, rtol=1e-10)
    scaled = soft_threshold(torch.as_tensor(run.R[0]), 2 * PROBLEM.lam)[0].numpy()
    np.testing.assert_allclose(scaled / scaled.max(), run.S[0] / run.S[0].max(), rtol=0, atol=1e-10)


def test_identity_nothing_is_learned_under_a_large_penalty():
    run = train_by_matrix_amp(replace(PROBLEM, lam=10.0), d=20, seeds=[0], n_iter=3)
    assert (run.S == 0).all() and run.converged.all() and not run.diverged.any()


@pytest.mark.parametrize("alpha", [0.5, 2.0])
def test_theory_matches_simulation_in_every_iteration(alpha):
    problem, n_iter = replace(PROBLEM, alpha=alpha), 6
    theory = evolve(problem, n_iter=n_iter)
    for d, n_seeds in {30: 8, 60: 4}.items():
        run = train_by_matrix_amp(problem, d=d, seeds=range(n_seeds), n_iter=n_iter)
        for name in ("m", "q", "Sigma", "test_error"):
            measured, predicted = getattr(run, name), getattr(theory, name)
            error = measured.std(axis=0, ddof=1) / np.sqrt(n_seeds)
            # 1/d: S has d(d+1)/2 entries, not d^2/2, and moments of S0 are off by as much; responses are up to 4
            allowed = 4 * error + 4 / d * np.abs(predicted).max()
            assert (np.abs(measured.mean(axis=0) - predicted) <= allowed).all(), (d, name)


def test_theory_matches_simulation_of_the_distance_of_two_runs():
    """Runs from S^0 = 0 and from a small random matrix, on the same data."""
    n_iter, noise = 8, 1e-4
    theory = evolve(PROBLEM, n_iter=n_iter).growth
    for d, n_seeds in {30: 10, 60: 5}.items():
        growth = []
        for seed in range(n_seeds):
            S_star = draw_matrix(PROBLEM, d, seed)
            pair = (iterates(PROBLEM, S_star, n=d * d // 2, seed=seed, noise=s) for s in (0.0, noise))
            squares = [((a.S - b.S) ** 2).sum().item() for a, b in islice(zip(*pair, strict=False), n_iter + 1)]
            growth.append(np.log(np.array(squares[1:]) / squares[:-1]))
        measured, error = np.mean(growth, axis=0), np.std(growth, axis=0, ddof=1) / np.sqrt(n_seeds)
        # 1/d: as above
        assert (np.abs(measured - np.log(theory)) <= 4 * error + 4 / d).all(), (d, np.exp(measured), theory)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("d", 1),
        ("d", 50.0),
        ("seeds", []),
        ("seeds", [1, 1]),
        ("noise", -0.1),
        ("Sigma", 0.0),
        ("n_iter", 0),
        ("damping", 1.0),
        ("tolerance", -1e-3),
        ("n_test", 0),
    ],
)
def test_rejects_bad_arguments(argument, value):
    with pytest.raises(ValueError, match=f"{argument} = .*must be"):
        train_by_matrix_amp(PROBLEM, **({"d": 20, "seeds": [0]} | {argument: value}))
