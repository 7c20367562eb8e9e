"""Gradient descent and Adam of Part I at small d, against torch's optimisers through the outputs of the layer."""

import numpy as np
import pytest
import torch

from attn_lib.problems import PositionalSemantic
from attn_lib.simulation import dynamics
from attn_lib.simulation.descent import largest_curvature
from attn_lib.simulation.dynamics import Start, train_by_descent
from attn_lib.simulation.erm import train_positional_semantic
from attn_lib.simulation.risk import AttentionRisk
from attn_lib.simulation.sampling import draw_sample, draw_target

PROBLEM = PositionalSemantic(alpha=1.5, omega=0.3, A=((0.3, 0.7), (0.8, 0.2)))
D = 30
STARTS = (Start(semantic=1.0), Start(positional=D**-0.5), Start(random=0.1), Start(random=0.1))
ROUNDING = {"rtol": 1e-9, "atol": 1e-12}  # the same steps in double precision, with errors amplified along them


def train(problem=PROBLEM, **changes):
    settings = {"d": D, "seeds": range(3), "starts": STARTS, "n_steps": 60, "learning_rate": 0.15, "device": "cpu"}
    return train_by_descent(problem, **(settings | changes))


def data_loss(problem, d, seed):
    """Loss without the penalty, through the (n, 2, d) outputs."""
    sample = draw_sample(problem, draw_target(d, seed), n=round(problem.alpha * d), seed=seed)
    x, T = torch.as_tensor(sample.x), torch.as_tensor(sample.T)
    t = x + torch.tensor([[1.0], [-1.0]], dtype=torch.float64) / d**0.5

    def loss(Q):
        h = t @ Q / d**0.5
        S = torch.softmax(h[:, :, None] * h[:, None, :], dim=2)
        return ((T @ x - S @ t) ** 2).sum() / (2 * d)

    return loss


@pytest.mark.parametrize(("optimiser", "rate"), [("gd", 0.15), ("adam", 0.01)])
def test_agrees_with_torch_optimisers_through_outputs(optimiser, rate):
    start, end = train(n_steps=1, learning_rate=1e-300), train(optimiser=optimiser, learning_rate=rate)
    for i, seed in enumerate(end.seeds):
        loss = data_loss(PROBLEM, D, seed)
        for j in range(len(STARTS)):
            Q = torch.tensor(start.Q[i, j], requires_grad=True)
            method = {"gd": torch.optim.SGD, "adam": torch.optim.Adam}[optimiser]
            plain = method([Q], lr=rate, weight_decay=PROBLEM.lam)
            for _ in range(60):
                plain.zero_grad()
                loss(Q).backward()
                plain.step()
            found = Q.detach().numpy()
            same_sign = np.sign(found @ end.Q[i, j])
            np.testing.assert_allclose(same_sign * found, end.Q[i, j], **ROUNDING)
            value = loss(Q).item() + PROBLEM.lam / 2 * found @ found
            np.testing.assert_allclose(end.train_loss[i, j], value / D, **ROUNDING)


def test_agrees_with_lbfgs_minimum():
    run = train(starts=Start(semantic=1.0), learning_rate=3.0, n_steps=10_000)
    minimum = train_positional_semantic(PROBLEM, d=D, seeds=range(3), scales=(1.0,), tolerance=1e-9, device="cpu")
    assert (run.gradient_norm < 1e-5).all()
    # a gradient of 1e-5, in these units, leaves losses within 1e-9 and overlaps within 1e-5 of a minimum
    np.testing.assert_allclose(run.train_loss[:, 0], minimum.train_loss, rtol=1e-8, atol=0)
    for name in ("m", "theta"):
        np.testing.assert_allclose(abs(getattr(run, name)[:, 0]), getattr(minimum, name), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(run.test_error[:, 0], minimum.test_error, rtol=1e-4, atol=0)


def test_agrees_with_dense_hessian():
    samples = [draw_sample(PROBLEM, draw_target(D, seed), n=45, seed=seed) for seed in (0, 1)]
    risk = AttentionRisk(samples, PROBLEM.lam, device="cpu", dtype=torch.float64)
    Q = torch.randn(2, 3, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    measured = largest_curvature(risk, Q, n_iter=2000)
    for i in (0, 1):
        loss = data_loss(PROBLEM, D, i)
        for run in range(3):
            hessian = torch.autograd.functional.hessian(loss, Q[i, run]) + PROBLEM.lam * torch.eye(D)
            largest = torch.linalg.eigvalsh(hessian).abs().max()
            # power iteration approaches from below, here with eigenvalue ratios to the power 4000
            np.testing.assert_allclose(measured[i, run], largest, rtol=1e-6, atol=0)


def test_identity_path_and_final_values():
    run = train(record_every=25)
    np.testing.assert_array_equal(run.steps, [0, 25, 50, 60])
    assert run.path_m.shape == (3, 4, 4)
    stars = run.Q_star[:, None]
    for path, final, value in (
        (run.path_m, run.m, run.Q.mean(-1)),
        (run.path_theta, run.theta, 0.25 * (run.Q * stars).mean(-1)),
        (run.path_q, run.q, 0.25 * (run.Q**2).mean(-1)),
        (run.path_loss, run.train_loss, run.path_loss[..., -1]),
    ):
        np.testing.assert_array_equal(path[..., -1], final)
        np.testing.assert_allclose(final, value, **ROUNDING)
    assert (np.maximum(run.m, run.theta / 0.25) > 0).all()  # the sign of Q
    assert (np.diff(run.path_loss) < 0).all()  # gradient descent at a small step


def test_identity_starts_are_what_they_name():
    mixed = Start(positional=0.2, semantic=0.5, random=0.3)
    run = train(d=400, n_steps=1, learning_rate=1e-300, starts=(*STARTS, mixed))
    Q = run.Q
    np.testing.assert_allclose(Q[:, 0] / run.Q_star, np.ones((3, 400)) * np.sign(Q[:, 0] / run.Q_star)[:, :1])
    np.testing.assert_allclose(abs(Q[:, 1]), D**-0.5)
    assert (abs((Q[:, 2] * Q[:, 3]).mean(-1)) < 4 * 0.01 / 400**0.5).all()  # two independent draws
    # the overlaps named, within 4 standard deviations of what chance adds: 0.3 or 0.5 per sqrt(d)
    np.testing.assert_allclose(run.m[:, 4], 0.2, rtol=0, atol=4 * np.hypot(0.3, 0.5) / 400**0.5)
    np.testing.assert_allclose(run.theta[:, 4] / 0.25, 0.5, rtol=0, atol=4 * (0.2 + 0.3 + 0.5 * 2**0.5) / 400**0.5)


def test_identity_seeds_in_a_batch_are_seeds_one_by_one(monkeypatch):
    together = train()
    monkeypatch.setattr(dynamics, "CACHED", 1)
    alone = train()
    for name in ("train_loss", "test_error", "m", "theta", "q", "path_loss"):
        np.testing.assert_allclose(getattr(together, name), getattr(alone, name), **ROUNDING)


def test_identity_a_diverged_run_is_frozen_and_named():
    settings = {"learning_rate": 2.0, "optimiser": "adam", "n_steps": 200}
    run = train(starts=(Start(random=6.0), Start(semantic=1.0)), record_every=1, **settings)
    np.testing.assert_array_equal(run.diverged, [[False, True]] * 3)
    going_on, frozen = run.path_loss[:, 0], run.path_loss[:, 1]
    assert np.isfinite(frozen).all()
    np.testing.assert_array_equal(frozen[:, 100:], np.repeat(frozen[:, -1:], 101, axis=1))
    assert (frozen.max(1) <= 2 * frozen[:, 0]).all()
    alone = train(starts=Start(random=6.0), record_every=1, **settings)
    np.testing.assert_allclose(going_on, alone.path_loss[:, 0], **ROUNDING)


def test_rejects_a_learning_rate_at_which_every_run_diverges():
    with pytest.raises(ValueError, match=r"learning_rate = 500\.0: every run diverged; must be below \d.*curvature"):
        train(learning_rate=500.0)
    with pytest.raises(ValueError, match=r"learning_rate = 50\.0: every run diverged; must be below 1"):
        train(learning_rate=50.0, optimiser="adam")
    with pytest.raises(ValueError, match="every run diverged"):
        train(learning_rate=1e300, dtype="float32")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d": 1}, "d = 1: must be an integer >= 2"),
        ({"problem": PositionalSemantic(alpha=0.01, omega=0)}, r"alpha = 0\.01: must be large enough"),
        ({"seeds": ()}, r"seeds = \[\]: must be distinct integers >= 0"),
        ({"seeds": 3}, "seeds = 3: must be distinct"),
        ({"starts": ()}, r"starts = \(\): must be one or more Start"),
        ({"starts": "semantic"}, "starts = .*: must be one or more Start"),
        ({"starts": Start()}, "starts = .*: must be .* not all zero"),
        ({"starts": Start(random=np.inf)}, "starts = .*: must be .* finite"),
        ({"n_steps": 0}, "n_steps = 0: must be an integer >= 1"),
        ({"record_every": 0.5}, r"record_every = 0\.5: must be an integer >= 1"),
        ({"learning_rate": 0}, "learning_rate = 0: must be a finite number > 0"),
        ({"learning_rate": np.nan}, "learning_rate = nan: must be a finite number > 0"),
        ({"optimiser": "sgd"}, r"optimiser = 'sgd': must be one of \('gd', 'adam'\)"),
        ({"n_test": 1}, "n_test = 1: must be an integer >= 2"),
        ({"dtype": "float16"}, "dtype = 'float16': must be one of"),
        ({"device": "tpu"}, "device = 'tpu': must be one of"),
    ],
)
def test_rejects_bad_arguments(changes, message):
    with pytest.raises(ValueError, match=message):
        train(**changes)
