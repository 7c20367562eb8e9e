"""The sample loss, its derivatives and the global proximal operator."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from attn_lib.proximal import attention_diagonal, descend, loss, loss_derivatives, moreau_objective, prox

field = st.floats(-1.5, 1.5)
entry = st.floats(0.0, 1.0)
response = st.floats(0.5, 30.0)


def moreau(u, v, w_u, w_v, T11, T22, V, sigma):
    return ((u - w_u) ** 2 + (v - w_v) ** 2) / (2 * V) + loss(u, v, T11, T22, sigma)


@given(field, field, entry, entry)
def test_agrees_with_the_softmax_of_two_fields(u, v, T11, T22):
    h = np.array([v + u, v - u]) / np.sqrt(2)
    S = softmax(np.outer(h, h), axis=1)
    T = np.array([[T11, 1 - T11], [1 - T22, T22]])
    np.testing.assert_allclose(attention_diagonal(u, v), np.diag(S), rtol=1e-12)
    np.testing.assert_allclose(loss(u, v, T11, T22, 0.7), 0.49 / 2 * ((T - S) ** 2).sum(), rtol=1e-10, atol=1e-15)


@given(field, field, entry, entry)
def test_agrees_with_finite_differences(u, v, T11, T22):
    step = 1e-5
    l_u, l_v, l_uu, l_uv, l_vv = loss_derivatives(u, v, T11, T22, 0.5)
    numeric_u = (loss(u + step, v, T11, T22, 0.5) - loss(u - step, v, T11, T22, 0.5)) / (2 * step)
    numeric_v = (loss(u, v + step, T11, T22, 0.5) - loss(u, v - step, T11, T22, 0.5)) / (2 * step)
    plus_u, minus_u = (loss_derivatives(u + s, v, T11, T22, 0.5) for s in (step, -step))
    plus_v, minus_v = (loss_derivatives(u, v + s, T11, T22, 0.5) for s in (step, -step))
    # central differences: truncation ~ step^2, rounding ~ 1e-16 / step
    np.testing.assert_allclose([l_u, l_v], [numeric_u, numeric_v], rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(l_uu, (plus_u[0] - minus_u[0]) / (2 * step), rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(l_uv, (plus_v[0] - minus_v[0]) / (2 * step), rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(l_vv, (plus_v[1] - minus_v[1]) / (2 * step), rtol=1e-8, atol=1e-9)


@given(field, field, entry, entry, response)
def test_identity_loss_and_prox_are_odd_under_reflection(w_u, w_v, T11, T22, V):
    _, _, value = prox(w_u, w_v, T11, T22, V, 0.5)
    _, _, mirrored = prox(-w_u, -w_v, T11, T22, V, 0.5)
    _, _, exchanged = prox(w_u, -w_v, T22, T11, V, 0.5)
    np.testing.assert_allclose([mirrored, exchanged], value, rtol=1e-9, atol=1e-12)


@settings(max_examples=60)
@given(field, field, entry, entry, response)
@example(0.0, 0.0, 0.0, 0.75, 15.0)  # w is a saddle
@example(0.0, 0.5, 0.25, 0.25, 15.0)
def test_agrees_with_a_grid_search_for_the_global_minimum(w_u, w_v, T11, T22, V):
    u, v, value = prox(w_u, w_v, T11, T22, V, 0.5)
    radius = 0.5 + np.sqrt(2 * V * loss(w_u, w_v, T11, T22, 0.5))  # beyond it the quadratic term alone is larger
    grid = np.linspace(-radius, radius, 161)
    grid_u, grid_v = w_u + grid[:, None], w_v + grid[None, :]
    lowest = moreau(grid_u, grid_v, w_u, w_v, T11, T22, V, 0.5).min()
    assert value <= lowest + 1e-12
    l_u, l_v, *_ = loss_derivatives(u, v, T11, T22, 0.5)
    np.testing.assert_allclose([u + V * l_u, v + V * l_v], [w_u, w_v], rtol=0, atol=1e-10)  # stationarity


def test_agrees_with_a_grid_search_far_out():
    """Several wells on one side of u = 0; the second has V sigma^2 = 1e6, where rounding exceeds the tolerance."""
    here = (
        np.array([3.657, -1.305, 1.0, 0.0, 2.27, 2.11]),
        np.array([0.41368476, -0.90122337, 0.50215744, 0.36540864, 9.92e5, 1.0]),
    )
    grid_u, grid_v = np.meshgrid(np.linspace(-6, 6, 401), np.linspace(-6, 6, 401))
    for w_u, w_v, T11, T22, V, sigma in here:
        *_, value = prox(w_u, w_v, T11, T22, V, sigma)
        assert value <= moreau_objective(grid_u, grid_v, w_u, w_v, T11, T22, V, sigma).min()


def test_identity_descend_never_climbs():
    rng = np.random.default_rng(0)
    u, v, w_u, w_v = rng.normal(size=(4, 300))
    T11, T22 = rng.uniform(size=(2, 300))
    end_u, end_v = descend(u, v, w_u, w_v, T11, T22, 20.0, 0.5)
    assert (moreau(end_u, end_v, w_u, w_v, T11, T22, 20.0, 0.5) <= moreau(u, v, w_u, w_v, T11, T22, 20.0, 0.5)).all()


def test_identity_prox_has_two_wells_that_tie():
    """At w = 0 with equal targets the wells are mirror images: the jump that the quadrature has to respect."""
    right = descend(0.5, 0.0, 0.0, 0.0, 0.8, 0.8, 20.0, 0.5)
    left = descend(-0.5, 0.0, 0.0, 0.0, 0.8, 0.8, 20.0, 0.5)
    assert right[0] > 0.3
    np.testing.assert_allclose(left, (-right[0], right[1]), atol=1e-9)


def test_identity_every_sample_may_have_its_own_sigma():
    rng = np.random.default_rng(0)
    w_u, w_v = rng.normal(size=(2, 3, 40))  # three fields of each sample
    T11, T22 = rng.uniform(size=(2, 40))
    sigma = rng.uniform(0.3, 0.7, size=40)
    together = np.array(prox(w_u, w_v, T11, T22, 15.0, sigma))
    for i in range(40):
        alone = prox(w_u[:, i], w_v[:, i], T11[i], T22[i], 15.0, float(sigma[i]))
        np.testing.assert_allclose(together[..., i], alone, rtol=0, atol=1e-10)  # both solved to 1e-11
