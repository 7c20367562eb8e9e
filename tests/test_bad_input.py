"""Bad and extreme input: a clear error, or a run that is reported as what it is; never a silent nan."""

import numpy as np
import pytest

from attn_lib.comparison import extrapolate
from attn_lib.fixed_point import ConvergenceError, anderson
from attn_lib.problems import FiniteRank, GeneralAttention, MarchenkoPastur, PositionalSemantic, PowerLaw, SingleHead
from attn_lib.simulation.amp import train_by_amp
from attn_lib.simulation.dynamics import Start, train_by_descent
from attn_lib.simulation.erm import train_positional_semantic, train_single_head
from attn_lib.simulation.gaussian_sensing import train_on_gaussians
from attn_lib.simulation.general import train_general
from attn_lib.simulation.matrix_amp import train_by_matrix_amp
from attn_lib.simulation.robustness import train_variant
from attn_lib.simulation.search import search_lower_minima
from attn_lib.spectra import learned_spectrum
from attn_lib.theory import general_layer, matrix_evolution, single_head, transitions
from attn_lib.theory import positional_semantic as ps
from attn_lib.theory.amp_evolution import evolve, first_overlaps, plateau
from attn_lib.theory.escape import escape_rates
from attn_lib.theory.matrix_replicon import pair_response
from attn_lib.theory.matrix_replicon import replicon as matrix_replicon
from attn_lib.theory.population import population_error
from attn_lib.theory.replica_breaking import solve_broken
from attn_lib.theory.replicon import distance_map, replicon
from attn_lib.theory.untied import solve_untied

PROBLEM = PositionalSemantic(alpha=1.5, omega=0.3)
LAYER = GeneralAttention.of_two_tokens(PROBLEM)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("A", ((0.5, 0.4), (0.4, 0.6)), "A = .*rows sum to 1"),
        ("A", ((1.2, -0.2), (0.4, 0.6)), "A = .*entries >= 0"),
        ("A", ((1.0,),), "A = .*L >= 2"),
        ("A", ((0.5, 0.5), (0.2, 0.3, 0.5)), "A = "),
        ("rank", 0, "rank = 0: must be an integer >= 1"),
        ("rank", 1.5, "rank = 1.5: must be an integer >= 1"),
        ("teacher_rank", -1, "teacher_rank = -1: must be an integer >= 1"),
        ("spectrum_weights", (0.5, 0.4), "spectrum_weights = .*of sum 1"),
        ("spectrum_weights", (1.5, -0.5), "spectrum_weights = .*numbers > 0"),
        ("spectrum_values", ((0.25,), (0.0,)), "spectrum_values = .*eigenvalues > 0"),
        ("spectrum_values", ((0.25, 0.3), (0.25, 0.3)), "spectrum_values = .*2 x 1"),
        ("spectrum_values", ((0.25,),), "spectrum_values = .*2 x 1"),
        ("positions", ((1.0, 0.5), (0.4, 1.0)), "positions = .*symmetric"),
        ("positions", ((1.0, 2.0), (2.0, 1.0)), "positions = .*semidefinite"),
        ("positions", ((1.0,),), "positions = .*2 x 2"),
        ("omega", 1.1, "omega = 1.1: must be a number in"),
        ("alpha", 0, "alpha = 0: must be a finite number > 0"),
        ("lam", np.nan, "lam = nan: must be a finite number > 0"),
    ],
)
def test_rejects_bad_fields_of_the_problem(field, value, message):
    fields = {"alpha": 1.0, "omega": 0.3, "A": LAYER.A, field: value}
    with pytest.raises(ValueError, match=message):
        GeneralAttention(**fields)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("alpha", 0.0, "alpha = 0.0: must be a finite number > 0"),
        ("alpha", "2", "alpha = '2': must be a finite number > 0"),
        ("lam", 0.0, "lam = 0.0: must be a finite number > 0"),
        ("lam", -1.0, "lam = -1.0: must be a finite number > 0"),
        ("Delta", -0.1, "Delta = -0.1: must be a finite number >= 0"),
        ("Delta", np.inf, "Delta = inf: must be a finite number >= 0"),
        ("kappa", 0, "kappa = 0: must be a finite number > 0"),
        ("kappa", True, "kappa = True: must be a finite number > 0"),
        ("n_tokens", 1, "n_tokens = 1: must be an integer >= 2"),
        ("n_tokens", 2.0, "n_tokens = 2.0: must be an integer >= 2"),
        ("beta", 0.0, "beta = 0.0: must be a finite number > 0"),
        ("beta0", -1.0, "beta0 = -1.0: must be a finite number > 0"),
        ("target", 0.5, "target = 0.5: must be one of MarchenkoPastur, PowerLaw, FiniteRank"),
        ("target", FiniteRank(eigenvalues=[0.0]), "target = FiniteRank.*with an eigenvalue > 0"),
    ],
)
def test_rejects_bad_fields_of_a_single_head(field, value, message):
    fields = {"alpha": 0.5, "lam": 0.01, "Delta": 0.5, "kappa": 1.0, "target": MarchenkoPastur(kappa0=0.5)}
    SingleHead(**fields)
    with pytest.raises(ValueError, match=message):
        SingleHead(**{**fields, field: value})


@pytest.mark.parametrize(
    ("law", "fields", "message"),
    [
        (MarchenkoPastur, {"kappa0": 0.0}, "kappa0 = 0.0: must be a finite number > 0"),
        (MarchenkoPastur, {"kappa0": np.nan}, "kappa0 = nan: must be a finite number > 0"),
        (PowerLaw, {"gamma": 0.5, "d": 100}, "gamma = 0.5: must be a finite number > 1/2"),
        (PowerLaw, {"gamma": 1.0, "d": 0}, "d = 0: must be an integer >= 1"),
        (FiniteRank, {"eigenvalues": []}, "eigenvalues = .*at least one"),
        (FiniteRank, {"eigenvalues": [1.0, -0.1]}, "eigenvalues = .*numbers >= 0"),
        (FiniteRank, {"eigenvalues": 3.0}, "eigenvalues = 3.0: must be a sequence"),
        (FiniteRank, {"eigenvalues": [3.0, 1.0], "d": 1}, "d = 1: must be an integer >= 2"),
    ],
)
def test_rejects_bad_targets(law, fields, message):
    with pytest.raises(ValueError, match=message):
        law(**fields)


@pytest.fixture(scope="module")
def solution():
    return ps.solve(PROBLEM, "semantic", accuracy=1e-2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: first_overlaps(PROBLEM, "semantic", signal=0.3, noise=0, V=12.5), "q = 0.0225: must be"),
        (lambda: first_overlaps(PROBLEM, "semantic", signal=np.nan, noise=0.3, V=12.5), "q = nan: must be"),
        (lambda: first_overlaps(PROBLEM, "semantic", signal=0.3, noise=0.3, V=-1), "V = -1: must be"),
        (lambda: evolve(PROBLEM, ps.Overlaps(0.001, 0.0, 0.05, 12.0), n_iter=2), "q = 0.001: must be"),
        (lambda: evolve(PROBLEM, ps.Overlaps(0.1, 0.0, 0.05, 1e8), n_iter=2), "V = 100000000.0: must be"),
        (lambda: evolve(PROBLEM, ps.Overlaps(0.1, 0.0, 0.05, 12.0), n_iter=True), "n_iter = True: must be"),
        (lambda: evolve(PROBLEM, ps.Overlaps(0.1, 0.0, 0.05, 12.0), n_iter=1, log2_points=1.5), "log2_points = 1.5"),
        (lambda: plateau(PROBLEM, ps.Overlaps(0.1, 0.0, 0.05, 12.0), n_iter=5), "n_iter / 4 = 1.25: must be"),
        (lambda: plateau(PROBLEM, ps.Overlaps(0.1, 0.0, 0.05, np.nan)), "V = nan: must be"),
        (lambda: population_error(PROBLEM, kappa=np.nan), "kappa = nan: must be"),
        (lambda: population_error(PROBLEM, kappa=1.0, step=100), "step = 100: must be"),
        (lambda: transitions.locate_alpha_c(0.3, guess=-1), "guess = -1: must be"),
        (lambda: general_layer.solve(LAYER, n_points=64.0), "n_points = 64.0: must be"),
        (lambda: general_layer.solve(LAYER, n_points=96), "n_points = 96: must be a power of 2"),
        (lambda: general_layer.solve(LAYER, n_replicates=2.5), "n_replicates = 2.5: must be"),
        (lambda: general_layer.solve(LAYER, seed=-1), "seed = -1: must be"),
        (lambda: general_layer.solve(LAYER, guess="here"), "guess = str: must be finite Hats"),
        (lambda: extrapolate([1, 2, 3], [1, np.nan, 1], [1, 1, 1]), "must be finite numbers"),
        (lambda: extrapolate([1, 2, 3], [1, 1], [1, 1, 1]), "must be finite numbers, as many of each"),
        (
            lambda: GeneralAttention(alpha=1, omega=0, A=LAYER.A, positions=[[1e308, -1e308], [-1e308, 1e308]]),
            "positions",
        ),
        (lambda: train_general(LAYER, d=20, seeds=[0], scales=(1e200,), device="cpu"), "scales = .*finite loss"),
        (lambda: train_positional_semantic(PROBLEM, d=20, seeds=[0], scales=(1e200,), device="cpu"), "scales = "),
    ],
)
def test_rejects_values_out_of_range(call, message):
    with pytest.raises(ValueError, match=message), np.errstate(all="ignore"):
        call()


def test_rejects_what_cannot_break(solution):
    for y in (-1.0, 1e-12, 1e8, "a"):
        with pytest.raises(ValueError, match=f"y = {y!r}: must be"):
            solve_broken(solution, y)
    with pytest.raises(ValueError, match="n_line = 0: must be"):
        solve_broken(solution, 100.0, n_line=0)
    with pytest.raises(ValueError, match="distance = 1e-20: must be"):
        distance_map(solution, 1e-20)
    with pytest.raises(ValueError, match="log2_points = -1: must be"):
        replicon(solution, log2_points=-1)


def test_rejects_hats_of_another_branch():
    positional = general_layer.solve(LAYER, "positional", n_points=64, n_replicates=2)
    with pytest.raises(ValueError, match="guess with theta_hat = 0"):
        general_layer.solve(LAYER, "semantic", guess=positional.hats)


def test_rejects_a_map_that_leaves_the_numbers():
    with pytest.raises(ConvergenceError):
        anderson(lambda x: x * np.nan, np.array([1.0]), tol=1e-9)


def test_identity_weights_may_be_an_array():
    kind = {"alpha": 1, "omega": 0, "A": LAYER.A, "spectrum_values": [[1, 2], [2, 1]]}
    assert GeneralAttention(spectrum_weights=np.array([0.5, 0.5]), **kind) == GeneralAttention(
        spectrum_weights=(0.5, 0.5), **kind
    )


def test_identity_a_run_that_overflows_does_not_hide_the_others():
    with np.errstate(all="ignore"):
        e = train_positional_semantic(PROBLEM, d=20, seeds=[0], scales=(1.0, 1e200), n_test=2, device="cpu")
    assert np.isfinite(e.train_loss).all() and e.scale[0] == 1.0


def test_identity_a_start_that_overflows_is_reported_as_diverged():
    starts = Start(random=1e200), Start(semantic=1.0)
    with np.errstate(all="ignore"):
        e = train_by_descent(PROBLEM, d=20, seeds=[0], starts=starts, n_steps=3, learning_rate=0.15, device="cpu")
    assert e.diverged.tolist() == [[True, False]]


@pytest.mark.parametrize("argument", [{"signal": 1e200}, {"V": 1e300}])
def test_identity_message_passing_that_overflows_is_reported_as_diverged(argument):
    with np.errstate(all="ignore"):
        e = train_by_amp(PROBLEM, d=20, seeds=[0], n_iter=3, **argument)
    assert e.diverged.all()


def test_identity_a_search_says_when_its_start_has_left_the_branch():
    found = search_lower_minima(PositionalSemantic(alpha=3.0, omega=0.9), d=40, seeds=[0], n_rounds=1, n_runs=1)
    larger = found.theta / PROBLEM.rho > found.m
    assert found.on_branch.tolist() == larger.tolist()


def test_closed_form_rates_where_no_direction_grows():
    for problem in (
        PositionalSemantic(alpha=20, omega=1, A=((0.2, 0.8), (0.8, 0.2))),
        PositionalSemantic(alpha=1.0, omega=0.3, sigma=1e-3),
    ):
        rates = escape_rates(problem)
        assert np.isfinite(rates).all()
        assert rates.positional >= rates.bulk


def test_agrees_with_the_transition_from_a_start_below_both_births():
    found = transitions.locate_alpha_c(0.3, guess=0.05, accuracy=1e-2)
    near = transitions.locate_alpha_c(0.3, guess=1.25, accuracy=1e-2)
    assert abs(found.alpha - near.alpha) < found.error + near.error


SINGLE = SingleHead(alpha=0.5, lam=0.01, Delta=0.5, kappa=1.0, target=MarchenkoPastur(kappa0=0.5))


def test_identity_parameters_are_python_numbers():
    """Numbers of small numpy types would overflow or lose precision on their way."""
    problem = SingleHead(
        alpha=np.float32(0.5), lam=np.float64(0.01), Delta=np.float16(0.5), kappa=np.uint8(1), target=SINGLE.target
    )
    assert {type(getattr(problem, name)) for name in ("alpha", "lam", "Delta", "kappa", "beta")} == {float}
    assert PowerLaw(gamma=np.uint8(1), d=np.int8(100)).upper == 10.0
    run = train_by_matrix_amp(SINGLE, d=np.uint8(20), seeds=[0], n_iter=1)
    assert run.settings.n == 200


def test_identity_a_student_as_wide_as_its_target():
    """The rank of the solution exceeds kappa by rounding only."""
    problem = SingleHead(alpha=1.0, lam=0.01, Delta=0.0, kappa=0.5, target=MarchenkoPastur(kappa0=0.5))
    assert abs(single_head.solve(problem).rank - 0.5) < 1e-9


def test_rejects_eigenvalues_of_no_size():
    with pytest.raises(ValueError, match="target = .*finite second moment"):
        SingleHead(alpha=0.5, lam=0.01, Delta=0.5, kappa=1.0, target=FiniteRank(eigenvalues=[1e-200]))
    with pytest.raises(ValueError, match="eigenvalues = .*up to 1e100"):
        FiniteRank(eigenvalues=[1e200])


def test_rejects_results_of_another_kind():
    problem = SingleHead(alpha=2.0, lam=0.1, Delta=0.5, kappa=1.0, target=MarchenkoPastur(kappa0=0.5))
    for other in (solve_untied(problem, accuracy=1e-2), single_head.solve_direct(problem, accuracy=1e-2)):
        with pytest.raises(ValueError, match=r"solution of type .*single_head\.solve"):
            matrix_replicon(other)
        with pytest.raises(ValueError, match=r"result of type|epsilon = None"):
            learned_spectrum(other)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: train_by_matrix_amp(SINGLE, d=20, seeds=[0], n_test=10**14), "n_test = .*bytes"),
        (lambda: train_variant(SINGLE, d=20, seeds=[0], n_test=10**14), "n_test = .*bytes"),
        (lambda: train_single_head(SINGLE, d=20, seeds=[0], n_test=10**14, device="cpu"), "n_test.*bytes"),
        (lambda: train_single_head(SINGLE, d=20, seeds=[2**70], device="cpu"), "seeds = .*< 2"),
        (
            lambda: train_single_head(SINGLE, d=20, seeds=[0], device="cpu", checkpoint="no/such/x"),
            "checkpoint = .*dir",
        ),
        (lambda: train_single_head(SINGLE, d=20, seeds=[0], device="cpu", checkpoint=""), "checkpoint = "),
        (lambda: train_on_gaussians(SINGLE, d=20, seeds=[0], tolerance=None), "tolerance = None"),
        (lambda: pair_response(SINGLE.target, 0.0, 0.1), "delta = 0.0: must be a finite number > 0"),
    ],
)
def test_rejects_before_anything_is_drawn(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_rejects_a_file_that_is_no_checkpoint(tmp_path):
    for name, content in (("empty", b""), ("text", b"abc"), ("broken", b"PK\x03\x04 no archive")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match="must be a file that a training wrote"):
            train_single_head(SINGLE, d=10, seeds=[0], device="cpu", checkpoint=tmp_path / name)


def test_identity_an_evolution_that_collapses_says_how_far_it_got():
    problem = SingleHead(alpha=0.5, lam=10.0, Delta=0.5, kappa=1.0, target=MarchenkoPastur(kappa0=0.5))
    with pytest.raises(ConvergenceError, match="above the whole spectrum") as caught:
        matrix_evolution.evolve(problem, n_iter=3)
    assert len(caught.value.partial) == 1
