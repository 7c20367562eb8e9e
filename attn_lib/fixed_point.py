"""Fixed points of smooth maps by Anderson acceleration, with honest failure."""

from typing import NamedTuple

import numpy as np

__all__ = ["ConvergenceError", "FixedPoint", "anderson"]


class ConvergenceError(RuntimeError):
    """A solver stopped before its tolerance; ``partial`` says how far it got."""

    def __init__(self, message, partial=None):
        super().__init__(message)
        self.partial = partial


class FixedPoint(NamedTuple):
    """Point, its undamped residual max ``|F(x) - x|``, the number of evaluations of F and the last secants of F.

    Secants are differences of residuals ``F(x) - x``, of length 1, and the differences of F that go with them, as rows.
    """

    x: np.ndarray
    residual: float
    n_iter: int
    secants: tuple = ()


def anderson(F, x, *, tol, max_iter=200, memory=3, far=np.inf, max_step=0.7, stop=None, secants=()):
    r"""Solve :math:`x = F(x)` by Anderson acceleration (type II).

    The next point mixes the last images so that the same mixture of residuals
    :math:`r_i = F(x_i) - x_i` is smallest in least squares.

    Parameters
    ----------
    F : callable
        Maps an array of shape (n,) to one; may raise FloatingPointError where it is undefined, which halves the step.
    x : array, shape (n,)
        Starting point; logarithms of positive unknowns keep them positive.
    tol : float
        Largest allowed undamped residual max ``|F(x) - x|``.
    far : float
        While the residual is above this, damped plain steps are made instead: slower, but they stay in the basin of
        the start where an extrapolation may leave it. Their length grows slowly and halves when one reverses the last.
        Lowered to half the best residual whenever the acceleration has not improved on it for 10 evaluations.
    max_step : float
        Largest change of one unknown in one step.
    stop : callable, optional
        Called with each x; a true answer ends the iteration at x (used to notice a branch that collapses).
    secants : tuple, optional
        Those of the FixedPoint of a map that hardly differs from F, close to which x is: they save evaluations.

    Returns
    -------
    FixedPoint

    Raises
    ------
    ConvergenceError
        After max_iter evaluations above the tolerance, or when F is undefined at the starting point; ``partial`` is
        the best FixedPoint seen.

    Source
    ------
    Walker and Ni, SIAM J. Numer. Anal. 49 (2011) 1715.

    Examples
    --------
    >>> anderson(np.cos, np.array([1.0]), tol=1e-12).x.round(6)
    array([0.739085])
    """
    x = np.array(x, dtype=float)
    points, images = [], []
    best, length, last = FixedPoint(x, np.inf, 0), 0.5, np.zeros_like(x)
    for n_iter in range(1, max_iter + 1):
        try:
            image = _finite(F(x))
        except FloatingPointError as error:
            if not points:
                raise ConvergenceError(f"undefined at the starting point: {error}", best) from error
            x = (x + points[-1]) / 2
            continue
        residual = float(np.abs(image - x).max())
        if residual < best.residual:
            best = FixedPoint(x, residual, n_iter)
        if residual <= tol or (stop is not None and stop(x)):
            return FixedPoint(x, residual, n_iter, _secants([*points, x], [*images, image], secants, memory))
        if residual <= far and n_iter > best.n_iter + 10:
            far, length = best.residual / 2, 0.5
        if residual > far:
            length = max(length / 2, 0.06) if (image - x) @ last < 0 else min(1.2 * length, 2.0)
            points, images = [x], [image]
            step = length * (image - x)
        else:
            points, images = [*points[-memory:], x], [*images[-memory:], image]
            step = _mixed(points, images, secants, memory) - x
        x, last = x + step * (max_step / max(np.abs(step).max(), max_step)), image - x
    raise ConvergenceError(
        f"no fixed point after {max_iter} evaluations: residual {best.residual:.1e}, tolerance {tol:.1e}", best
    )


def _finite(image):
    if not np.isfinite(image).all():
        raise FloatingPointError("the image is not finite")
    return image


def _mixed(points, images, secants, memory):
    residual = images[-1] - points[-1]
    size = np.linalg.norm(residual)
    of_residuals, of_images = _differences(points, images, [size * rows for rows in secants], memory)
    if not len(of_images):
        return images[-1]
    weights = np.linalg.lstsq(of_residuals.T, residual, rcond=1e-10)[0]
    return images[-1] - weights @ of_images


def _secants(points, images, before, memory):
    of_residuals, of_images = _differences(points, images, before, memory)
    length = np.linalg.norm(of_residuals, axis=1, keepdims=True)
    there = length[:, 0] > 0
    return of_residuals[there] / length[there], of_images[there] / length[there]


def _differences(points, images, before, memory):
    """The last differences, at most ``memory``, of the residuals and of the images; those before them first."""
    of_images = np.diff(images, axis=0)
    now = of_images - np.diff(points, axis=0), of_images
    return [np.vstack(rows)[-memory:] for rows in zip(before, now, strict=True)] if len(before) else now
