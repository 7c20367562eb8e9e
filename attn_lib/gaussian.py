"""Averages over independent standard Gaussians by the midpoint rule on a ball.

For an analytic integrand under a Gaussian weight the equidistant rule converges as fast as Gauss-Hermite, and it is
calmer at a kink; halving the step is then a fair test of the error.
"""

import numpy as np

__all__ = ["gaussian_ball"]


def gaussian_ball(step, radius, positive):
    r"""Nodes and weights for :math:`E f(x)`, x standard Gaussian in ``len(positive)`` dimensions.

    Parameters
    ----------
    step : float or sequence of floats
        Distance of neighbouring nodes, > 0, along all axes or along each; nodes sit at odd multiples of step / 2.
    radius : float
        Nodes further than this from the origin are left out.
    positive : sequence of bool
        True for a dimension of which only x > 0 is kept, with doubled weight (the caller knows that the
        average allows it: f is invariant under a reflection that flips the sign of x).

    Returns
    -------
    x : ndarray, shape (dimension, N)
    weight : ndarray, shape (N,)
        Sums to 1 up to the tail beyond the radius.

    Accuracy
    --------
    The tail beyond radius 5, 6, 7 weighs 1.5e-5, 7e-8, 1.4e-10 in 3 dimensions. A kink in the k-th derivative of f
    costs an error of order step^(k+1).

    Examples
    --------
    >>> x, weight = gaussian_ball(0.5, 6, [True, False])
    >>> float((weight * x[0] ** 2 * x[1] ** 4).sum().round(3))
    3.0
    """
    steps, axes = np.broadcast_to(step, len(positive)), []
    for h, only_positive in zip(steps, positive, strict=True):
        half = (np.arange(int(np.ceil(radius / h))) + 0.5) * h
        axes.append(half if only_positive else np.concatenate([-half[::-1], half]))
    x = np.stack(np.meshgrid(*axes, indexing="ij")).reshape(len(axes), -1)
    x = x[:, (x**2).sum(axis=0) < radius**2]
    weight = np.exp(-(x**2).sum(axis=0) / 2) * np.prod(steps / np.sqrt(2 * np.pi)) * 2.0 ** sum(positive)
    return x, weight
