"""The attention layer and its data at finite d, against the definitions written out through the outputs."""

import numpy as np
import pytest
from scipy.special import softmax

from attn_lib.problems import PositionalSemantic
from attn_lib.simulation.attention import (
    gram_matrices,
    positions,
    squared_error,
    student_attention,
    teacher_attention,
)
from attn_lib.simulation.sampling import draw_sample, draw_target, generator

PROBLEM = PositionalSemantic(alpha=1.5, omega=0.3, A=((0.3, 0.7), (0.8, 0.2)))
ROUNDING = {"rtol": 1e-10, "atol": 1e-13}  # identities in double precision; entries are of order 1


def drawn(d=30, n=7, seed=1):
    Q_star = draw_target(d, seed)
    return Q_star, *draw_sample(PROBLEM, Q_star, n=n, seed=seed)


def attention_of(tokens, Q):
    h = tokens @ Q / np.sqrt(len(Q))
    return softmax(np.einsum("nl,nk->nlk", h, h), axis=2)


def test_agrees_with_softmax_of_encoded_tokens():
    _, x, _ = drawn()
    Q = 3 * generator(0, "start").standard_normal(30) + 1
    np.testing.assert_allclose(student_attention(x, Q), attention_of(x + positions(30), Q), **ROUNDING)


def test_agrees_with_softmax_of_raw_tokens_in_the_teacher():
    Q_star, x, T = drawn()
    expected = 0.7 * attention_of(x, Q_star) + 0.3 * np.array([[0.3, 0.7], [0.8, 0.2]])
    np.testing.assert_allclose(T, expected, **ROUNDING)


def test_closed_form_omega_1_mixes_by_A_alone():
    Q_star, x, _ = drawn()
    positional = PositionalSemantic(alpha=1, omega=1)
    np.testing.assert_array_equal(teacher_attention(positional, x, Q_star), np.tile(positional.A, (7, 1, 1)))


def test_identity_error_from_gram_matrices_is_error_of_outputs():
    _, x, T = drawn()
    Q = generator(0, "start").standard_normal(30)
    S = student_attention(x, Q)
    outputs_differ = T @ x - S @ (x + positions(30))
    expected = (outputs_differ**2).sum((1, 2)) / 30
    np.testing.assert_allclose(squared_error(T, S, gram_matrices(x)), expected, **ROUNDING)


def test_identity_Q_and_minus_Q_are_one_layer():
    Q_star, x, _ = drawn()
    np.testing.assert_array_equal(student_attention(x, Q_star), student_attention(x, -Q_star))


def test_identity_tokens_have_variance_sigma_squared():
    _, x, _ = drawn(d=200, n=100)
    # 4 standard errors of the variance of that many Gaussian numbers
    assert abs(x.var() / PROBLEM.rho - 1) < 4 * np.sqrt(2 / x.size)


def test_identity_a_seed_fixes_the_data_and_a_larger_set_contains_the_smaller():
    Q_star, x, T = drawn(n=7)
    Q_again, more_x, more_T = drawn(n=9)
    np.testing.assert_array_equal(Q_star, Q_again)
    np.testing.assert_array_equal(x, more_x[:7])
    np.testing.assert_allclose(T, more_T[:7], **ROUNDING)


def test_identity_streams_and_seeds_are_distinct():
    streams = ("target", "train", "test", "start")
    first = {generator(seed, stream).standard_normal() for seed in (0, 1) for stream in streams}
    assert len(first) == 8


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: draw_target(1, 0), "d = 1: must be an integer >= 2"),
        (lambda: draw_target(10, -1), "seed = -1: must be an integer >= 0"),
        (lambda: draw_target(10, 0.5), "seed = 0.5: must be"),
        (lambda: draw_sample(PROBLEM, np.ones(4), n=0, seed=0), "n = 0: must be an integer >= 1"),
        (lambda: generator(0, "tset"), "stream = 'tset': must be one of"),
    ],
)
def test_rejects(call, message):
    with pytest.raises(ValueError, match=message):
        call()
