"""One loss with its gradient, one proximal operator, one free convolution: attn_lib and the plain way."""

import numpy as np
import plain_theory
import pytest
import torch
from plain_training import loss_and_gradient, positional_semantic_risk, single_head_risk
from scipy.special import expit

from attn_lib.problems import MarchenkoPastur, PositionalSemantic, PowerLaw, SingleHead
from attn_lib.proximal import prox
from attn_lib.simulation.lbfgs import value_and_gradient
from attn_lib.simulation.risk import AttentionRisk
from attn_lib.simulation.sampling import draw_sample, draw_target
from attn_lib.simulation.sensing import TokenMeasurement
from attn_lib.simulation.single_head_risk import FactorisedRisk, attention_loss
from attn_lib.simulation.single_head_sampling import draw_matrix, draw_start, labelled_tokens
from attn_lib.spectra import FreeConvolution
from attn_lib.theory.attention_prox import loss_terms, lowest

SAMPLES = 20_000  # of Part II: the tokens exceed the caches from d = 200 on


def single_head_data(d, dtype):
    """A problem of Part II, tokens, labels and weights."""
    problem = SingleHead(alpha=SAMPLES / d**2, lam=0.01, Delta=0.5, kappa=1.0, target=MarchenkoPastur(kappa0=0.5))
    x, Y = labelled_tokens(problem, draw_matrix(problem, d, 0), n=SAMPLES, seed=0, dtype=getattr(torch, dtype))
    return problem, x, Y, x.new_tensor(draw_start(d, d, 0, 0))


@pytest.mark.benchmark(group="loss and gradient")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("d", [100, 200, 400])
def bench_single_head(timed, d, dtype):
    """The products with the data and with their transpose take 2 n T d^2 operations each."""
    problem, x, Y, W = single_head_data(d, dtype)
    risk = FactorisedRisk(
        TokenMeasurement(x[None]), attention_loss(problem, "seq2lab", x[None], Y[None]), problem.lam, d=d, p=d
    )
    case = f"Part II, d = {d}, {dtype}"
    timed(case, "attn_lib", value_and_gradient, risk, W.flatten()[None], flop=2 * 2 * SAMPLES * 2 * d**2)


@pytest.mark.benchmark(group="loss and gradient")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("d", [100, 200, 400])
def bench_single_head_autograd(timed, d, dtype):
    problem, x, Y, W = single_head_data(d, dtype)
    timed(f"Part II, d = {d}, {dtype}", "autograd", loss_and_gradient, single_head_risk, problem, x, Y, W, rounds=3)


@pytest.mark.benchmark(group="loss and gradient")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("alpha", [1.5, 6.0])
def bench_positional_semantic(timed, alpha, dtype, d=1000):
    """Tokens are read twice, by the product with Q and by its transpose."""
    problem, Q_star = PositionalSemantic(alpha=alpha, omega=0.3), draw_target(d, seed=0)
    sample = draw_sample(problem, Q_star, n=round(alpha * d), seed=0)
    risk = AttentionRisk([sample], problem.lam, device=torch.device("cpu"), dtype=getattr(torch, dtype))
    Q = risk.tokens.new_tensor(Q_star)[None, None]
    known = {"bytes": 2 * risk.tokens.nbytes}
    timed(f"Part I, d = 1000, n = {round(alpha * d)}, {dtype}", "attn_lib", value_and_gradient, risk, Q, **known)


@pytest.mark.benchmark(group="loss and gradient")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("alpha", [1.5, 6.0])
def bench_positional_semantic_autograd(timed, alpha, dtype, d=1000):
    problem, Q_star = PositionalSemantic(alpha=alpha, omega=0.3), draw_target(d, seed=0)
    sample = draw_sample(problem, Q_star, n=round(alpha * d), seed=0)
    x, T, Q = (torch.as_tensor(a, dtype=getattr(torch, dtype)) for a in (*sample, Q_star))
    case = f"Part I, d = 1000, n = {round(alpha * d)}, {dtype}"
    timed(case, "autograd", loss_and_gradient, positional_semantic_risk, problem, x, T, Q, rounds=3)


def fields(points):
    """Cavity fields and targets of Part I, with a response at which the operator jumps."""
    w_u, w_v, *x = np.random.default_rng(0).standard_normal((4, points))
    return w_u, w_v, *(expit(x)), 10.0, 0.5


def rows(points):
    """The same of Part II."""
    omega, x = np.random.default_rng(0).standard_normal((2, 2, points))
    return 2 * omega, expit(2 * x), 1.0, 20.0


@pytest.mark.benchmark(group="proximal operator")
def bench_prox(timed, points=20_000):
    timed("Part I", "attn_lib", prox, *fields(points), points=points)


@pytest.mark.benchmark(group="proximal operator")
def bench_prox_scipy(timed, benchmark, points=200):
    arguments = fields(points)
    values = timed("Part I", "scipy.optimize", plain_theory.prox_point_by_point, *arguments, rounds=1, points=points)
    benchmark.extra_info["higher"] = float((values > prox(*arguments)[2] + 1e-8).mean())


@pytest.mark.benchmark(group="proximal operator")
def bench_rows_prox(timed, points=20_000):
    timed("Part II", "attn_lib", lowest, *rows(points), points=points)


@pytest.mark.benchmark(group="proximal operator")
def bench_rows_prox_scipy(timed, benchmark, points=200):
    omega, target, beta, Sigma = rows(points)
    plain = plain_theory.rows_prox_point_by_point
    values = timed("Part II", "scipy.optimize", plain, omega, target, beta, Sigma, rounds=1, points=points)
    z = lowest(omega, target, beta, Sigma)
    u, v = z - omega
    ours = Sigma * loss_terms(z, target, beta)[0].sum(0) + (3 * (u**2 + v**2) - 2 * u * v) / 16
    benchmark.extra_info["higher"] = float((values > ours + 1e-8).mean())


LAWS = {
    "Marchenko-Pastur": MarchenkoPastur(kappa0=0.5),
    "power law, 500 eigenvalues": PowerLaw(gamma=1.0, d=500),
}


@pytest.mark.benchmark(group="free convolution")
@pytest.mark.parametrize("delta", [0.3, 1.0])
@pytest.mark.parametrize("law", LAWS)
def bench_tail(timed, law, delta):
    timed(f"{law}, delta = {delta}", "attn_lib", lambda: FreeConvolution(LAWS[law], delta).tail(0.5), rounds=20)


@pytest.mark.benchmark(group="free convolution")
@pytest.mark.parametrize("delta", [0.3, 1.0])
@pytest.mark.parametrize("law", LAWS)
def bench_tail_on_a_grid(timed, benchmark, law, delta):
    plain = timed(f"{law}, delta = {delta}", "grid", plain_theory.tail, LAWS[law], delta, 0.5, rounds=1)
    exact = FreeConvolution(LAWS[law], delta).tail(0.5)
    benchmark.extra_info["error"] = float(np.abs(np.divide(plain, exact) - 1).max())
