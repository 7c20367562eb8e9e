"""The general attention layer at small d, against plain autograd through the outputs and the two-token layer."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from attn_lib.problems import GeneralAttention, PositionalSemantic
from attn_lib.simulation import erm, general
from attn_lib.simulation.general_risk import GeneralRisk, PositionalEncoding, draw_tokens, token_deviations
from attn_lib.simulation.lbfgs import minimise
from attn_lib.simulation.sampling import draw_sample, draw_target, generator

A3 = ((0.5, 0.3, 0.2), (0.1, 0.6, 0.3), (0.3, 0.3, 0.4))
PROBLEM = GeneralAttention(
    alpha=2.0,
    omega=0.3,
    A=A3,
    rank=2,
    teacher_rank=2,
    spectrum_weights=(0.3, 0.7),
    spectrum_values=((0.1, 0.3), (0.25, 0.25), (0.5, 0.2)),
)
D = 40
ROUNDING = {"rtol": 1e-10, "atol": 1e-12}  # the same quantity computed twice in double precision


def train(problem=PROBLEM, **changes):
    return general.train_general(problem, **({"d": D, "seeds": range(2), "device": "cpu"} | changes))


def data(problem, d, seed, n):
    Q_star = generator(seed, "target").standard_normal((d, problem.teacher_rank))
    return draw_tokens(problem, Q_star, n=n, seed=seed)


def risk_of(problem, d, seed, n, rank=None):
    p = PositionalEncoding(problem, d).vectors
    samples = [data(problem, d, seed, n)]
    return GeneralRisk(samples, p, rank=rank or problem.rank, lam=problem.lam, device="cpu", dtype=torch.float64)


def plain_risk(problem, d, seed, n):
    """The risk through the (n, L, d) outputs, as a function of Q (d, r) for autograd."""
    x, T = (torch.as_tensor(v) for v in data(problem, d, seed, n))
    t = x + torch.as_tensor(PositionalEncoding(problem, d).vectors)

    def risk(Q):
        h = t @ Q / d**0.5
        S = torch.softmax(h @ h.mT, dim=2)
        return ((T @ x - S @ t) ** 2).sum() / (2 * d) + problem.lam / 2 * (Q**2).sum()

    return risk


def random_Q(*shape):
    return 2 * torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_agrees_with_autograd_through_outputs():
    risk, plain = risk_of(PROBLEM, D, 0, 60), plain_risk(PROBLEM, D, 0, 60)
    Q = random_Q(3, D * 2)
    (loss,), g = risk.loss(risk.fields(Q[None]))
    gradient = risk.adjoint(g)[0] + risk.lam * Q
    for run in range(3):
        one = Q[run].reshape(D, 2).clone().requires_grad_()
        value = plain(one)
        (expected,) = torch.autograd.grad(value, one)
        np.testing.assert_allclose(loss[run] + risk.lam / 2 * (Q[run] ** 2).sum(), value.item(), **ROUNDING)
        np.testing.assert_allclose(gradient[run], expected.ravel(), **ROUNDING)


def test_identity_rotations_and_a_column_of_zeros_change_nothing():
    risk, rank_one = risk_of(PROBLEM, D, 0, 60), risk_of(PROBLEM, D, 0, 60, rank=1)
    Q = random_Q(D, 2)
    rotation = torch.linalg.qr(random_Q(2, 2))[0]
    values = [risk.loss(risk.fields(q.reshape(1, 1, -1)))[0].item() for q in (Q, Q @ rotation)]
    np.testing.assert_allclose(values[1], values[0], **ROUNDING)
    padded = torch.stack([Q[:, 0], torch.zeros(D, dtype=torch.float64)], dim=1)
    loss, g = risk.loss(risk.fields(padded.reshape(1, 1, -1)))
    expected, g_one = rank_one.loss(rank_one.fields(Q[:, 0][None, None]))
    gradient = risk.adjoint(g).reshape(D, 2)
    np.testing.assert_allclose(loss, expected, **ROUNDING)
    np.testing.assert_allclose(gradient[:, 0], rank_one.adjoint(g_one)[0, 0], **ROUNDING)
    assert (gradient[:, 1] == 0).all()


@pytest.mark.parametrize("start", ["semantic", "positional", "random"])
def test_agrees_with_two_token_training(start):
    two = PositionalSemantic(alpha=1.5, omega=0.3)
    options = {"d": 100, "seeds": range(3), "start": start, "device": "cpu", "tolerance": 1e-7}
    expected = erm.train_positional_semantic(two, **options)
    found = general.train_general(GeneralAttention.of_two_tokens(two), **options)
    np.testing.assert_array_equal(found.Q_star[:, :, 0], expected.Q_star)
    # rtol and atol: both end within the tolerance of one minimum
    close = {"rtol": 1e-5, "atol": 1e-7}
    for name in ("train_loss", "test_error", "test_error_se", "start_losses"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), **close)
    np.testing.assert_allclose(found.q[:, :, 0, 0], np.repeat(expected.q[:, None], 2, 1), **close)
    np.testing.assert_allclose(found.m[:, 0, 0], -found.m[:, 1, 0], rtol=0, atol=1e-14)
    np.testing.assert_allclose(abs(found.m[:, 0, 0]), expected.m, **close)
    np.testing.assert_allclose(abs(found.theta[:, 1, 0, 0]), expected.theta, **close)
    np.testing.assert_allclose(abs(found.Q[:, :, 0]), abs(expected.Q), rtol=1e-4, atol=1e-5)


def test_identity_two_isotropic_tokens_have_the_data_of_the_two_token_layer():
    two = PositionalSemantic(alpha=1.5, omega=0.3, sigma=0.7, A=((0.3, 0.7), (0.8, 0.2)))
    Q_star = draw_target(D, 5)
    expected = draw_sample(two, Q_star, n=7, seed=5, stream="test")
    found = draw_tokens(GeneralAttention.of_two_tokens(two), Q_star[:, None], n=7, seed=5, stream="test")
    np.testing.assert_allclose(found.x, expected.x, **ROUNDING)
    np.testing.assert_allclose(found.T, expected.T, **ROUNDING)


def test_identity_risk_at_the_minimum_overlaps_and_axes():
    e = train(start="mixed", tolerance=1e-8)
    assert e.converged.all()
    covariances = np.repeat(PROBLEM.spectrum_values, (12, 28), axis=1)
    p = PositionalEncoding(PROBLEM, D).vectors
    for i, seed in enumerate(e.seeds):
        Q, Q_star = e.Q[i], e.Q_star[i]
        plain, at = plain_risk(PROBLEM, D, seed, round(PROBLEM.alpha * D)), torch.as_tensor(Q).requires_grad_()
        value = plain(at)
        (gradient,) = torch.autograd.grad(value, at)
        np.testing.assert_allclose(e.train_loss[i], value.item() / D, **ROUNDING)
        assert gradient.norm() <= 1.01e-8 * PROBLEM.lam * D**0.5  # 1 %: rounding of a small difference
        for token in range(3):
            np.testing.assert_allclose(e.q[i, token], Q.T @ np.diag(covariances[token]) @ Q / D, **ROUNDING)
            np.testing.assert_allclose(e.theta[i, token], Q.T @ np.diag(covariances[token]) @ Q_star / D, **ROUNDING)
            np.testing.assert_allclose(e.m[i, token], Q.T @ p[token] / D**0.5, **ROUNDING)
        lengths = Q.T @ Q
        np.testing.assert_allclose(lengths[0, 1], 0, atol=1e-10)
        assert lengths[0, 0] > lengths[1, 1]


def test_agrees_with_test_error_through_outputs():
    e = train(n_test=300)
    p = PositionalEncoding(PROBLEM, D).vectors
    for i, seed in enumerate(e.seeds):
        x, T = draw_tokens(PROBLEM, e.Q_star[i], n=300, seed=seed, stream="test")
        h = (x + p) @ e.Q[i] / D**0.5
        weights = np.exp(h @ h.swapaxes(1, 2))
        error = ((T @ x - weights / weights.sum(2, keepdims=True) @ (x + p)) ** 2).sum((1, 2)) / (2 * D)
        np.testing.assert_allclose(e.test_error[i], error.mean(), **ROUNDING)
        np.testing.assert_allclose(e.test_error_se[i], error.std(ddof=1) / 300**0.5, **ROUNDING)


def test_closed_form_positions():
    encoding = PositionalEncoding(PROBLEM, D)
    np.testing.assert_allclose(encoding.vectors @ encoding.vectors.T, PROBLEM.positions, **ROUNDING)
    for group, weight in ((slice(0, 12), 0.3), (slice(12, D), 0.7)):
        part = encoding.vectors[:, group]
        np.testing.assert_allclose(part @ part.T, weight * np.array(PROBLEM.positions), **ROUNDING)
    two = PositionalEncoding(GeneralAttention(alpha=1, omega=0, A=((0.6, 0.4), (0.4, 0.6))), D)
    np.testing.assert_allclose(two.vectors, np.outer([1, -1], np.full(D, D**-0.5)), **ROUNDING)


def test_closed_form_covariances():
    x, T = data(PROBLEM, D, 0, 4000)
    variances = token_deviations(PROBLEM, D) ** 2
    np.testing.assert_allclose(variances.mean(1), PROBLEM.token_variances, **ROUNDING)
    # 4 standard errors of a variance estimated from 4000 samples, in 120 components
    np.testing.assert_allclose((x**2).mean(0), variances, rtol=4 * (2 / 4000) ** 0.5, atol=0)
    np.testing.assert_allclose(T.sum(2), 1, **ROUNDING)


def test_identity_starts():
    Q_star, axes, noise = np.full((5, 2), 1.0), np.full((5, 1), 2.0), np.full((5, 3), 3.0)
    for start, first in (("semantic", [1, 1, 0.3]), ("positional", [2, 0.3, 0.3]), ("random", [3, 3, 3])):
        np.testing.assert_allclose(general._start(start, Q_star, axes, noise)[0], first, **ROUNDING)
    np.testing.assert_allclose(general._start("mixed", Q_star, axes, noise)[0], [1, 2, 0.3], **ROUNDING)


def test_identity_lowest_of_the_scales_is_kept():
    scales = (0.1, 1.0, 3.0)
    e = train(start="random", scales=scales)
    alone = np.array([train(start="random", scales=(c,)).train_loss for c in scales]).T
    # rtol: a gradient within the tolerance leaves losses within 1e-9 of their minimum
    np.testing.assert_allclose(e.start_losses, alone, rtol=1e-8, atol=0)
    np.testing.assert_array_equal(e.train_loss, e.start_losses.min(1))
    np.testing.assert_array_equal(e.scale, np.array(scales)[e.start_losses.argmin(1)])


def test_identity_a_second_column_lowers_the_risk():
    problem = replace(PROBLEM, teacher_rank=1)
    for seed in (0, 1):
        one = general.train_general(replace(problem, rank=1), d=D, seeds=[seed], device="cpu")
        risk = risk_of(problem, D, seed, round(problem.alpha * D))
        small = 1e-3 * np.random.default_rng(0).standard_normal(D)
        start = torch.as_tensor(np.stack([one.Q[0, :, 0], small], axis=1)).reshape(1, 1, -1)
        two = minimise(risk, start, tolerance=1e-5 * problem.lam * D**0.5, max_iter=1000)
        assert two.value[0, 0] / D < (1 - 1e-3) * one.train_loss[0]  # the minimum of rank one is a saddle of rank two


def test_identity_a_run_cut_short_is_reported():
    e = train(max_iter=2)
    assert not e.converged.any()
    assert (e.n_iter == 2).all()


TWO = GeneralAttention(alpha=1.5, omega=0.3, A=((0.6, 0.4), (0.4, 0.6)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d": 1}, "d = 1: must be an integer >= 2"),
        ({"d": 3}, "d = 3: must be large enough for every group of spectrum_weights to have >= 2 coordinates"),
        ({"problem": replace(TWO, alpha=0.001)}, r"alpha = 0\.001: must be large enough"),
        ({"start": "semantik"}, "start = 'semantik': must be one of"),
        ({"problem": TWO, "start": "mixed"}, "start = 'mixed': must be another one at rank = 1"),
        (
            {"problem": replace(TWO, positions=((0, 0), (0, 0))), "start": "positional"},
            "start = 'positional': must be another one where all positions are zero",
        ),
        ({"scales": (0.5, -1)}, r"scales = \(0\.5, -1\): must be a tuple of finite numbers > 0"),
        ({"seeds": (1, 1)}, r"seeds = \[1, 1\]: must be distinct"),
        ({"n_test": 1}, "n_test = 1: must be an integer >= 2"),
        ({"device": "abacus"}, "device = 'abacus': must be one of"),
        ({"dtype": "float16"}, "dtype = 'float16': must be one of"),
    ],
)
def test_rejects(changes, message):
    with pytest.raises(ValueError, match=message):
        train(**changes)


def test_rejects_no_samples():
    with pytest.raises(ValueError, match="n = 0: must be an integer >= 1"):
        data(PROBLEM, D, 0, 0)
