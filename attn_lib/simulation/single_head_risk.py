r"""The empirical risk of a single head of full rank, on CPU or GPU.

.. math::

    F(W) = \sum_\mu \ell\big(z^\mu(S)\big) + \lambda|W|^2, \qquad S = \frac{WW^\top}{\sqrt{pd}}

It has three parts that know nothing of each other: how the data see S (:mod:`~attn_lib.simulation.sensing`), the loss
of what they see (:class:`AttentionLoss`), and how S depends on the parameters (:class:`FactorisedRisk`, or
:class:`DirectRisk`, where S is what is trained).
"""

import torch

from attn_lib.simulation.sensing import pairs

__all__ = ["AttentionLoss", "DirectRisk", "FactorisedRisk", "attention_loss"]


class AttentionLoss:
    r"""Squared error of attention matrices :math:`A = \mathrm{softmax}(\beta z)` against targets Y.

    Per sample, and with its gradient through the rows of A,

    .. math::

        \ell = \mathrm{Tr}[D G D^\top], \quad D = A - Y, \qquad
        \partial_{z_{ab}}\ell = B_{ab} + (1-\delta_{ab}) B_{ba}, \quad
        B_{ab} = \beta A_{ab}\Big(R_{ab} - \sum_c A_{ac}R_{ac}\Big), \quad R = 2 D G,

    where G is the identity for labels, and the Gram matrix :math:`x x^\top/d` for sequences:
    :math:`|(Y-A)x|^2/d = \mathrm{Tr}[D G D^\top]`.

    Parameters
    ----------
    targets : tensor (set, n, T, T)
        Attention matrices Y.
    beta : float
        Inverse temperature.
    gram : tensor (set, n, T, T), optional
        The Gram matrices G; the identity by default.
    """

    def __init__(self, targets, beta, gram=None):
        self.beta, self.targets = beta, _samples_last(targets)
        self.gram = None if gram is None else _samples_last(gram)
        n_tokens = targets.shape[-1]
        self.a, self.b = pairs(n_tokens, targets.device)
        self.pair_of = torch.zeros(n_tokens, n_tokens, dtype=torch.int64, device=targets.device)
        self.pair_of[self.a, self.b] = self.pair_of[self.b, self.a] = torch.arange(len(self.a), device=targets.device)

    def errors(self, z):
        """Loss of every sample; (set, n, pair) to (set, n)."""
        D = self._attention(z) - self.targets
        return (D * self._times_gram(D)).sum((1, 2))

    def value_and_gradient(self, z):
        """Sum of the loss over samples, (set,), and its gradient in z, (set, n, pair)."""
        A = self._attention(z)
        D = A - self.targets
        DG = self._times_gram(D)
        B = 2 * self.beta * A * (DG - (A * DG).sum(2, keepdim=True))
        gradient = (B + B.transpose(1, 2))[:, self.a, self.b].movedim(1, -1)
        return (D * DG).sum((1, 2, 3)), torch.where(self.a == self.b, gradient / 2, gradient)

    def _attention(self, z):
        """A, (set, n, pair) to (set, T, T, n): samples last, so that every operation runs along long rows."""
        return torch.softmax(self.beta * z.movedim(-1, 1)[:, self.pair_of], dim=2)

    def _times_gram(self, D):
        if self.gram is None:
            return D
        return sum(D[:, :, b, None] * self.gram[:, None, b] for b in range(D.shape[2]))


def _samples_last(matrices):
    """(set, n, T, T) to (set, T, T, n)."""
    return matrices.movedim(1, -1).contiguous()


def attention_loss(problem, task, x, Y):
    """The loss of a task on given data.

    Parameters
    ----------
    problem : SingleHead
    task : str
        "seq2lab" or "seq2seq".
    x : tensor (set, n, T, d)
        Tokens.
    Y : tensor (set, n, T, T)
        Attention matrices of the target.

    Returns
    -------
    AttentionLoss
    """
    return AttentionLoss(Y, problem.beta, x @ x.mT / x.shape[-1] if task == "seq2seq" else None)


class _Risk:
    """What the risks share: a measurement, a loss, and parameters that are mapped to S."""

    def __init__(self, measurement, loss):
        self.measurement, self.data_loss = measurement, loss

    def fields(self, Q):
        """z(S), (set, parameters) to (set, n pair)."""
        return self.measurement.measure(self.matrix(Q)).flatten(1)

    def loss(self, h):
        """Sum of the loss over samples, (set,), and its gradient in the fields, (set, n pair)."""
        value, gradient = self.data_loss.value_and_gradient(self._of_pairs(h))
        return value, gradient.flatten(1)

    def _of_pairs(self, h):
        """(set, n pair) to (set, n, pair)."""
        return h.unflatten(-1, (-1, len(self.data_loss.a)))


class FactorisedRisk(_Risk):
    r"""Risks of several data sets as functions of W, for :func:`~attn_lib.simulation.lbfgs.minimise`.

    Measurements are linear in S, and S is quadratic in W:

    .. math::

        S(W+tD) = S + t\,\frac{WD^\top + DW^\top}{\sqrt{pd}} + t^2\frac{DD^\top}{\sqrt{pd}}, \qquad
        \nabla_W\,g\cdot z(S) = \frac{2}{\sqrt{pd}}\,z^\top(g)\,W,

    so an iteration costs two products with the data and one with their transpose. Parameters are vectors
    (set, d p), the rows of W one after the other; fields are (set, n pair).

    Parameters
    ----------
    measurement : Measurement
    loss : AttentionLoss
    lam : float
        Weight decay :math:`\lambda` of :math:`\lambda|W|^2`.
    d, p : int
        Shape of W.
    """

    def __init__(self, measurement, loss, lam, *, d, p):
        super().__init__(measurement, loss)
        self.shape = d, p
        self.lam = 2 * lam  # minimise() adds lam/2 times the square
        self.scale = (p * d) ** -0.5

    def matrix(self, Q):
        """S of parameters, (set, d p) to (set, d, d)."""
        W = Q.unflatten(-1, self.shape)
        return W @ W.mT * self.scale

    def steps(self, Q, D):
        """The coefficients of t and t^2 in the fields of Q + t D."""
        W, step = Q.unflatten(-1, self.shape), D.unflatten(-1, self.shape)
        cross = W @ step.mT * self.scale
        return tuple(self.measurement.measure(S).flatten(1) for S in (cross + cross.mT, self.matrix(D)))

    def adjoint(self, g, Q):
        """Gradient of g.z(S) in W, (set, n pair) to (set, d p)."""
        in_S = self.measurement.adjoint(self._of_pairs(g))
        return (2 * self.scale * in_S @ Q.unflatten(-1, self.shape)).flatten(1)


class DirectRisk(_Risk):
    r"""Risks of several data sets as functions of a symmetric S.

    .. math:: F(S) = \sum_\mu\ell\big(z^\mu(S)\big) + \lambda d|S|_F^2

    Fields are linear in S: an iteration costs one product with the data and one with their transpose. All entries of S
    are varied, parameters are vectors (set, d d). Sensing matrices are symmetric, so that the gradient is, and from a
    symmetric start all iterates are.

    Parameters
    ----------
    measurement : Measurement
    loss : AttentionLoss
    lam : float
        The ridge :math:`\lambda`.
    d : int
        Size of S.
    """

    def __init__(self, measurement, loss, lam, *, d):
        super().__init__(measurement, loss)
        self.shape = d, d
        self.lam = 2 * lam * d  # minimise() adds lam/2 times the square

    def matrix(self, Q):
        """S of parameters, (set, d d) to (set, d, d)."""
        return Q.unflatten(-1, self.shape)

    def steps(self, Q, D):
        """The coefficient of t in the fields of Q + t D."""
        return (self.fields(D),)

    def adjoint(self, g, Q):
        """Gradient of g.z(S) in S, (set, n pair) to (set, d d)."""
        return self.measurement.adjoint(self._of_pairs(g)).flatten(1)
