"""The batched L-BFGS on least squares (closed form) and on a risk that is not convex."""

import pytest
import torch

from attn_lib.problems import MarchenkoPastur, SingleHead
from attn_lib.simulation.erm import train_single_head
from attn_lib.simulation.lbfgs import _line_search, minimise

ROUNDING = {"rtol": 1e-10, "atol": 1e-12}  # double precision; entries are of order 1


class LinearFields:
    """Risk of N fields X Q; counts the products with X and its transpose."""

    lam = 0.1

    def __init__(self, *batch, N=40, D=25, seed=0):
        generator = torch.Generator().manual_seed(seed)
        self.X = torch.randn(*batch, N, D, generator=generator, dtype=torch.float64) / D**0.5
        self.y = torch.randn(*batch, N, generator=generator, dtype=torch.float64)
        self.start = torch.randn(*batch, D, generator=generator, dtype=torch.float64)
        self.n_fields = self.n_adjoint = 0

    def fields(self, Q):
        self.n_fields += 1
        return (self.X @ Q[..., None])[..., 0]

    def steps(self, Q, D):
        return (self.fields(D),)

    def adjoint(self, g, Q):
        self.n_adjoint += 1
        return (g[..., None, :] @ self.X)[..., 0, :]

    def one(self, i):
        alone = type(self)()
        alone.X, alone.y, alone.start = self.X[i], self.y[i], self.start[i]
        return alone


class LeastSquares(LinearFields):
    def loss(self, h):
        return ((h - self.y) ** 2).sum(-1) / 2, h - self.y


class PhaseRetrieval(LinearFields):
    def loss(self, h):
        excess = h**2 - self.y**2
        return (excess**2).sum(-1) / 4, excess * h


class QuadraticPhaseRetrieval(PhaseRetrieval):
    """The same risk with the squares (X Q)^2 as its fields."""

    def fields(self, Q):
        return super().fields(Q) ** 2

    def steps(self, Q, D):
        XQ, XD = LinearFields.fields(self, Q), LinearFields.fields(self, D)
        return 2 * XQ * XD, XD**2

    def adjoint(self, g, Q):
        return super().adjoint(2 * g * LinearFields.fields(self, Q), Q)

    def loss(self, h):
        excess = h - self.y**2
        return (excess**2).sum(-1) / 4, excess / 2


def test_closed_form_least_squares():
    risk = LeastSquares(3)
    found = minimise(risk, risk.start, tolerance=1e-11, max_iter=200)
    gram = risk.X.mT @ risk.X + risk.lam * torch.eye(25, dtype=torch.float64)
    expected = torch.linalg.solve(gram, (risk.X.mT @ risk.y[..., None])[..., 0])
    assert found.converged.all()
    # atol: the tolerance on the gradient over the smallest curvature, which is at least lam
    torch.testing.assert_close(found.Q, expected, rtol=1e-10, atol=1e-11 / risk.lam)


def test_identity_one_product_with_X_and_one_with_its_transpose_per_iteration():
    risk = PhaseRetrieval()
    found = minimise(risk, risk.start, tolerance=1e-8, max_iter=200)
    assert found.converged
    assert risk.n_fields == risk.n_adjoint == found.n_iter + 1


def test_identity_quadratic_fields_follow_the_path_of_linear_ones():
    linear, quadratic = PhaseRetrieval(3), QuadraticPhaseRetrieval(3)
    for n_iter in (1, 5, 20):
        a, b = (minimise(risk, risk.start, tolerance=1e-9, max_iter=n_iter) for risk in (linear, quadratic))
        # the same numbers up to rounding, which grows along the path
        torch.testing.assert_close(a.Q, b.Q, rtol=1e-9, atol=1e-9)
    a, b = (minimise(risk, risk.start, tolerance=1e-9, max_iter=500) for risk in (linear, quadratic))
    assert a.converged.all() and b.converged.all()
    torch.testing.assert_close(a.value, b.value, **ROUNDING)


def test_identity_a_run_does_not_depend_on_its_batch():
    risk = PhaseRetrieval(4)
    together = minimise(risk, risk.start, tolerance=1e-8, max_iter=500)
    assert together.converged.all()
    assert len(set(together.n_iter.tolist())) > 1  # the runs do stop at different times
    for i in range(4):
        alone = minimise(risk.one(i), risk.start[i], tolerance=1e-8, max_iter=500)
        assert alone.n_iter == together.n_iter[i]
        # rounding differs between batched products, and grows along the path
        torch.testing.assert_close(alone.Q, together.Q[i], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("kind", [PhaseRetrieval, QuadraticPhaseRetrieval])
@pytest.mark.parametrize("length", [1e-3, 1.0, 1e3])
def test_identity_line_search_satisfies_strong_wolfe_on_the_line(length, kind):
    risk = kind(5)

    def on_line(t):
        Q = risk.start + t[..., None] * D
        return risk.loss(risk.fields(Q))[0] + risk.lam / 2 * (Q**2).sum(-1)

    h = risk.fields(risk.start)
    loss, g = risk.loss(h)
    D = -length * (risk.adjoint(g, risk.start) + risk.lam * risk.start)
    t, loss_t, _ = _line_search(risk, risk.start, D, h, risk.steps(risk.start, D), loss, g)
    zero, eps = torch.zeros_like(t), 1e-5 * t
    slope_0 = (on_line(eps) - on_line(-eps)) / (2 * eps)  # central differences: relative error of order 1e-8
    slope_t = (on_line(t + eps) - on_line(t - eps)) / (2 * eps)
    assert (t > 0).all()
    assert (on_line(t) <= on_line(zero) + 1e-4 * t * slope_0).all()
    assert (slope_t.abs() <= 0.5001 * slope_0.abs()).all()
    Q = risk.start + t[..., None] * D
    torch.testing.assert_close(loss_t, risk.loss(risk.fields(Q))[0], **ROUNDING)


def test_identity_a_run_that_starts_at_its_minimum_does_not_move():
    risk = LeastSquares(2)
    once = minimise(risk, risk.start, tolerance=1e-9, max_iter=200)
    mixed = torch.stack([once.Q[0], risk.start[1]])
    again = minimise(risk, mixed, tolerance=1e-9, max_iter=200)
    assert again.n_iter[0] == 0
    torch.testing.assert_close(again.Q[0], once.Q[0], rtol=0, atol=0)
    assert again.converged.all()


def test_identity_failure_is_reported():
    risk = LeastSquares(2)
    cut = minimise(risk, risk.start, tolerance=1e-9, max_iter=2)
    assert not cut.converged.any()
    assert (cut.n_iter == 2).all()
    unreachable = minimise(risk, risk.start, tolerance=1e-300, max_iter=1000)
    assert not unreachable.converged.any()
    assert (unreachable.n_iter < 1000).all()  # stops at the rounding floor
    assert (unreachable.gradient_norm < 1e-10).all()


def test_identity_minimum_with_many_samples():
    """At alpha = 1000 the curvature is large and the first step a tiny fraction of one."""
    target = MarchenkoPastur(kappa0=0.5)
    problem = SingleHead(alpha=1e3, lam=0.01, Delta=0.5, kappa=1.0, target=target)
    assert train_single_head(problem, d=4, seeds=range(2), device="cpu", n_test=100).converged.all()
