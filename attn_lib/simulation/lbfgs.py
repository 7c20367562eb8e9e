r"""Batched L-BFGS for ridge-penalised risks of fields that are linear or quadratic in the parameters,

.. math:: F(Q) = \mathrm{loss}(h(Q)) + (\lambda/2)|Q|^2, \qquad h(Q+tD) = h(Q) + t\,h_1 + t^2 h_2.

Each run of the batch has its own step length, its own curvature history and its own stopping; a stopped run
is frozen while the others go on. (``torch.optim.LBFGS`` sees a batch as one long vector: one step length, one
stopping.)

Along a direction D the fields are a polynomial in t, so an iteration costs the products with the data that give its
coefficients (for linear fields h = X Q a single one, h_1 = X D) and one with the transpose, for the new gradient. The
line search in between works on fields alone, so it can afford to be accurate.
"""

from typing import NamedTuple, Protocol

import torch

__all__ = ["FieldRisk", "Minimum", "minimise", "value_and_gradient"]


class FieldRisk(Protocol):
    """What :func:`minimise` asks of a batch of risks. Q is (..., D), fields are (..., N)."""

    lam: float

    def fields(self, Q):
        """Fields h(Q), shape (..., N)."""

    def steps(self, Q, D):
        """The coefficients of t, and of t^2 unless fields are linear, in h(Q + t D): a tuple of one or two (..., N)."""

    def adjoint(self, g, Q):
        """Gradient in Q of the scalar product of h(Q) with g, shape (..., D); X^T g for linear fields h = X Q."""

    def loss(self, h):
        """Loss without the ridge penalty, shape (...), and its gradient in the fields, (..., N)."""


class Minimum(NamedTuple):
    """Last iterate of every run: Q (..., D); the rest has shape (...)."""

    Q: torch.Tensor
    value: torch.Tensor
    gradient_norm: torch.Tensor
    n_iter: torch.Tensor
    converged: torch.Tensor


def minimise(risk, Q, *, tolerance, max_iter, memory=10, report=None):
    """Minimise F from Q until the gradient norm is at most tolerance, every run on its own.

    Parameters
    ----------
    risk : FieldRisk
    Q : tensor (..., D)
        Start of every run.
    tolerance : float
        On the Euclidean norm of the gradient of F.
    max_iter : int
        A run that needs more is returned with converged = False; so is one whose line search fails, which
        happens at the rounding floor.
    memory : int
        Number of past steps that shape the search direction.
    report : callable, optional
        Called after every iteration with its number and the gradient norms.

    Returns
    -------
    Minimum

    Source
    ------
    Nocedal and Wright, Numerical Optimization, algorithms 7.4 and 7.5 (two-loop recursion).
    """
    h = risk.fields(Q)
    loss, loss_gradient = risk.loss(h)
    gradient = risk.adjoint(loss_gradient, Q) + risk.lam * Q
    norm = gradient.norm(dim=-1)
    running = norm > tolerance
    n_iter = torch.zeros_like(norm, dtype=torch.int64)
    history = []
    for i in range(1, max_iter + 1):
        if not running.any():
            break
        direction = torch.where(running[..., None], -_inverse_hessian(history, gradient), 0)
        steps = risk.steps(Q, direction)
        t, loss, loss_gradient = _line_search(risk, Q, direction, h, steps, loss, loss_gradient)
        step = t[..., None] * direction
        Q, h = Q + step, _fields_at(t, h, steps)
        previous, gradient = gradient, risk.adjoint(loss_gradient, Q) + risk.lam * Q
        history = [*history, _curvature(step, gradient - previous)][-memory:]
        norm = gradient.norm(dim=-1)
        n_iter += running
        if report:
            report(i, norm)
        running = running & (norm > tolerance) & (t > 0)
    return Minimum(Q, loss + risk.lam / 2 * _dot(Q, Q), norm, n_iter, norm <= tolerance)


def value_and_gradient(risk, Q):
    """F(Q) and its gradient, for every run.

    Parameters
    ----------
    risk : FieldRisk
    Q : tensor (..., D)

    Returns
    -------
    tuple of tensors
        Shapes (...) and (..., D).
    """
    loss, in_fields = risk.loss(risk.fields(Q))
    return loss + risk.lam / 2 * _dot(Q, Q), risk.adjoint(in_fields, Q) + risk.lam * Q


def _dot(a, b):
    return (a * b).sum(-1)


def _fields_at(t, h, steps):
    """h + t h_1 + t^2 h_2."""
    for k, h_k in enumerate(steps, 1):
        h = torch.addcmul(h, t[..., None] ** k, h_k)
    return h


def _slope(t, g, steps):
    """Scalar product of g with the derivative of the fields in t."""
    return sum(k * t ** (k - 1) * _dot(g, h_k) for k, h_k in enumerate(steps, 1))


def _curvature(s, y):
    """A step, the change of the gradient along it, and 1/s.y; a frozen run takes null steps, which get weight 0."""
    sy = _dot(s, y)
    return s, y, torch.where(sy > 0, 1 / sy, 0)


def _inverse_hessian(history, gradient):
    """Two-loop recursion."""
    direction, weights = gradient.clone(), []
    for s, y, weight in reversed(history):
        a = weight * _dot(s, direction)
        direction.addcmul_(a[..., None], y, value=-1)
        weights.append(a)
    if history:
        _, y, weight = history[-1]
        scale = torch.where(weight > 0, 1 / (weight * _dot(y, y)), 1)
        direction *= scale[..., None]
    for (s, y, weight), a in zip(history, reversed(weights), strict=True):
        b = weight * _dot(y, direction)
        direction.addcmul_((a - b)[..., None], s)
    return direction


def _line_search(risk, Q, D, h, steps, loss, loss_gradient, *, c1=1e-4, c2=0.5, max_trials=100):
    """Step t > 0 with the strong Wolfe conditions, by bracketing; no products with the data.

    The bracket (low, high) keeps two facts: at low the decrease is sufficient and the slope negative; at high
    one of them fails. A strong Wolfe point therefore always lies inside. Trials are secant steps on the
    slope, kept away from the ends. Returns t (0 if no such point was found, or if D is null), and the loss
    and its gradient in the fields at t.
    """
    QD, DD, QQ = _dot(Q, D), _dot(D, D), _dot(Q, Q)
    value0 = loss + risk.lam / 2 * QQ
    slope0 = _dot(loss_gradient, steps[0]) + risk.lam * QD
    rounding = 4 * torch.finfo(h.dtype).eps * value0.abs()
    low, high = torch.zeros_like(slope0), torch.full_like(slope0, torch.inf)
    slope_low, slope_high = slope0, torch.full_like(slope0, torch.nan)
    done = slope0 >= 0
    t = torch.where(done, 0.0, torch.ones_like(slope0))
    for _ in range(max_trials):
        loss, loss_gradient = risk.loss(_fields_at(t, h, steps))
        value = loss + risk.lam / 2 * (QQ + 2 * t * QD + t**2 * DD)
        slope = _slope(t, loss_gradient, steps) + risk.lam * (QD + t * DD)
        sufficient = value <= value0 + c1 * t * slope0 + rounding
        done = done | (sufficient & (slope.abs() <= -c2 * slope0))
        if done.all():
            break
        raise_low = ~done & sufficient & (slope < 0)
        drop_high = ~done & ~raise_low
        low, slope_low = torch.where(raise_low, t, low), torch.where(raise_low, slope, slope_low)
        high, slope_high = torch.where(drop_high, t, high), torch.where(drop_high, slope, slope_high)
        width = high - low
        fraction = (slope_low / (slope_low - slope_high)).nan_to_num(0.5)
        fraction = torch.where(slope_high > 0, fraction, 0.5).clamp(0.1, 0.9)
        trial = torch.where(high.isinf(), 4 * t, low + fraction * width)
        t = torch.where(done, t, trial)
    else:
        t = torch.where(done, t, 0)
        loss, loss_gradient = risk.loss(_fields_at(t, h, steps))
    return t, loss, loss_gradient
