"""Answers to exercises of Part II: error_decomposition, emergence, scaling_laws."""

from functools import cache
from math import ceil

import numpy as np

from attn_lib.exercises.answer import Answer

__all__ = ["ANSWERS"]


def _levels():
    return 100**0.5 * np.arange(1, 101) ** -0.75


def _no_bias():
    """First order in delta^2: eta^2 delta^2 (1 - 4 epsilon <1/s>) vanishes."""
    return 1 / (4 * (1 / _levels()).mean())


def _weak_data():
    from attn_lib.problems import PowerLaw, SingleHead

    return SingleHead(alpha=0.1, lam=0.1, Delta=0.5, kappa=1.0, target=PowerLaw(gamma=1.0, d=200))


def _best_decay():
    from attn_lib.theory.tuning import optimal_lam

    return optimal_lam(_weak_data(), within=(0.01, 0.16), accuracy=1e-3).problem.lam


@cache
def _decay_of_least_distance():
    from dataclasses import replace

    from scipy.optimize import minimize_scalar

    from attn_lib.theory.error_decomposition import weights
    from attn_lib.theory.single_head import solve

    problem = _weak_data()
    s_star = weights(problem).s_star

    def distance(log_lam):
        overlaps = solve(replace(problem, lam=float(np.exp(log_lam))), accuracy=1e-2).overlaps
        return overlaps.q - 2 * s_star * overlaps.m

    return float(np.exp(minimize_scalar(distance, bounds=np.log([0.008, 0.03]), options={"xatol": 0.1}).x))


def _recovery_exponents():
    """epsilon ~ lam/alpha ~ alpha^(power - 1), which is to fall to s_i."""
    return tuple(1 / (1 - power) for power in (0.0, 0.25))


def _overlap_at_the_edge():
    """The overlap 2t with s = delta (1 + t), where delta t^2 is what the edge fluctuates by, delta d^(-2/3)."""
    edge = -2 / 3
    return edge / 2


def _modes_without_noise():
    """Excess ~ n^(1 - 2 gamma), and ~ r^(1 - 2 gamma) by what is missed."""
    gamma = 1.0
    return (1 - 2 * gamma) / (1 - 2 * gamma)


def _square_data():
    from attn_lib.problems import PowerLaw, SingleHead

    return SingleHead(alpha=1.0, lam=0.4, Delta=0.5, kappa=1.0, target=PowerLaw(gamma=1.0, d=400))


@cache
def _full_width():
    from attn_lib.theory.single_head import solve

    return solve(_square_data())


def _recovered():
    return (_square_data().target.spectrum > _full_width().delta).sum()


@cache
def _columns_at_kept_decay():
    from attn_lib.theory.single_head import least_kappa

    return ceil(400 * least_kappa(_square_data()))


ANSWERS = {
    "ed-double": Answer(
        asked="the threshold epsilon, for gamma = 0.75, d = 100, all modes recovered, s_* = eta, small delta",
        value=_no_bias,
        rtol=0.02,
        mistakes=(
            (lambda right: 2 * right, "eta + s_* is 2 eta here"),
            (lambda right: 4 * right, "this is a mean of the levels itself, without the factor of the second term"),
            (lambda right: _levels().mean() / 4, "the formula has the mean of 1/s_i, which is not 1 over that of s_i"),
        ),
    ),
    # the minimum is flat: 10 % in lambda change the excess by about 0.1 %
    "ed-best": Answer(
        asked="the weight decay lambda of least excess error, for gamma = 1, d = 200, alpha = 0.1",
        value=_best_decay,
        rtol=0.1,
        mistakes=(
            (lambda right: _decay_of_least_distance(), "there the distance is smallest, not the error"),
            (lambda right: 0.4 * 0.1**0.5, "this is the weight decay of the page, and more than is best here"),
        ),
    ),
    # levels are finite: the code comes within 4 %
    "em-fixed": Answer(
        asked="two exponents x of n_i ~ b_i^(-x), for lambda fixed and for lambda ~ alpha^(1/4)",
        value=_recovery_exponents,
        rtol=0.05,
        mistakes=(
            (lambda *right: [-x for x in right], "n_i falls with b_i, and x in b_i^(-x) is then positive"),
            (lambda *right: [1 / x for x in right], "this is how the threshold falls with n; solve for n"),
            (lambda *right: [2.0, 2.0], "these are the exponents if the noise decides; here the threshold does"),
        ),
    ),
    # twice the statistical error of a fit to the 700 or so matrices of the solution, which is 0.045
    "em-window": Answer(
        asked="the exponent of d of the mean squared overlap at s = delta, with its sign",
        value=_overlap_at_the_edge,
        atol=0.1,
        mistakes=(
            (lambda right: 2 * right, "the edge fluctuates like this, and t^2 is of that order; the overlap goes as t"),
            (lambda right: -right, "the overlap falls with d"),
        ),
    ),
    # exponents drift: local ones along the curve of the solution differ from the limit by 0.05, the last by 0.15
    "sl-noiseless": Answer(
        asked="the exponent of n_eff of the number r of recovered modes, without label noise, at gamma = 1",
        value=_modes_without_noise,
        atol=0.1,
        mistakes=(
            (lambda right: 0.5 * right, "so it is with label noise, when delta^2 falls as 1/n"),
            (lambda right: -right, "the error falls like this; the number of modes grows"),
            (lambda right: -2 * right, "this is the exponent of delta^2"),
        ),
    ),
    "sl-width": Answer(
        asked="the least number p of columns for the map of kappa = 1, for gamma = 1, d = 400, alpha = 1",
        value=lambda: ceil(400 * _full_width().rank),
        atol=0.6,
        mistakes=(
            (lambda right: _recovered(), "so many modes are recovered; some noise is learned, too"),
            (lambda right: _columns_at_kept_decay(), "so it is at the same lambda: keep sqrt(kappa) lambda instead"),
        ),
    ),
}
