"""Fixed points of the state evolution of Part II on one rule, and their refinement.

:mod:`attn_lib.theory.single_head` states the equations. The unknowns are the logarithms of the conjugates; one update
is the prior followed by the channel. It is iterated first with the lowest minimum of the prox at every node, and then
with every node following its minimum, which makes the update smooth, to the precision of the arithmetic.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from attn_lib.fixed_point import ConvergenceError, FixedPoint, anderson
from attn_lib.theory.attention_channel import conjugates, form_of
from attn_lib.theory.attention_prox import may_jump
from attn_lib.theory.spectral_prior import Hats, Overlaps, Prior, potential

__all__ = ["State", "iterate", "reach", "refine", "starting_point"]

_ROUGH, _FINE = 1e-3, 1e-11  # residuals of the two stages
_COARSEST = 1e-5  # the largest residual that rounding may leave
_NEAR = 0.03  # a residual from which the second stage may start although the first has not ended
_STEP = 1e-5  # of the difference quotients of the Jacobian
_MAX_BROYDEN, _LONGEST = 20, 1.0  # steps, and the longest one, of the second stage
_MAX_ROUNDS = 3
_SAME = 1e-10  # a change of the conjugates without a change of minima
_IDENTITY = 1e-9  # of Phi and its two terms, relative to 1 or to the largest terms in it
_MAX_RULES = 5
_NOTHING = 1e-12  # a change that does not count, for what falls to 0 at the penalty where S does


class State(NamedTuple):
    """A fixed point on one rule.

    ``values`` are the numbers whose accuracy is judged, ``unsettled`` is the largest relative change of a conjugate
    when the minima of the prox are chosen anew, ``jacobian`` the derivative of the residual in the unknowns.
    """

    hats: Hats
    prior: Prior
    potential: float
    values: dict
    residual: float
    n_iter: int
    unsettled: float
    form: str
    form_difference: float
    jacobian: np.ndarray


def starting_point(channel):
    """The conjugates of S = 0: a fixed point when the penalty is so large that nothing is learned.

    Parameters
    ----------
    channel
        See :mod:`attn_lib.theory.attention_channel`.

    Returns
    -------
    Hats
    """
    nothing = Overlaps(0.0, 0.0, 0.0)
    return conjugates(channel, nothing, channel.averages(nothing))


def iterate(problem, channel, prior, hats, settled=1e-4, jacobian=None):
    """The fixed point on one rule.

    Parameters
    ----------
    problem : SingleHead
        Its lam is used (that of the channel's problem is not).
    channel
    prior
        Function of problem and hats: :func:`~attn_lib.theory.spectral_prior.prior` or ``direct_prior``.
    hats : Hats
        Where to begin.
    settled : float
        A change of the conjugates by a new choice of the minima of the prox that ends the rounds of the two stages.
    jacobian : array, shape (3, 3), optional
        That of a solution on another rule, of which ``hats`` is the fixed point: spares the first stage.

    Returns
    -------
    State

    Raises
    ------
    ConvergenceError
        No fixed point, or one where Phi is not the sum of training loss and penalty, to 1e-9 of its own terms.
    """

    def update(x, follow):
        overlaps = prior(problem, Hats(*np.exp(x))).overlaps
        found = conjugates(channel, overlaps, channel.averages(overlaps, follow))
        if not min(found) > 0:
            raise FloatingPointError(f"conjugates must be positive: {found}")
        return np.log(found)

    if not min(hats) > 0:
        raise ConvergenceError(f"{problem}: conjugates must be positive: {hats}", hats)
    n_iter, x = 0, np.log(hats)
    for attempt in range(_MAX_ROUNDS):
        if attempt or jacobian is None:
            x, count = _rough(update, x)
            n_iter += count
        try:
            if not attempt and jacobian is not None:
                update(x, False)
            fine, jacobian = _followed(problem, channel, prior, update, x, jacobian)
            x, n_iter = fine.x, n_iter + fine.n_iter + 1
            unsettled = float(np.abs(update(x, False) - x).max())
        except FloatingPointError as error:
            raise ConvergenceError(f"no proximal operator near the fixed point: {error}", x) from error
        if unsettled <= settled:
            break
    try:
        if unsettled > _SAME:
            fine, jacobian = _followed(problem, channel, prior, update, x, jacobian)
            n_iter += fine.n_iter
        return _state(problem, channel, prior, fine, n_iter, unsettled, jacobian)
    except FloatingPointError as error:
        raise ConvergenceError(f"no proximal operator near the fixed point: {error}", x) from error


def _rough(update, x):
    """The first stage: near by following the minima of the start, which is cheaper, then with the lowest ones."""
    n_iter = 0
    for follow, tol in ((True, _NEAR), (False, _ROUGH)):
        try:
            found = anderson(lambda x: update(x, follow), x, tol=tol, memory=5, max_iter=100)  # noqa: B023
        except ConvergenceError as error:  # minima that change hands may keep the residual from falling
            found = error.partial
            if not (follow or found.residual < _NEAR):
                raise
        x, n_iter = found.x, n_iter + found.n_iter
    return x, n_iter


def _followed(problem, channel, prior, update, x, jacobian):
    """The second stage: Broyden's method, and Anderson's where it fails."""
    m, q, _ = prior(problem, Hats(*np.exp(x))).overlaps
    # q - m^2/Q' suffers from cancellation near perfect recovery, and with it q_hat
    noise = 1e-15 * q * channel.Q_prime / max(q * channel.Q_prime - m**2, 1e-30)
    tol = min(max(_FINE, noise), _COARSEST)

    def residual(x):
        return update(x, True) - x

    n_iter, start, here = 1, x, residual(x)
    if jacobian is None:
        jacobian = np.column_stack([(residual(x + step) - here) / _STEP for step in _STEP * np.eye(x.size)])
        n_iter += x.size
    for _ in range(_MAX_BROYDEN):
        if np.abs(here).max() <= tol:
            return FixedPoint(x, float(np.abs(here).max()), n_iter), jacobian
        try:
            step = -np.linalg.solve(jacobian, here)
            if not np.abs(step).max() < _LONGEST:
                break
            ahead = residual(x + step)
        except (np.linalg.LinAlgError, FloatingPointError):
            break
        n_iter += 1
        jacobian = jacobian + np.outer(ahead - here - jacobian @ step, step) / (step @ step)
        x, here = x + step, ahead
    found = anderson(lambda x: update(x, True), start, tol=tol, memory=5)
    return found._replace(n_iter=n_iter + found.n_iter), jacobian


def reach(problem, channel, prior, hats):
    """The fixed point on one rule; where the iteration fails from the starting point, lam is lowered step by step.

    Parameters
    ----------
    problem, channel, prior, hats
        As in :func:`iterate`.

    Returns
    -------
    State

    Raises
    ------
    ConvergenceError
        The last lam that was reached is named.
    """
    try:
        return iterate(problem, channel, prior, hats)
    except ConvergenceError:
        return _lowered(problem, channel, prior)


def refine(problem, channel, prior, accuracy, hats=None):
    """The fixed point on rules refined until two successive ones agree.

    Parameters
    ----------
    problem, channel, prior
        As in :func:`iterate`.
    accuracy : float
        Largest relative error of any of the values, as estimated.
    hats : Hats, optional
        Where to begin, :func:`starting_point` by default.

    Returns
    -------
    state : State
    errors : dict
        Estimated absolute errors of the values, from their changes since the last but one rule.

    Raises
    ------
    ConvergenceError
    """
    state = reach(problem, channel, prior, starting_point(channel) if hats is None else hats)
    n_iter = state.n_iter
    for n_refined in range(1, _MAX_RULES):
        channel, previous = channel.refined(), state
        state = iterate(problem, channel, prior, state.hats, accuracy, state.jacobian)
        n_iter += state.n_iter
        errors = {n: channel.error_share * abs(value - previous.values[n]) for n, value in state.values.items()}
        # where the prox jumps the two coarsest rules may agree by accident
        jumps = problem.n_tokens == 2 and may_jump(problem.beta, state.prior.overlaps.Sigma)
        if (
            n_refined > jumps
            and state.unsettled <= accuracy
            and all(
                error
                <= max(accuracy * abs(state.values[name]), 0.0 if name in ("test_error", "train_loss") else _NOTHING)
                for name, error in errors.items()
            )
        ):
            return state._replace(n_iter=n_iter), errors
    relative = {name: error / max(abs(state.values[name]), _NOTHING) for name, error in errors.items()}
    worst = max(relative, key=relative.get)
    raise ConvergenceError(
        f"{problem}: accuracy {accuracy:.0e} not reached: {worst} is uncertain by {relative[worst]:.0e}, "
        f"and a conjugate changes by {state.unsettled:.0e} with the choice of minima",
        state,
    )


def _lowered(problem, channel, prior):
    """The fixed point at the end of a path of falling lam, each step starting where the last one ended."""
    hats, first, factor = starting_point(channel), max(1.0, 2 * problem.lam), 0.5
    reached, state = None, None
    while reached is None or reached > problem.lam:
        lam = first if reached is None else max(problem.lam, reached * factor)
        try:
            state = iterate(replace(problem, lam=lam), channel, prior, hats)
            hats, reached, factor = state.hats, lam, max(factor**1.5, 0.1)
        except ConvergenceError as error:
            factor = factor**0.5
            if reached is None or factor > 0.95:
                raise ConvergenceError(
                    f"{problem}: no fixed point, last lam reached {reached}", state or error.partial
                ) from error
    return state


def _state(problem, channel, prior, point, n_iter, unsettled, jacobian):
    hats = Hats(*map(float, np.exp(point.x)))
    found = prior(problem, hats)
    overlaps = found.overlaps
    averages = channel.averages(overlaps, follow=True)
    train_loss = problem.alpha * averages.loss
    phi = potential(problem, overlaps, hats, averages.loss + overlaps.Sigma * averages.g_g / 2, prior)
    # Phi is a difference of terms of the size of q_hat Sigma, which grow with alpha
    size = 1 + sum(abs(a * b) for a, b in zip(hats, (overlaps.m, overlaps.Sigma, overlaps.q), strict=True))
    if not abs(phi - train_loss - found.penalty) <= _IDENTITY * size:
        raise ConvergenceError(f"{problem}: Phi = {phi} is not {train_loss} + {found.penalty}", hats)
    form = form_of(channel, overlaps)
    difference = 0.0
    if form == "stein":
        both = [conjugates(channel, overlaps, averages, name) for name in ("derivative", "stein")]
        difference = float(np.abs(np.divide(*both) - 1).max())
    values = {
        **overlaps._asdict(),
        "test_error": channel.test_error(overlaps.m, overlaps.q),
        "train_loss": train_loss,
        "penalty": found.penalty,
        "rank": found.rank,
    }
    return State(hats, found, phi, values, point.residual, n_iter, unsettled, form, difference, jacobian)
