"""Message passing: against an iteration written out, against the risk that it should minimise, against its theory."""

import functools

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from attn_lib import proximal
from attn_lib.problems import PositionalSemantic
from attn_lib.simulation.amp import DIFFERENCE, train_by_amp
from attn_lib.simulation.sampling import draw_sample, draw_target, generator
from attn_lib.theory import positional_semantic as ps
from attn_lib.theory.amp_evolution import evolve, first_overlaps, plateau

PROBLEM = PositionalSemantic(alpha=1.5, omega=0.3)
SKEWED = PositionalSemantic(alpha=1.5, omega=0.3, A=((0.3, 0.7), (0.8, 0.2)))
STARTS = ("semantic", "positional")
FIRST = {"signal": 0.3, "noise": 0.3, "V": 12.5}
POSITIONS = np.array([1.0, -1.0])


def prox_by_search(w, x, T, V):
    """The deepest of the minima that a general minimiser finds, through the outputs of the layer."""
    d = x.shape[1]
    t = x + POSITIONS[:, None] / np.sqrt(d)

    def objective(z):
        scores = np.exp(np.outer(z, z))
        S = scores / scores.sum(axis=1, keepdims=True)
        return ((z - w) ** 2).sum() / (2 * V) + ((T @ x - S @ t) ** 2).sum() / (2 * d)

    starts = [w, [1.5, -1.5], [-1.5, 1.5], [w[1], w[0]]]
    found = [minimize(objective, start, method="BFGS", options={"gtol": 1e-8}) for start in starts]
    return min(found, key=lambda f: f.fun).x


def forces_of_samples(w, V, x, T, shift):
    """g = (z - w)/V of every sample at the cavity field w + shift."""
    return np.array([prox_by_search(*a, V) - a[0] for a in zip(w + shift, x, T, strict=True)]) / V


def test_agrees_with_iterations_written_out():
    d, V, damping, seed = 8, 12.5, 0.4, 3
    sigma2, lam = SKEWED.sigma**2, SKEWED.lam
    Q_star = draw_target(d, seed)
    x, T = draw_sample(SKEWED, Q_star, n=12, seed=seed)
    Q = 0.3 * Q_star + 0.3 * generator(seed, "start").standard_normal(d)
    run = train_by_amp(SKEWED, d=d, seeds=[seed], n_iter=2, damping=damping, **FIRST)
    g = np.zeros((12, 2))
    for t in range(2):
        np.testing.assert_allclose(run.q[0, t], sigma2 * Q @ Q / d, rtol=1e-5)
        w = x @ Q / np.sqrt(d) + POSITIONS * Q.mean() - V * g
        force = functools.partial(forces_of_samples, w, V, x, T)
        g = force(0)
        step = DIFFERENCE * np.sqrt((w**2).mean())
        directions = np.array([[1.0, -1.0], [1.0, 1.0]]) / np.sqrt(
            2
        )  # the trace of a matrix is the same in any of them
        divergence = sum(((force(step * e) - force(-step * e)) @ e).sum() / (2 * step) for e in directions)
        V_hat = -divergence / d
        D = (1 - damping) * (lam + sigma2 * V_hat) + damping * sigma2 / V
        new = (np.einsum("nl,nld->d", g, x) / np.sqrt(d) + (g @ POSITIONS).sum() / d + sigma2 * V_hat * Q) / D
        new += damping * (Q.mean() - new.mean())
        np.testing.assert_allclose(run.step[0, t], sigma2 * ((new - Q) ** 2).mean(), rtol=1e-4)
        Q, V = new, sigma2 / D
        np.testing.assert_allclose(run.V[0, t + 1], V, rtol=1e-4)
    # BFGS with numerical gradients finds z to about 1e-6; divided by the step of the divergence, 1e-4
    np.testing.assert_allclose(run.Q[0], Q, rtol=0, atol=1e-4)


@pytest.mark.parametrize("start", STARTS)
def test_identity_local_fixed_points_are_minima_of_the_risk(start):
    d = 60
    run = train_by_amp(SKEWED, d=d, seeds=range(4), start=start, n_iter=500, prox="local", tolerance=1e-9)
    assert run.converged.sum() >= 3  # of such small systems one may cycle
    for i in np.flatnonzero(run.converged):
        sample = draw_sample(SKEWED, run.Q_star[i], n=90, seed=int(run.seeds[i]))
        x, T = torch.as_tensor(sample.x), torch.as_tensor(sample.T)
        t = x + torch.as_tensor(POSITIONS)[:, None] / d**0.5

        def risk(Q, x=x, T=T, t=t):
            h = t @ Q / d**0.5
            S = torch.softmax(h[:, :, None] * h[:, None, :], dim=2)
            return ((T @ x - S @ t) ** 2).sum() / (2 * d) + SKEWED.lam / 2 * (Q @ Q)

        Q = torch.as_tensor(run.Q[i]).requires_grad_()
        value = risk(Q)
        (gradient,) = torch.autograd.grad(value, Q)
        np.testing.assert_allclose(run.train_loss[i, -1], value.item() / d, rtol=1e-10)
        # the last step bounds what is left of the gradient, times D/lam of order 1
        np.testing.assert_allclose(gradient.numpy() / SKEWED.lam, 0, atol=1e-6)
        assert torch.linalg.eigvalsh(torch.autograd.functional.hessian(risk, Q))[0] > 0


def test_identity_rows_repeat_their_end_and_overlaps_belong_to_Q():
    run = train_by_amp(PROBLEM, d=60, seeds=[1], n_iter=400, prox="local", tolerance=1e-6)
    made = run.n_iter[0]
    assert run.converged[0] and made < 400
    for name in ("q", "m", "theta", "V", "train_loss"):
        assert (getattr(run, name)[0, made:] == getattr(run, name)[0, -1]).all()
    assert (run.step[0, made:] == 0).all() and (run.step[0, :made] > 0).all()
    end = [0.25 * (run.Q[0] ** 2).mean(), run.Q[0].mean(), 0.25 * (run.Q[0] * run.Q_star[0]).mean()]
    np.testing.assert_allclose([run.q[0, -1], run.m[0, -1], run.theta[0, -1]], end, rtol=1e-12)


def test_identity_a_diverged_run_is_reported():
    run = train_by_amp(PROBLEM, d=100, seeds=range(4), start="positional", n_iter=60, damping=0.0, signal=0.5)
    assert run.diverged.any()
    assert np.isfinite(run.Q).all() and np.isfinite(run.train_loss).all()
    assert not (run.diverged & run.converged).any()


@pytest.mark.parametrize("start", STARTS)
def test_theory_matches_simulation_in_every_iteration(start):
    n_iter = 5
    theory = evolve(PROBLEM, first_overlaps(PROBLEM, start, **FIRST), n_iter=n_iter, log2_points=8)
    for d, n_seeds in {500: 16, 1500: 8}.items():
        run = train_by_amp(PROBLEM, d=d, seeds=range(n_seeds), start=start, n_iter=n_iter, **FIRST)
        for name in ("q", "m", "theta", "V", "step"):
            measured, predicted = getattr(run, name), getattr(theory, name)
            error = measured.std(axis=0, ddof=1) / np.sqrt(n_seeds)
            if name == "step":
                error = np.hypot(error, theory.step_error)
            # 1/d: the exact loss draws T towards 1/2 by a fraction 8/d; responses of an update are up to 4.5 (to m)
            allowed = 4 * error + 40 / d * np.abs(predicted).max()
            assert (np.abs(measured.mean(axis=0) - predicted) <= allowed).all(), (d, name)


@pytest.mark.parametrize("start", STARTS)
def test_identity_evolution_ends_at_the_fixed_point(start):
    overlaps = ps.solve(PROBLEM, start, accuracy=1e-4).overlaps
    for damping in (0.7, 0.8):
        stays = evolve(PROBLEM, overlaps, n_iter=1, damping=damping, log2_points=4)
        for name in ("q", "m", "theta", "V"):
            np.testing.assert_allclose(getattr(stays, name), getattr(overlaps, name), rtol=1e-3)
    moved = evolve(PROBLEM, overlaps._replace(q=1.1 * overlaps.q), n_iter=10, damping=0.7, log2_points=4)
    # the slowest mode decays as 0.83^t
    assert abs(moved.q[-1] - overlaps.q) < 0.3 * abs(moved.q[0] - overlaps.q)


def test_agrees_with_two_correlated_replicas_drawn_directly():
    """The second step from the covariance of three fields per token, in the coordinates of the tokens."""
    problem, start = PROBLEM, "positional"
    path = evolve(problem, first_overlaps(problem, start, **FIRST), n_iter=2, log2_points=11)
    q, m, theta, V = path.q, path.m, path.theta, path.V
    rho, N = problem.rho, 40_000
    C10 = rho * m[0] * m[1] + theta[0] * theta[1] / rho  # the noise of Q^0 knows nothing of the data
    covariance = [[rho, theta[0], theta[1]], [theta[0], q[0], C10], [theta[1], C10, q[1]]]
    fields = np.random.default_rng(0).multivariate_normal(np.zeros(3), covariance, size=(2, N))
    u, v = (fields[0] - fields[1]) / np.sqrt(2), (fields[0] + fields[1]) / np.sqrt(2)
    T11, T22 = (0.7 * S + 0.3 * 0.6 for S in proximal.attention_diagonal(u[:, 0], v[:, 0]))
    forces = []
    for t in (0, 1):
        w = u[:, 1 + t] + np.sqrt(2) * m[t], v[:, 1 + t]
        z = proximal.prox(*w, T11, T22, V[t], problem.sigma)
        forces.append([(z[i] - w[i]) / V[t] for i in (0, 1)])
    product = np.sum(np.multiply(*forces), axis=0)
    C21 = rho * m[1] * m[2] + theta[1] * theta[2] / rho + problem.alpha * V[1] * V[2] * product.mean()
    error = 2 * problem.alpha * V[1] * V[2] * product.std() / np.sqrt(N)
    assert abs(path.step[1] - (q[1] + q[2] - 2 * C21)) < 4 * np.hypot(error, path.step_error[1])


def test_identity_iterates_settle_where_no_sample_flips():
    problem = PositionalSemantic(alpha=2.0, omega=0.3)
    found = plateau(problem, ps.solve(problem, "semantic").overlaps, log2_points=6)
    assert found.flips == 0
    assert found.step < 1e-6


def test_identity_iterates_move_on_where_samples_flip():
    problem = PositionalSemantic(alpha=0.65, omega=0.1)  # 2% of the samples
    found = plateau(problem, ps.solve(problem, "positional").overlaps, log2_points=9, n_iter=12)
    assert found.flips > 3 * found.flips_error > 0
    assert found.step > 3 * found.step_error > 0


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("d", 1),
        ("d", 50.0),
        ("seeds", []),
        ("seeds", [1, 1]),
        ("start", "warm"),
        ("signal", -0.1),
        ("noise", np.inf),
        ("V", 0.0),
        ("n_iter", 0),
        ("damping", 1.0),
        ("prox", "nearest"),
        ("tolerance", -1e-3),
    ],
)
def test_rejects_bad_arguments(argument, value):
    with pytest.raises(ValueError, match=f"{argument} = .*must be"):
        train_by_amp(PROBLEM, **({"d": 50, "seeds": [0]} | {argument: value}))


def test_rejects_a_start_at_zero():
    with pytest.raises(ValueError, match=r"noise = 0.0: must be > 0 where signal = 0"):
        train_by_amp(PROBLEM, d=50, seeds=[0], signal=0.0, noise=0.0)


def test_rejects_bad_arguments_of_the_evolution():
    first = first_overlaps(PROBLEM, "semantic", **FIRST)
    with pytest.raises(ValueError, match="start = 'random'"):
        first_overlaps(PROBLEM, "random", **FIRST)
    with pytest.raises(ValueError, match="n_iter = 0"):
        evolve(PROBLEM, first, n_iter=0)
    with pytest.raises(ValueError, match=r"damping = 1.0"):
        evolve(PROBLEM, first, n_iter=1, damping=1.0)
    with pytest.raises(ValueError, match="one of them must be 0"):
        evolve(PROBLEM, first._replace(m=0.1), n_iter=1)
