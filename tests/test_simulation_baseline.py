"""The linear layer at finite d: closed forms, an ordinary least-squares solver, and the theory of its errors."""

import numpy as np
import pytest
from scipy.integrate import dblquad

from attn_lib.comparison import estimate
from attn_lib.problems import PositionalSemantic
from attn_lib.simulation.baseline import least_squares, train_linear_baseline
from attn_lib.simulation.erm import train_positional_semantic
from attn_lib.simulation.sampling import draw_sample, draw_target
from attn_lib.theory.positional_semantic import linear_baseline

PROBLEM = PositionalSemantic(alpha=1.5, omega=0.3, A=((0.3, 0.7), (0.8, 0.2)))
D = 40
ROUNDING = {"rtol": 1e-10, "atol": 1e-12}  # the same quantity computed twice in double precision


def test_agrees_with_least_squares_over_all_components():
    fitted = train_linear_baseline(PROBLEM, d=D, seeds=range(3), n_test=100)
    for i, seed in enumerate(fitted.seeds):
        Q_star = draw_target(D, seed)
        train = draw_sample(PROBLEM, Q_star, n=60, seed=seed)
        test = draw_sample(PROBLEM, Q_star, n=100, seed=seed, stream="test")
        # every component of every sample is one observation of a regression with two inputs
        inputs, outputs = (v.swapaxes(1, 2).reshape(-1, 2) for v in (train.x, train.T @ train.x))
        W, squares = np.linalg.lstsq(inputs, outputs)[:2]
        np.testing.assert_allclose(fitted.W[i], W.T, **ROUNDING)
        np.testing.assert_allclose(fitted.train_loss[i], squares.sum() / (2 * D) / D, **ROUNDING)
        errors = (((test.T - W.T) @ test.x) ** 2).sum((1, 2)) / (2 * D)
        np.testing.assert_allclose(fitted.test_error[i], errors.mean(), **ROUNDING)
        np.testing.assert_allclose(fitted.test_error_se[i], errors.std(ddof=1) / 10, **ROUNDING)


def test_closed_form_a_positional_target_is_learned_exactly():
    problem = PositionalSemantic(alpha=0.5, omega=1, A=((0.9, 0.1), (0.4, 0.6)))
    fitted = train_linear_baseline(problem, d=D, seeds=range(2))
    np.testing.assert_allclose(fitted.W, np.broadcast_to(problem.A, (2, 2, 2)), **ROUNDING)
    np.testing.assert_allclose(fitted.test_error, 0, atol=1e-15)  # a difference of terms of order sigma^2


def test_identity_data_are_those_of_the_attention_layer():
    # the penalty leaves uniform attention, and the positions cancel in it: its loss is that of W = 1/2
    heavy = PositionalSemantic(alpha=1.5, omega=0.3, lam=1000)
    options = {"d": D, "seeds": [3, 8], "n_test": 50}
    attention = train_positional_semantic(heavy, **options, device="cpu", tolerance=1e-10)
    fitted = train_linear_baseline(heavy, **options)
    for stream, n, by_attention, by_baseline in (
        ("train", 60, attention.train_loss * D, fitted.train_loss * D),
        ("test", 50, attention.test_error * 50, fitted.test_error * 50),
    ):
        for i, seed in enumerate(fitted.seeds):
            x, T = draw_sample(heavy, draw_target(D, seed), n=n, seed=seed, stream=stream)
            for found, mixing in ((by_attention, 0.5), (by_baseline, fitted.W[i])):
                np.testing.assert_allclose(found[i], (((T - mixing) @ x) ** 2).sum() / (2 * D), **ROUNDING)


def test_agrees_with_theory_by_adaptive_quadrature():
    """W and the error of the infinite layer, from another integral over other coordinates."""
    rho, problem = PROBLEM.rho, PROBLEM

    def average(f):
        def integrand(b, a):
            diagonal = 1 / (1 + np.exp(-rho * a * (a - b)))
            return f(diagonal) * np.exp(-(a**2 + b**2) / 2) / (2 * np.pi)

        return dblquad(integrand, -8, 8, -8, 8, epsabs=1e-9)[0]

    mean = average(lambda s: s)
    variance = average(lambda s: (s - mean) ** 2)
    theory = linear_baseline(problem)
    diagonal = problem.omega * np.array(problem.A).diagonal() + (1 - problem.omega) * mean
    np.testing.assert_allclose(theory.W.diagonal(), diagonal, rtol=1e-7, atol=0)
    np.testing.assert_allclose(theory.W.sum(1), 1, **ROUNDING)
    np.testing.assert_allclose(theory.test_error, 2 * rho * (1 - problem.omega) ** 2 * variance, rtol=1e-6, atol=0)


@pytest.mark.parametrize("d", [200, 800])
def test_theory_matches_simulation_of_the_linear_layer(d):
    problem = PositionalSemantic(alpha=2, omega=0.3)
    theory = linear_baseline(problem)
    fitted = train_linear_baseline(problem, d=d, seeds=range(16), n_test=1000)
    measured, trained = estimate(fitted.test_error), estimate(fitted.train_loss / problem.alpha)
    # fixed beforehand: a term of order 1/d of the limit, and 1/n of the fit
    assert abs(measured.value - theory.test_error) < 4 * measured.error + theory.test_error * 3 / d
    assert abs(trained.value - theory.test_error) < 4 * trained.error + theory.test_error * 3 / d
    for entry in np.ndindex(2, 2):
        W = estimate(fitted.W[(slice(None), *entry)])
        assert abs(W.value - theory.W[entry]) < 4 * W.error + 3 / d


def test_theory_matches_simulation_of_the_excess_error():
    """Two independent training sets of one target: E|W1 - W2|^2 sigma^2/4 is the excess error eps_lin/n of each."""
    problem, d, n = PositionalSemantic(alpha=1, omega=0.3), 100, 100
    excess = []
    for seed in range(200):
        Q_star = draw_target(d, seed)
        W1, W2 = (least_squares(draw_sample(problem, Q_star, n=n, seed=seed, stream=s)) for s in ("train", "test"))
        excess.append(problem.rho / 4 * ((W1 - W2) ** 2).sum())
    measured, theory = estimate(excess), linear_baseline(problem).test_error / n
    # fixed beforehand: corrections of relative order 1/d to the noise, of which there are about ten
    assert abs(measured.value - theory) < 4 * measured.error + theory * 10 / d


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d": 1}, "d = 1: must be an integer >= 2"),
        ({"problem": PositionalSemantic(alpha=0.01, omega=0)}, r"alpha = 0\.01: must be large enough"),
        ({"seeds": ()}, r"seeds = \[\]: must be distinct integers >= 0"),
        ({"seeds": (1, 1)}, r"seeds = \[1, 1\]: must be distinct"),
        ({"n_test": 1}, "n_test = 1: must be an integer >= 2"),
    ],
)
def test_rejects(changes, message):
    with pytest.raises(ValueError, match=message):
        train_linear_baseline(**({"problem": PROBLEM, "d": D, "seeds": range(2)} | changes))
