r"""The weight decay of least test error, for factorised and for direct training, and what then is left of them.

The two penalties, :math:`\lambda|W|^2` and :math:`\lambda d|S|_F^2`, have nothing in common but their letter: training
with factors and without can only be compared with :math:`\lambda` chosen for each. Here it is chosen by the test error
of theory; without knowledge of the target, by cross-validation (:func:`attn_lib.simulation.direct.cross_validation`).
"""

from dataclasses import replace

import numpy as np
from scipy.integrate import quad
from scipy.optimize import minimize_scalar

from attn_lib._checks import check_number, check_type, nested_floats
from attn_lib.fixed_point import ConvergenceError
from attn_lib.problems import SingleHead
from attn_lib.theory.error_decomposition import weights
from attn_lib.theory.single_head import channel_of, solve, solve_direct

__all__ = ["many_samples_ratio", "optimal_lam"]

_FACTOR = 2.0  # between neighbours of the search
_WIDTH = 0.03  # of the last bracket, in log lam: errors change by its square, 1e-3, at most


def optimal_lam(problem, *, direct=False, within=(1e-3, 10.0), accuracy=None):
    r"""Solution at the lambda of least test error.

    From the upper end of the range downwards, by factors of 2 and each solution the start of the next, until the error
    rises; then a bounded search in log lambda between the neighbours of the lowest.

    Parameters
    ----------
    problem : SingleHead
        Its ``lam`` is ignored.
    direct : bool
        Whether S is trained directly, with lambda the ridge of :func:`~attn_lib.theory.single_head.solve_direct`.
    within : (float, float)
        Range of lambda, rising and > 0.
    accuracy : float, optional
        As in :func:`~attn_lib.theory.single_head.solve`.

    Returns
    -------
    Solution
        ``problem.lam`` of it is the optimum.

    Raises
    ------
    ValueError
        problem, direct, within, accuracy, or a width below the rank at one of the lambdas tried.
    ConvergenceError
        The least error lies at an end of the range, which is named (without label noise and with enough samples it lies
        at lambda -> 0, and where so few samples are seen that the largest lambda is best, at the upper end), or a
        solution is not found; ``partial`` is the best solution seen.

    Accuracy
    --------
    The test error is that of the minimum to ``accuracy``; log lambda, as far as the error is flat there, to 0.1 or
    better. Of several minima of the error in lambda the one at the largest lambda is found.

    Source
    ------
    arXiv 2509.24914 compares the two trainings at the lambda chosen by cross-validation.

    Examples
    --------
    >>> from attn_lib.problems import MarchenkoPastur, SingleHead
    >>> problem = SingleHead(alpha=1.0, lam=1.0, Delta=0.5, kappa=1.0, target=MarchenkoPastur(kappa0=0.5))
    >>> for direct in (False, True):
    ...     s = optimal_lam(problem, direct=direct, accuracy=1e-3)
    ...     print(round(s.problem.lam, 2), round(s.test_error, 3))
    0.06 0.097
    0.02 0.108
    """
    check_type("problem", problem, SingleHead)
    if not isinstance(direct, bool):
        raise ValueError(f"direct = {direct!r}: must be True or False")
    low, high = nested_floats(
        "within", within, "two finite numbers, rising and > 0", lambda v: v.shape == (2,) and 0 < v[0] < v[1]
    )
    solver, rule = (solve_direct if direct else solve), channel_of(problem).accuracy if accuracy is None else accuracy
    solved = []  # by falling lam during the first stage

    def error(log_lam, start=None):
        try:
            solved.append(solver(replace(problem, lam=float(np.exp(log_lam))), accuracy=accuracy, start=start))
        except ConvergenceError as failure:
            raise ConvergenceError(str(failure), _best(solved)) from failure
        return solved[-1].test_error

    steps = int(np.ceil((np.log(high) - np.log(low)) / np.log(_FACTOR)))
    logs, errors = np.linspace(np.log(high), np.log(low), steps + 1), []
    for log_lam in logs:
        errors.append(error(log_lam, solved[-1].hats if solved else None))
        if errors[-1] > min(errors) * (1 + rule):
            break
    k = int(np.argmin(errors))
    if k == 0 or k == len(logs) - 1:
        end = "upper" if k == 0 else "lower"
        message = f"{problem}: the least test error lies at the {end} end of within = {within}"
        raise ConvergenceError(message, solved[k])
    hats = solved[k].hats
    minimize_scalar(
        lambda log_lam: error(log_lam, hats),
        bounds=(logs[k + 1], logs[k - 1]),
        method="bounded",
        options={"xatol": _WIDTH},
    )
    return _best(solved)


def many_samples_ratio(problem):
    r"""Excess test error of factorised over that of direct training, each with its best lambda, as alpha grows.

    Both errors tend to that of the best multiple :math:`s_*` of the target. With the rank r of the target divided by d,
    the weights of :func:`attn_lib.theory.error_decomposition.weights` and :math:`\varrho=c_2/c_1`, the excesses are in
    the ratio

    .. math::

        \min_{e\ge0}\Big\{1-(1-r)^2\Big[1-\int_e^2(x-e)^2\rho_{\rm sc}\Big]
        + (1-r)\,e^2\Big[r-\frac{\varrho}{1+\varrho}\frac{(\mathrm{tr}S_0)^2}{\mathrm{tr}S_0^2}\Big]\Big\} .

    Parameters
    ----------
    problem : SingleHead
        With label noise. Its alpha, lam and kappa are ignored.

    Returns
    -------
    float
        In (0, 1]; 1 for a target of full rank.

    Raises
    ------
    ValueError
        Without label noise, where a finite alpha suffices for both errors to vanish.

    Accuracy
    --------
    Limited by the weights to 1e-5.

    Source
    ------
    Derived in the chapter on factorisation. With :math:`\varrho=0` it is the statistical dimension of
    :func:`attn_lib.theory.thresholds.alpha_recovery`, N times that number.

    Examples
    --------
    >>> from attn_lib.problems import MarchenkoPastur, SingleHead
    >>> problem = SingleHead(alpha=1.0, lam=1.0, Delta=0.5, kappa=1.0, target=MarchenkoPastur(kappa0=0.1))
    >>> round(many_samples_ratio(problem), 3)
    0.404
    """
    check_type("problem", problem, SingleHead)
    check_number("Delta", problem.Delta, "a finite number > 0", lambda v: v > 0)
    target, found = problem.target, weights(problem)
    rest, ratio = 1 - target.rank, found.c2 / found.c1
    if rest == 0:
        return 1.0
    bias = target.rank - ratio / (1 + ratio) * target.mean**2 / target.second_moment

    def excess(e):
        above, _ = quad(lambda x: (x - e) ** 2 * (4 - x * x) ** 0.5 / (2 * np.pi), e, 2)
        return 1 - rest**2 * (1 - above) + rest * bias * e**2

    return float(minimize_scalar(excess, bounds=(0, 2), method="bounded", options={"xatol": 1e-6}).fun)


def _best(solved):
    return min(solved, key=lambda solution: solution.test_error, default=None)
