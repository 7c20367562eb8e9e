r"""State evolution of cross-attention, with weights of their own for queries and keys.

.. math::

    M = \frac{W_QW_K^\top}{\sqrt{pd}}, \quad z_{ab}(M) = \frac{x_a^\top My_b}{\sqrt d}, \quad
    \text{decay } \tfrac\lambda2(|W_Q|^2+|W_K|^2),

for queries of tokens x and keys of other tokens y, all standard Gaussian, and a target :math:`M_0` with independent
noise of variance Delta/2 on all T^2 pre-activations. Only the singular values of the target matter. The T^2 fields of a
sample are independent, of variances :math:`q=\mathrm{tr}\,MM^\top` and :math:`Q'=\mathrm{tr}\,M_0M_0^\top+\Delta/2`,
with covariance :math:`m=\mathrm{tr}\,MM_0^\top`. The d^2 entries of M are unknown, twice as many as those of a
symmetric matrix. The potential per d^2 reads

.. math::

    \Phi = \tfrac12(\hat q\Sigma + 2\hat mm - \hat\Sigma q) + \alpha M(m,q,\Sigma) - \frac{\hat m^2}{2\hat\Sigma}J,
    \qquad J = \int_\epsilon^\infty(s-\epsilon)^2\nu_\delta(ds), \qquad \epsilon=\frac{\sqrt\kappa\lambda}{\hat m},

with :math:`\nu_\delta` the law of the singular values of :math:`M_0+\delta Z`, Z a matrix of independent entries of
variance 1/d, and :math:`\delta=\sqrt{\hat q}/\hat m`: the weight decay is a nuclear norm, and the prior a soft
threshold of singular values. For two tokens the two rows of the softmax are independent, and each sees the difference
:math:`u=z_{11}-z_{12}` alone:

.. math::

    M = 2\,E\min_u\Big[\ell(u,u_0)+\frac{(u-\omega)^2}{4\Sigma}\Big], \qquad
    \ell = 2\big(\mathrm{s}(\beta u)-\mathrm{s}(\beta_0u_0)\big)^2, \qquad
    (u_0,\omega)\sim N\Big(0, 2\begin{pmatrix}Q'&m\\m&q\end{pmatrix}\Big),

s the logistic function.

For self-attention (y = x) of a target without symmetry this is an approximation: the fields have the same law, but
:math:`z_{aa}` measures the symmetric part of M alone, so that the two parts of M are learned with different noise.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from attn_lib._checks import check_number
from attn_lib.fixed_point import ConvergenceError, anderson
from attn_lib.gaussian import gaussian_ball
from attn_lib.spectra.free_convolution import FreeConvolution
from attn_lib.spectra.symmetrised import Symmetrised
from attn_lib.theory.spectral_prior import Hats, Overlaps

__all__ = ["Hats", "Overlaps", "UntiedSolution", "solve_untied"]

_RADIUS, _STEPS, _SCAN = 6.5, (0.2, 0.1, 0.05, 0.025), np.linspace(0, 1, 33)


@dataclass(frozen=True, kw_only=True)
class UntiedSolution:
    """A fixed point, with everything that is known about it.

    Attributes
    ----------
    problem : SingleHead
    overlaps : Overlaps
        m = tr M M0^T, q = tr M M^T, response Sigma.
    hats : Hats
    eta, delta, epsilon : float
        The singular values of M are distributed as eta ReLU(s - epsilon), s those of M0 + delta Z.
    noisy : FreeConvolution
        Law of s with both signs.
    rank, test_error, train_loss, penalty, potential, residual : float
        As in :class:`attn_lib.theory.single_head.Solution`; the penalty is the whole decay.
    n_iter : int
    converged : bool
        Always True; a failure raises.
    quadrature_error : dict
        Of m, q, test_error, train_loss and rank, absolute: the change since the next coarser rule.
    """

    problem: object
    overlaps: Overlaps
    hats: Hats
    eta: float
    delta: float
    epsilon: float
    noisy: FreeConvolution
    rank: float
    test_error: float
    train_loss: float
    penalty: float
    potential: float
    residual: float
    n_iter: int
    converged: bool
    quadrature_error: dict

    def density(self, y):
        """Density of the singular values of M at y > 0, without the atom at 0.

        Parameters
        ----------
        y : array

        Returns
        -------
        array
        """
        y = np.asarray(y, dtype=float)
        return np.where(y > 0, 2 * self.noisy.density(self.epsilon + y / self.eta) / self.eta, 0.0)


def solve_untied(problem, *, accuracy=1e-4):
    r"""Fixed point of cross-attention.

    .. math::

        q = \eta^2J, \quad m = \eta\big(J+\epsilon J_1-\tfrac\delta2\partial_\delta J\big), \quad
        \Sigma = \frac{\partial_\delta J}{2\delta\hat\Sigma}, \qquad
        \hat q = 4\alpha E[g^2], \quad \hat\Sigma = 4\alpha A, \quad \hat m = -4\alpha B,

    with :math:`g=\partial_u\ell` at the minimum and, by Stein's lemma,
    :math:`2(qA+mB)=E[\omega g]`, :math:`2(mA+Q'B)=E[u_0g]`.

    Parameters
    ----------
    problem : SingleHead
        With two tokens. ``target`` is the law of the singular values of M0.
    accuracy : float
        Largest relative change wanted of m, q, test error, train loss and rank between the last two rules, in
        [1e-6, 1e-1].

    Returns
    -------
    UntiedSolution

    Raises
    ------
    ValueError
        More than two tokens; accuracy out of range; kappa below the rank of the solution.
    ConvergenceError
        No fixed point with m > 0 was found, or the accuracy is not reached on the finest rule.

    Accuracy
    --------
    ``accuracy`` by the estimate in ``quadrature_error``, and the assumption of replica symmetry. Stein's form loses
    digits as :math:`qQ'-m^2\to0`.

    Source
    ------
    Not in arXiv 2509.24914, whose student is tied; derived like its state evolution.

    Examples
    --------
    >>> from attn_lib.problems import MarchenkoPastur, SingleHead
    >>> problem = SingleHead(alpha=2.0, lam=0.1, Delta=0.5, kappa=1.0, target=MarchenkoPastur(kappa0=0.5))
    >>> solution = solve_untied(problem)
    >>> abs(solution.potential - solution.train_loss - solution.penalty) < 1e-6
    True
    """
    if problem.n_tokens != 2:
        raise ValueError(f"n_tokens = {problem.n_tokens!r}: must be 2")
    check_number("accuracy", accuracy, "a number in [1e-6, 1e-1]", lambda v: 1e-6 <= v <= 1e-1)
    hats, last, n_iter = None, None, 0
    for step in _STEPS:
        fixed = _iterate(problem, step, hats)
        n_iter += fixed.n_iter
        hats, values = Hats(*map(float, np.exp(fixed.x))), _values(problem, fixed.x, step)
        judged = {name: values[name] for name in ("test_error", "train_loss", "rank")}
        judged |= {name: getattr(values["overlaps"], name) for name in ("m", "q")}
        changes = {name: abs(v - last[name]) for name, v in judged.items()} if last else None
        if last and all(changes[name] <= accuracy * abs(v) for name, v in judged.items()):
            break
        last = judged
    else:
        raise ConvergenceError(f"{problem}: accuracy {accuracy:.0e} not reached, last changes {changes}", values)
    if values["rank"] > problem.kappa + 1e-9:  # rounding
        raise ValueError(
            f"kappa = {problem.kappa!r}: must be at least the rank of the solution; {values['rank']:.4f} is enough"
        )
    rest = {"residual": fixed.residual, "n_iter": n_iter, "converged": True, "quadrature_error": changes}
    return UntiedSolution(problem=problem, hats=hats, **values, **rest)


def _iterate(problem, step, hats):
    x, weight = gaussian_ball(step, _RADIUS, [True, False])

    def update(logs):
        _, _, overlaps = _prior(problem, Hats(*np.exp(logs)))
        if not 0 < overlaps.m**2 < overlaps.q * problem.noisy_second_moment:
            raise FloatingPointError(f"no field left: {overlaps}")
        u0, omega = _fields(problem, overlaps, x)
        g = _slope(problem, _prox(problem, u0, omega, overlaps.Sigma), u0)
        A, B = np.linalg.solve(
            2 * np.array([[overlaps.q, overlaps.m], [overlaps.m, problem.noisy_second_moment]]),
            [weight @ (omega * g), weight @ (u0 * g)],
        )
        found = 4 * problem.alpha * np.array([-B, weight @ g**2, A])
        if not (found > 0).all():
            raise FloatingPointError(f"conjugates must be positive: {found}")
        return np.log(found)

    if hats is None:  # conjugates of M = 0
        u0 = (2 * problem.noisy_second_moment) ** 0.5 * x[0]
        g = _slope(problem, 0.0, u0)
        B, A = (weight @ (u0 * g)) / (2 * problem.noisy_second_moment), problem.beta**2 / 4
        hats = 4 * problem.alpha * np.array([-B, weight @ g**2, A])
    return anderson(update, np.log(hats), tol=1e-10, memory=5, max_iter=300)


def _values(problem, logs, step):
    hats = Hats(*map(float, np.exp(logs)))
    noisy, tail, overlaps = _prior(problem, hats)
    (m, q, Sigma), (m_hat, q_hat, Sigma_hat) = overlaps, hats
    x, weight = gaussian_ball(step, _RADIUS, [True, False])
    u0, omega = _fields(problem, overlaps, x)
    u = _prox(problem, u0, omega, Sigma)
    loss, g = 2 * weight @ _loss(problem, u, u0), _slope(problem, u, u0)
    eta, epsilon = m_hat / Sigma_hat, problem.nuclear_penalty / m_hat
    phi = (q_hat * Sigma + 2 * m_hat * m - Sigma_hat * q) / 2 - m_hat * eta * tail.J
    phi += problem.alpha * (loss + 2 * Sigma * (weight @ g**2))
    return {
        "overlaps": overlaps,
        "eta": eta,
        "delta": noisy.delta,
        "epsilon": epsilon,
        "noisy": noisy,
        "rank": 2 * tail.mass,
        "test_error": float(2 * weight @ _loss(problem, omega, u0)),
        "train_loss": float(problem.alpha * loss),
        "penalty": problem.nuclear_penalty * eta * 2 * tail.J1,
        "potential": float(phi),
    }


def _prior(problem, hats):
    """Law of the noisy singular values with both signs, its tail (half of that of the values), and the overlaps."""
    m_hat, q_hat, Sigma_hat = map(float, hats)
    eta, delta, epsilon = m_hat / Sigma_hat, q_hat**0.5 / m_hat, problem.nuclear_penalty / m_hat
    noisy = FreeConvolution(Symmetrised(problem.target), delta)
    tail = noisy.tail(epsilon)
    m = 2 * eta * (tail.J + epsilon * tail.J1 - delta / 2 * tail.d1J)
    return noisy, tail, Overlaps(m=m, q=2 * eta**2 * tail.J, Sigma=tail.d1J / (delta * Sigma_hat))


def _fields(problem, overlaps, x):
    """u0 and omega at standard Gaussian nodes."""
    m, q, Q = overlaps.m, overlaps.q, problem.noisy_second_moment
    return (2 * Q) ** 0.5 * x[0], 2**0.5 * (m / Q**0.5 * x[0] + (q - m**2 / Q) ** 0.5 * x[1])


def _loss(problem, u, u0):
    return 2 * (expit(problem.beta * u) - expit(problem.beta0 * u0)) ** 2


def _slope(problem, u, u0):
    s = expit(problem.beta * u)
    return 4 * problem.beta * s * (1 - s) * (s - expit(problem.beta0 * u0))


def _prox(problem, u0, omega, Sigma):
    """The minimiser lies between omega and the point where the loss vanishes: a scan, then golden sections."""
    span = problem.beta0 / problem.beta * u0 - omega

    def objective(t):
        return _loss(problem, omega + t * span, u0) + (t * span) ** 2 / (4 * Sigma)

    best = np.argmin([objective(t) for t in _SCAN], axis=0)
    low, high = _SCAN[np.maximum(best - 1, 0)], _SCAN[np.minimum(best + 1, len(_SCAN) - 1)]
    for _ in range(60):  # bisection on the slope, which changes sign once in the bracket
        t = (low + high) / 2
        u = omega + t * span
        rising = (_slope(problem, u, u0) + t * span / (2 * Sigma)) * span > 0
        low, high = np.where(rising, low, t), np.where(rising, t, high)
    return omega + (low + high) / 2 * span
