"""Gaussian averages and fixed points, without physics."""

import numpy as np
import pytest

from attn_lib.fixed_point import ConvergenceError, anderson
from attn_lib.gaussian import gaussian_ball


@pytest.mark.parametrize("positive", [(False, False, False), (True, True, False)])
def test_closed_form_gaussian_moments(positive):
    x, weight = gaussian_ball(0.5, 8.0, positive)
    # the tail beyond radius 8 weighs 5e-13 and up to 8^6 times that in the sixth moment
    np.testing.assert_allclose(weight.sum(), 1, rtol=0, atol=1e-11)
    np.testing.assert_allclose((weight * x[0] ** 2).sum(), 1, rtol=1e-9)
    np.testing.assert_allclose((weight * x[1] ** 4 * x[2] ** 2).sum(), 3, rtol=1e-6)
    np.testing.assert_allclose((weight * np.cos(x[2])).sum(), np.exp(-0.5), rtol=1e-9)


def test_closed_form_gaussian_moments_on_steps_of_each_axis():
    x, weight = gaussian_ball([0.3, 0.6], 8.0, [True, False])
    assert np.diff(np.unique(x[0])).max() < 0.31 and np.diff(np.unique(x[1])).min() > 0.59
    np.testing.assert_allclose(weight.sum(), 1, rtol=0, atol=1e-11)  # the tail, as above
    np.testing.assert_allclose((weight * x[0] ** 4 * x[1] ** 2).sum(), 3, rtol=1e-6)


def test_closed_form_linear_fixed_point_in_few_steps():
    matrix = np.array([[0.5, 0.3, 0.0], [-0.8, 0.2, 0.1], [0.0, 0.4, -2.0]])  # the plain iteration diverges
    shift = np.array([1.0, -2.0, 0.5])
    found = anderson(lambda x: matrix @ x + shift, np.zeros(3), tol=1e-11, max_step=10.0)
    np.testing.assert_allclose(found.x, np.linalg.solve(np.eye(3) - matrix, shift), rtol=1e-9)
    assert found.n_iter <= 12
    assert found.residual <= 1e-11


def test_identity_damped_steps_converge_where_plain_ones_do_not():
    found = anderson(lambda x: -3.0 * x, np.array([1.0]), tol=1e-10, far=1e-11)
    np.testing.assert_allclose(found.x, 0, atol=1e-10)


def test_rejects_by_raising_with_the_partial_result():
    with pytest.raises(ConvergenceError, match="after 20 evaluations") as caught:
        anderson(lambda x: x + 1.0, np.array([0.0]), tol=1e-6, max_iter=20)
    assert caught.value.partial.residual == pytest.approx(1.0)


def test_identity_undefined_points_are_stepped_back_from():
    def F(x):
        if x[0] < 0:
            raise FloatingPointError("negative")
        return np.sqrt(x) / 2 - 0.05

    found = anderson(F, np.array([4.0]), tol=1e-10)
    np.testing.assert_allclose(found.x, np.sqrt(found.x) / 2 - 0.05, rtol=1e-8)


def test_rejects_by_raising_when_undefined_at_the_start():
    def F(x):
        raise FloatingPointError("negative")

    with pytest.raises(ConvergenceError, match="undefined at the starting point: negative") as caught:
        anderson(F, np.array([4.0]), tol=1e-10)
    assert caught.value.partial.x == 4.0
