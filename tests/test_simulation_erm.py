"""Training of Part I at small d, against plain autograd through the outputs and a general minimiser."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from attn_lib.problems import PositionalSemantic
from attn_lib.simulation import erm
from attn_lib.simulation.risk import AttentionRisk
from attn_lib.simulation.sampling import draw_sample, draw_target

PROBLEM = PositionalSemantic(alpha=1.5, omega=0.3, A=((0.3, 0.7), (0.8, 0.2)))
D = 40
ROUNDING = {"rtol": 1e-10, "atol": 1e-12}  # the same quantity computed twice in double precision


def train(problem=PROBLEM, **changes):
    return erm.train_positional_semantic(problem, **({"d": D, "seeds": range(3), "device": "cpu"} | changes))


def plain_risk(problem, d, seed):
    """The risk through the (n, 2, d) outputs, as a function of Q for autograd."""
    sample = draw_sample(problem, draw_target(d, seed), n=round(problem.alpha * d), seed=seed)
    x, T = torch.as_tensor(sample.x), torch.as_tensor(sample.T)
    t = x + torch.tensor([[1.0], [-1.0]], dtype=torch.float64) / d**0.5

    def risk(Q):
        h = t @ Q / d**0.5
        S = torch.softmax(h[:, :, None] * h[:, None, :], dim=2)
        return ((T @ x - S @ t) ** 2).sum() / (2 * d) + problem.lam / 2 * (Q @ Q)

    return risk


def value_and_gradient(risk, Q):
    Q = torch.as_tensor(Q, dtype=torch.float64).requires_grad_()
    value = risk(Q)
    (gradient,) = torch.autograd.grad(value, Q)
    return value.item(), gradient.numpy()


@pytest.mark.parametrize("n_runs", [3, 4])  # few runs, and many
def test_agrees_with_autograd_through_outputs(n_runs):
    samples = [draw_sample(PROBLEM, draw_target(D, seed), n=60, seed=seed) for seed in (0, 1)]
    risk = AttentionRisk(samples, PROBLEM.lam, device="cpu", dtype=torch.float64)
    Q = 2 * torch.randn(2, n_runs, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    loss, g = risk.loss(risk.fields(Q))
    value = loss + risk.lam / 2 * (Q**2).sum(-1)
    gradient = risk.adjoint(g) + risk.lam * Q
    for seed in (0, 1):
        for run in range(n_runs):
            expected = value_and_gradient(plain_risk(PROBLEM, D, seed), Q[seed, run])
            np.testing.assert_allclose(value[seed, run], expected[0], **ROUNDING)
            np.testing.assert_allclose(gradient[seed, run], expected[1], **ROUNDING)


@pytest.mark.parametrize("start", ["semantic", "positional"])
def test_agrees_with_scipy_minimiser(start):
    e = train(start=start, scales=(0.25,), tolerance=1e-9)
    assert e.converged.all()
    for i, seed in enumerate(e.seeds):
        risk = plain_risk(PROBLEM, D, seed)
        Q0 = e.Q[i] + 0.01 * np.random.default_rng(0).standard_normal(D)  # nearby, since other minima exist
        found = minimize(
            lambda Q, r=risk: value_and_gradient(r, Q),
            Q0,
            jac=True,
            hess=lambda Q, r=risk: torch.autograd.functional.hessian(r, torch.as_tensor(Q)).numpy(),
            method="trust-exact",  # ends at the rounding of the gradient, quasi-Newton methods before
            options={"gtol": 1e-11},
        )
        assert found.success
        np.testing.assert_allclose(e.train_loss[i], found.fun / D, rtol=1e-10, atol=0)
        # atol: the tolerance on the gradient bounds |dQ| by 1e-9 sqrt(d) times lam over the curvature
        np.testing.assert_allclose(e.Q[i], found.x, rtol=0, atol=1e-8)


def test_identity_reported_loss_and_gradient_are_those_at_Q():
    e = train(start="positional")
    for i, seed in enumerate(e.seeds):
        value, gradient = value_and_gradient(plain_risk(PROBLEM, D, seed), e.Q[i])
        norm = np.linalg.norm(gradient) / (PROBLEM.lam * D**0.5)
        np.testing.assert_allclose(e.train_loss[i], value / D, **ROUNDING)
        # the gradient is a small difference of terms of order 1 (in these units), each rounded at 1e-16
        np.testing.assert_allclose(e.gradient_norm[i], norm, rtol=1e-6, atol=1e-12)
        assert norm <= e.settings.tolerance


def test_agrees_with_test_error_through_outputs():
    e = train(n_test=300)
    for i, seed in enumerate(e.seeds):
        x, T = draw_sample(PROBLEM, e.Q_star[i], n=300, seed=seed, stream="test")
        t = x + np.array([[1.0], [-1.0]]) / D**0.5
        h = t @ e.Q[i] / D**0.5
        weights = np.exp(h[:, :, None] * h[:, None, :])
        S = weights / weights.sum(2, keepdims=True)
        error = ((T @ x - S @ t) ** 2).sum((1, 2)) / (2 * D)
        np.testing.assert_allclose(e.test_error[i], error.mean(), **ROUNDING)
        np.testing.assert_allclose(e.test_error_se[i], error.std(ddof=1) / np.sqrt(300), **ROUNDING)


def test_closed_form_heavy_penalty_gives_uniform_attention():
    problem = PositionalSemantic(alpha=1.5, omega=0.3, lam=1000)
    e = train(problem, tolerance=1e-10)
    for i, seed in enumerate(e.seeds):
        x, T = draw_sample(problem, e.Q_star[i], n=60, seed=seed)
        outputs_differ = T @ x - x.mean(axis=1, keepdims=True)  # S = 1/2: the positions cancel
        np.testing.assert_allclose(e.train_loss[i], (outputs_differ**2).sum() / (2 * D) / D, **ROUNDING)
        np.testing.assert_allclose(e.Q[i], 0, atol=1e-9)  # the tolerance times sqrt(d)


def test_identity_overlaps_and_signs():
    for start in ("semantic", "positional", "random"):
        e = train(start=start, seeds=range(6))
        np.testing.assert_allclose(e.q, 0.25 * (e.Q**2).mean(1), **ROUNDING)
        np.testing.assert_allclose(e.m, abs(e.Q.mean(1)), **ROUNDING)
        np.testing.assert_allclose(e.theta, 0.25 * abs((e.Q * e.Q_star).mean(1)), **ROUNDING)
        larger = np.where(e.m > 4 * e.theta, e.Q.mean(1), (e.Q * e.Q_star).mean(1))
        assert (larger > 0).all()


def test_identity_starts_share_their_data():
    # the heavy penalty leaves one minimum: a difference could only come from the data
    problem = PositionalSemantic(alpha=1.5, omega=0.3, lam=1000)
    semantic, positional = (train(problem, start=s, tolerance=1e-10) for s in ("semantic", "positional"))
    np.testing.assert_array_equal(semantic.Q_star, positional.Q_star)
    np.testing.assert_allclose(semantic.train_loss, positional.train_loss, **ROUNDING)
    np.testing.assert_allclose(semantic.test_error, positional.test_error, **ROUNDING)
    assert len(set(semantic.train_loss)) == 3


def test_identity_lowest_of_the_scales_is_kept_and_trapped_runs_counted():
    scales = (0.25, 1.0, 4.0)
    e = train(start="positional", scales=scales, seeds=range(6))
    alone = np.array([train(start="positional", scales=(c,), seeds=range(6)).train_loss for c in scales]).T
    # rtol: a gradient within the tolerance leaves losses within 1e-9 of their minimum
    np.testing.assert_allclose(e.start_losses, alone, rtol=1e-8, atol=0)
    np.testing.assert_array_equal(e.train_loss, e.start_losses.min(1))
    np.testing.assert_array_equal(e.scale, np.array(scales)[e.start_losses.argmin(1)])
    np.testing.assert_array_equal(e.n_trapped, (alone / alone.min(1, keepdims=True) > 1 + 1e-6).sum(1))
    assert e.n_trapped.max() > 0  # these data do have traps


def test_identity_seeds_in_a_batch_are_seeds_one_by_one(monkeypatch):
    alone = train(seeds=range(5))
    monkeypatch.setattr(erm, "batches", lambda seeds, *_: [seeds[:3], seeds[3:]])
    together = train(seeds=range(5))
    np.testing.assert_array_equal(alone.seeds, together.seeds)
    np.testing.assert_array_equal(alone.Q_star, together.Q_star)
    # rtol and atol: products are rounded differently in a batch, which is amplified along the path
    for name in ("train_loss", "test_error", "q", "m", "theta"):
        np.testing.assert_allclose(getattr(together, name), getattr(alone, name), rtol=1e-6, atol=1e-9)


def test_agrees_with_float32():
    double, single = train(), train(dtype="float32", tolerance=1e-3)
    assert single.converged.all()
    # float32 carries 7 digits; a gradient of 1e-3 leaves overlaps 1e-3 of their scale away
    np.testing.assert_allclose(single.train_loss, double.train_loss, rtol=1e-4, atol=0)
    np.testing.assert_allclose(single.theta, double.theta, rtol=1e-2, atol=1e-3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_agrees_with_gpu():
    cpu, gpu = train(start="positional"), train(start="positional", device="cuda")
    np.testing.assert_array_equal(gpu.Q_star, cpu.Q_star)
    # rtol and atol: two runs that end within the tolerance of one minimum
    for name in ("train_loss", "test_error", "q", "m", "theta"):
        np.testing.assert_allclose(getattr(gpu, name), getattr(cpu, name), rtol=1e-4, atol=1e-6)


def test_identity_a_run_cut_short_is_reported():
    e = train(max_iter=2)
    assert not e.converged.any()
    assert (e.n_iter == 2).all()
    assert (e.gradient_norm > e.settings.tolerance).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d": 1}, "d = 1: must be an integer >= 2"),
        ({"d": 10.0}, r"d = 10\.0: must be an integer >= 2"),
        ({"problem": PositionalSemantic(alpha=0.01, omega=0)}, r"alpha = 0\.01: must be large enough"),
        ({"start": "semantik"}, "start = 'semantik': must be one of"),
        ({"start": ["semantic"]}, r"start = \['semantic'\]: must be one of"),
        ({"scales": ()}, r"scales = \(\): must be a tuple"),
        ({"scales": (0.5, -1)}, r"scales = \(0\.5, -1\): must be a tuple of finite numbers > 0"),
        ({"scales": 0.5}, r"scales = 0\.5: must be a tuple"),
        ({"seeds": ()}, r"seeds = \[\]: must be distinct integers >= 0"),
        ({"seeds": (1, 1)}, r"seeds = \[1, 1\]: must be distinct"),
        ({"seeds": (0, -1)}, "seeds = .*: must be distinct integers >= 0"),
        ({"seeds": 8}, "seeds = 8: must be"),
        ({"n_test": 1}, "n_test = 1: must be an integer >= 2"),
        ({"tolerance": 0}, "tolerance = 0: must be a finite number > 0"),
        ({"tolerance": "small"}, "tolerance = 'small': must be a finite number > 0"),
        ({"max_iter": 0}, "max_iter = 0: must be an integer >= 1"),
        ({"device": "abacus"}, "device = 'abacus': must be one of"),
        ({"device": "cuda:99"}, "device = 'cuda:99': must be one of"),
        ({"dtype": "float16"}, "dtype = 'float16': must be one of"),
    ],
)
def test_rejects(changes, message):
    with pytest.raises(ValueError, match=message):
        train(**changes)
