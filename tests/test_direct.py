"""Training S directly, cross-validation, and the best weight decay: written out, by least squares, and by theory.

Tolerance of theory against simulation: 4 standard errors of the mean over data sets, plus 4/d relative, as everywhere
in Part II: the theory is the limit d -> infinity with corrections of order 1/d.
"""

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from scipy.optimize import minimize, minimize_scalar

from attn_lib.comparison import estimate
from attn_lib.fixed_point import ConvergenceError
from attn_lib.problems import DiagonalModel, FiniteRank, MarchenkoPastur, PowerLaw, SingleHead
from attn_lib.simulation.direct import cross_validation, train_direct
from attn_lib.simulation.erm import train_single_head
from attn_lib.simulation.lbfgs import value_and_gradient
from attn_lib.simulation.sensing import TokenMeasurement
from attn_lib.simulation.single_head_risk import DirectRisk, FactorisedRisk, attention_loss
from attn_lib.simulation.single_head_sampling import draw_matrix, labelled_tokens
from attn_lib.spectra import FreeConvolution
from attn_lib.theory import single_head
from attn_lib.theory.error_decomposition import weights
from attn_lib.theory.thresholds import alpha_recovery
from attn_lib.theory.tuning import many_samples_ratio, optimal_lam

PROBLEM = SingleHead(alpha=0.5, lam=0.05, Delta=0.5, kappa=1.0, target=MarchenkoPastur(kappa0=0.5))
ROUNDING = {"rtol": 1e-10, "atol": 1e-12}  # double precision; numbers are of order 1 at most
SIZES = {24: range(12), 40: range(6)}


def plain_losses(x, Y, S, beta):
    """Loss of every sample, from the definition."""
    eye = torch.eye(x.shape[1], dtype=x.dtype)
    z = torch.stack([(tokens @ S @ tokens.T - eye * torch.trace(S)) / len(S) ** 0.5 for tokens in x])
    return ((Y - torch.softmax(beta * z, dim=2)) ** 2).sum((1, 2))


def data_of(problem, d, seed):
    return labelled_tokens(problem, draw_matrix(problem, d, seed), n=round(problem.alpha * d**2), seed=seed)


def risks_of(problem, d, seed=0):
    x, Y = (v[None] for v in data_of(problem, d, seed))
    parts = TokenMeasurement(x), attention_loss(problem, "seq2lab", x, Y), problem.lam
    return DirectRisk(*parts, d=d), FactorisedRisk(*parts, d=d, p=round(problem.kappa * d))


def symmetric(d, seed=0):
    G = torch.as_tensor(np.random.default_rng([5, seed]).standard_normal((d, d)))
    return (G + G.T) / (2 * d) ** 0.5


def minimum_by_scipy(x, Y, start, total):
    """Minimiser of a scalar function of a matrix by scipy's L-BFGS and torch's gradient."""

    def value(flat):
        M = torch.as_tensor(flat.reshape(start.shape)).requires_grad_()
        F = total(x, Y, M)
        F.backward()
        return F.item(), M.grad.numpy().ravel()

    return torch.as_tensor(
        minimize(value, start.ravel(), jac=True, method="L-BFGS-B", tol=1e-14).x.reshape(start.shape)
    )


@pytest.mark.parametrize("n_tokens", [2, 3])
def test_agrees_with_autograd(n_tokens):
    d, problem = 8, replace(PROBLEM, n_tokens=n_tokens, beta=1.7, beta0=0.6, lam=0.3)
    x, Y = data_of(problem, d, 0)
    S = symmetric(d).requires_grad_()
    expected = plain_losses(x, Y, S, 1.7).sum() + 0.3 * d * (S**2).sum()
    (gradient,) = torch.autograd.grad(expected, S)
    value, found = value_and_gradient(risks_of(problem, d)[0], S.detach().reshape(1, -1))
    torch.testing.assert_close(value[0], expected.detach(), **ROUNDING)
    # of the gradient in all entries, the part that moves symmetric matrices
    torch.testing.assert_close(found.reshape(d, d), (gradient + gradient.T) / 2, **ROUNDING)


def test_identity_fields_are_linear():
    risk, _ = risks_of(PROBLEM, 8)
    Q, D = (symmetric(8, k).reshape(1, -1) for k in (1, 2))
    (h1,) = risk.steps(Q, D)
    torch.testing.assert_close(risk.fields(Q - 0.7 * D), risk.fields(Q) - 0.7 * h1, **ROUNDING)


def test_agrees_with_the_factorised_risk_at_the_same_matrix():
    d, p, problem = 10, 6, replace(PROBLEM, kappa=0.6)
    direct, factorised = risks_of(problem, d)
    W = torch.as_tensor(np.random.default_rng(4).standard_normal((1, d * p)))
    S = factorised.matrix(W)
    (value_S, in_S), (value_W, in_W) = (value_and_gradient(*pair) for pair in ((direct, S.flatten(1)), (factorised, W)))
    ridge, decay = problem.lam * d * (S**2).sum(), problem.lam * (W**2).sum()
    torch.testing.assert_close(value_S - ridge, value_W - decay, **ROUNDING)
    chain = 2 * (in_S.reshape(d, d) - 2 * problem.lam * d * S[0]) @ W.reshape(d, p) / (p * d) ** 0.5
    torch.testing.assert_close(in_W.reshape(d, p) - 2 * problem.lam * W.reshape(d, p), chain, **ROUNDING)


def test_identity_minimum():
    """The numbers reported are those of S, which is symmetric and stationary, and lower than any trained W."""
    d, n_test, problem = 20, 300, replace(PROBLEM, beta=1.5)
    e = train_direct(problem, d=d, seeds=[2, 7], tolerance=1e-7, n_test=n_test)
    assert e.converged.all()
    np.testing.assert_array_equal(e.S, e.S.swapaxes(1, 2))
    S0, S = draw_matrix(problem, d, 7), torch.as_tensor(e.S[1]).requires_grad_()
    x, Y = data_of(problem, d, 7)
    fresh = labelled_tokens(problem, S0, n=n_test, seed=7, stream="test")
    data_term, errors = plain_losses(x, Y, S, 1.5).sum(), plain_losses(*fresh, S.detach(), 1.5).numpy()
    (gradient,) = torch.autograd.grad(data_term + problem.lam * d * (S**2).sum(), S)
    stationary = ((gradient + gradient.T) / 2).norm() / (2 * problem.lam * d**1.5)
    assert stationary.item() == pytest.approx(e.gradient_norm[1], rel=1e-2, abs=1e-12)  # 7 of its digits cancelled
    assert stationary < 1e-7
    q = np.trace(e.S[1] @ e.S[1]) / d
    measured = {
        "train_loss": data_term.item() / d**2,
        "penalty": problem.lam * q,
        "test_error": errors.mean(),
        "test_error_se": errors.std(ddof=1) / n_test**0.5,
        "m": np.trace(e.S[1] @ S0) / d,
        "q": q,
        "eigenvalues": np.linalg.eigvalsh(e.S[1]),
        "S0": S0,
    }
    for name, expected in measured.items():
        np.testing.assert_allclose(getattr(e, name)[1], expected, err_msg=name, **ROUNDING)
    other = train_single_head(problem, d=d, seeds=[2, 7], n_test=n_test, device="cpu")
    np.testing.assert_array_equal(other.S0, e.S0)
    assert (other.train_loss + problem.lam * other.q > e.train_loss + e.penalty).all()


def test_agrees_with_other_starts_and_least_squares():
    """At a ridge of almost zero: the matrix of least norm whose logits are those of the labels, noise included."""
    small = FiniteRank(eigenvalues=[0.5, 0.2, 0.0, 0.0])  # so that no softmax is flat, which would need a lesser ridge
    d, problem = 20, replace(PROBLEM, alpha=0.1, lam=1e-5, Delta=0.05, target=small)
    found = [train_direct(problem, d=d, seeds=[1], **o).S[0] for o in ({}, {"start": 1}, {"scale": 0.01})]
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=0, atol=1e-4)  # the tolerance
    x, Y = (v.numpy() for v in data_of(problem, d, 1))
    i, j = np.triu_indices(d)
    weight = np.where(i == j, 1.0, 2**0.5)  # so that a vector of entries has the norm of its matrix
    rows, sides = [], []
    for tokens, A in zip(x, Y, strict=True):
        for a, b in ((0, 1), (1, 0)):
            sensing = (np.outer(tokens[a], tokens[a]) - np.eye(d) - np.outer(tokens[a], tokens[b])) / d**0.5
            rows.append(((sensing + sensing.T) / 2)[i, j] * weight)
            sides.append(np.log(A[a, a] / A[a, b]))
    entries = np.linalg.lstsq(np.array(rows), np.array(sides), rcond=None)[0] / weight
    S = np.zeros((d, d))
    S[i, j] = S[j, i] = entries
    np.testing.assert_allclose(found[0], S, rtol=0, atol=1e-3)  # tolerance, and ridge over curvature


@pytest.mark.parametrize("direct", [True, False])
def test_agrees_with_cross_validation_written_out(direct):
    d, lam, problem = 8, 0.1, replace(PROBLEM, alpha=1.0, kappa=0.75)
    x, Y = data_of(problem, d, 3)
    found = cross_validation(problem, d=d, seeds=[3], lams=(0.05, lam), direct=direct, folds=2, tolerance=1e-6)
    start = symmetric(d) if direct else torch.as_tensor(np.random.default_rng(1).standard_normal((d, 6)))

    def matrix(M):
        return (M + M.T) / 2 if direct else M @ M.T / (6 * d) ** 0.5

    def total(x, Y, M):
        return plain_losses(x, Y, matrix(M), 1.0).sum() + lam * (d if direct else 1) * (M**2).sum()

    losses = []
    for train, test in ((slice(1, None, 2), slice(0, None, 2)), (slice(0, None, 2), slice(1, None, 2))):
        S = matrix(minimum_by_scipy(x[train], Y[train], start, total))
        losses.append(plain_losses(x[test], Y[test], S, 1.0))
    # both minima are exact to 1e-6 or better, and the error is a smooth function of S
    np.testing.assert_allclose(found[0, 1], torch.cat(losses).mean().item(), rtol=1e-4, atol=0)


@pytest.mark.parametrize("direct", [True, False])
def test_theory_matches_simulation_of_cross_validation(direct):
    """A fold is a fresh sample for a training on the others."""
    d, lams = 24, (0.05, 0.2)
    errors = cross_validation(replace(PROBLEM, alpha=1.0), d=d, seeds=range(4), lams=lams, direct=direct, folds=4)
    for column, lam in zip(errors.T, lams, strict=True):
        solver = single_head.solve_direct if direct else single_head.solve
        theory = solver(replace(PROBLEM, alpha=0.75, lam=lam), accuracy=1e-3).test_error
        e = estimate(column)
        assert abs(e.value - theory) < 4 * e.error + 4 / d * theory


@cache
def trained(alpha, d):
    e = train_direct(replace(PROBLEM, alpha=alpha), d=d, seeds=SIZES[d], n_test=4000)
    assert e.converged.all()
    return e


@pytest.mark.parametrize("d", SIZES)
@pytest.mark.parametrize("alpha", [0.5, 2.0])
def test_theory_matches_simulation(alpha, d):
    s, e = single_head.solve_direct(replace(PROBLEM, alpha=alpha), accuracy=1e-3), trained(alpha, d)
    noisy = FreeConvolution(PROBLEM.target, s.delta)
    pairs = {
        "test_error": (e.test_error, s.test_error),
        "train_loss": (e.train_loss, s.train_loss),
        "penalty": (e.penalty, s.penalty),
        "m": (e.m, s.overlaps.m),
        "q": (e.q, s.overlaps.q),
        # no eigenvalue is cut: the law is eta (S0 + delta Z)
        "negative": ((e.eigenvalues < 0).mean(1), 1 - noisy.tail(0.0).mass),
        "positive part": ((np.maximum(e.eigenvalues, 0) ** 2).mean(1), s.eta**2 * noisy.tail(0.0).J),
    }
    for name, (samples, theory) in pairs.items():
        found = estimate(samples)
        assert abs(found.value - theory) < 4 * found.error + 4 / d * theory, name


def lost(e):
    return estimate([((S - S0) ** 2).sum() / (S0**2).sum() for S, S0 in zip(e.S, e.S0, strict=True)])


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.2])
def test_closed_form_noiseless_and_ridgeless(alpha):
    """A projection keeps of S0 what the samples measure: 1 - (T^2 + T - 2) alpha is lost."""
    problem, law = replace(PROBLEM, alpha=alpha, Delta=0.0), 1 - 4 * alpha
    found = {}
    for lam in (1e-3, 1e-4):
        o = single_head.solve_direct(replace(problem, lam=lam), accuracy=1e-2).overlaps
        found[lam] = (1.5 - 2 * o.m + o.q) / 1.5
    # the ridge counts for samples whose softmax is flat, and falls less than linearly
    assert 0 < found[1e-4] - law < 0.7 * (found[1e-3] - found[1e-4]) < 0.04
    for d, seeds in ((16, range(8)), (28, range(2))):
        e = lost(train_direct(replace(problem, lam=1e-3), d=d, seeds=seeds, n_test=2, tolerance=1e-2))
        assert abs(e.value - found[1e-3]) < 4 * e.error + 2 / d, (d, e)


def test_closed_form_noiseless_and_ridgeless_for_three_tokens():
    """10 alpha instead of 4 alpha; the ridge is allowed for as above, by 0.03."""
    problem = replace(PROBLEM, alpha=0.05, lam=1e-4, Delta=0.0, n_tokens=3)
    e = lost(train_direct(problem, d=24, seeds=range(4), n_test=2, tolerance=1e-2))
    assert abs(e.value - 0.5) < 4 * e.error + 2 / 24 + 0.03 < 0.8 - 0.5  # 0.8 with N = 4


@pytest.mark.parametrize("direct", [True, False])
def test_identity_best_lam_is_a_minimum(direct):
    solver, problem = single_head.solve_direct if direct else single_head.solve, replace(PROBLEM, alpha=1.0)
    best = optimal_lam(problem, direct=direct, accuracy=3e-3, within=(0.01, 0.2))
    errors = [
        solver(replace(problem, lam=best.problem.lam * factor), accuracy=3e-3, start=best.hats).test_error
        for factor in (0.75, 1.33)
    ]
    assert min(errors) > best.test_error


def test_agrees_with_linear_regression_for_small_fields():
    """With fields near 0 the softmax is linear: two classes of Gaussian measurements, of variances 4 and 2."""
    Q0, Delta, alpha = 1e-4, 1e-4, 0.4
    problem = replace(PROBLEM, alpha=alpha, Delta=Delta, target=FiniteRank(eigenvalues=[Q0**0.5]))

    def overlaps(lam):
        m = q = 0.0
        Sigma = 0.1
        for _ in range(2000):
            stiff = [1 + r * Sigma / 4 for r in (4, 2)]
            pull = 2 * alpha * sum(r / 4 / s for r, s in zip((4, 2), stiff, strict=True))
            noise = 2 * alpha * sum((r / 4 / s) ** 2 for r, s in zip((4, 2), stiff, strict=True))
            noise *= Q0 + Delta / 2 - 2 * m + q
            Sigma = 1 / (pull + 4 * lam)
            m, q = pull * Q0 * Sigma, (pull**2 * Q0 + noise) * Sigma**2
        return m, q

    def error(log_lam):
        m, q = overlaps(np.exp(log_lam))
        return 0.75 * (Q0 + Delta / 2 - 2 * m + q)

    expected = minimize_scalar(error, bounds=(-5, 2), method="bounded")
    best = optimal_lam(problem, direct=True, accuracy=1e-4)
    np.testing.assert_allclose(best.test_error, expected.fun, rtol=1e-3, atol=0)  # fields of order 0.01, squared
    np.testing.assert_allclose(np.log(best.problem.lam), expected.x, rtol=0, atol=0.05)  # the search


def test_closed_form_many_samples():
    """The excess against its limit, approached like alpha^(-1/2); the limit at its ends."""
    problem = replace(PROBLEM, target=MarchenkoPastur(kappa0=0.1))
    limit, floor, ratios = many_samples_ratio(problem), weights(problem).irreducible, []
    for alpha in (1.0, 4.0):
        found = [
            optimal_lam(replace(problem, alpha=alpha), direct=direct, accuracy=1e-3, within=within)
            for direct, within in ((False, (0.08, 0.8)), (True, (0.01, 0.1)))
        ]
        ratios.append((found[0].test_error - floor) / (found[1].test_error - floor))
    # twice as near with four times the samples, up to the next order, which a third allows for
    assert ratios[1] - limit == pytest.approx((ratios[0] - limit) / 2, rel=1 / 3, abs=0)
    assert many_samples_ratio(replace(PROBLEM, target=MarchenkoPastur(kappa0=2.0))) == 1
    # a radial error that costs no less than others: the statistical dimension
    assert limit > 4 * alpha_recovery(0.1)


@pytest.mark.parametrize(
    ("changes", "within", "end"),
    [({}, (0.1, 1.0), "lower"), ({}, (1e-3, 2e-3), "upper"), ({"Delta": 0.0, "alpha": 1.0}, (0.01, 0.1), "lower")],
)
def test_rejects_ranges_without_the_minimum(changes, within, end):
    with pytest.raises(ConvergenceError, match=f"the least test error lies at the {end} end of within") as caught:
        optimal_lam(replace(PROBLEM, **changes), direct=True, within=within, accuracy=1e-2)
    assert caught.value.partial.problem.lam == pytest.approx(within[end == "upper"])


@pytest.mark.parametrize("within", [None, 0.1, (0.1,), (0.2, 0.1), (0.0, 1.0), (-1.0, 1.0), (0.1, np.inf), (0.1, 0.1)])
def test_rejects_ranges(within):
    with pytest.raises(ValueError, match=re.escape(f"within = {within!r}: must be two finite numbers, rising and > 0")):
        optimal_lam(PROBLEM, within=within)


def test_rejects_other_problems():
    other = DiagonalModel(alpha=0.5, lam=0.1, Delta=0.5, target=PowerLaw(gamma=1.0, d=10))
    for call in (optimal_lam, many_samples_ratio):
        with pytest.raises(ValueError, match="problem of type DiagonalModel: must be a SingleHead"):
            call(other)
    with pytest.raises(ValueError, match="problem = .*: must be a SingleHead"):
        train_direct(other, d=10, seeds=[0])
    with pytest.raises(ValueError, match="problem = .*: must be a SingleHead"):
        cross_validation(other, d=10, seeds=[0], lams=(0.1,))
    with pytest.raises(ValueError, match="direct = 1: must be True or False"):
        optimal_lam(PROBLEM, direct=1)


def test_rejects_problems_without_noise():
    with pytest.raises(ValueError, match=r"Delta = 0.0: must be a finite number > 0"):
        many_samples_ratio(replace(PROBLEM, Delta=0.0))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("d", v) for v in (1, 2.5, True, None)),
        *(("seeds", v) for v in ([], [0, 0], [-1], [0.5], 3)),
        *(("start", v) for v in (-1, 0.5, None)),
        *((name, v) for name in ("scale", "tolerance") for v in (0, -1.0, np.nan, np.inf, "1", None)),
        *(("n_test", v) for v in (1, 10.5)),
        *(("max_iter", v) for v in (0, None)),
    ],
)
def test_rejects_bad_settings(name, value):
    with pytest.raises(ValueError, match=f"{name} = .*: must be"):
        train_direct(PROBLEM, **{"d": 10, "seeds": [0], name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("d", v) for v in (1, 2.5)),
        ("seeds", [0, 0]),
        *(("lams", v) for v in ((), 0.1, (0.2, 0.1), (0.1, 0.1), (0.0, 0.1), (0.1, np.inf), ("a",))),
        *(("folds", v) for v in (1, 2.5, 51)),
        ("direct", 1),
        ("tolerance", 0.0),
        ("max_iter", 0),
    ],
)
def test_rejects_bad_cross_validation(name, value):
    with pytest.raises(ValueError, match=f"{name} = .*: must be"):
        cross_validation(PROBLEM, **{"d": 10, "seeds": [0], "lams": (0.1,), name: value})


def test_rejects_problems_that_do_not_fit_the_size():
    with pytest.raises(ValueError, match=r"alpha = 0.001: must be large enough for round\(alpha d\^2\) >= 1 at d = 10"):
        train_direct(replace(PROBLEM, alpha=1e-3), d=10, seeds=[0])
    with pytest.raises(ValueError, match=r"kappa = 0.01: must be large enough for round\(kappa d\) >= 1 at d = 10"):
        cross_validation(replace(PROBLEM, kappa=0.01), d=10, seeds=[0], lams=(0.1,))


def test_rejects_a_minimum_that_is_not_reached():
    with pytest.raises(ConvergenceError, match="lam = 0.1, seed 0: not converged after 2 iterations") as caught:
        cross_validation(PROBLEM, d=10, seeds=[0], lams=(0.1,), max_iter=2)
    assert caught.value.partial.gradient_norm > 0
