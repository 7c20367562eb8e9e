"""Time and accuracy of the state evolution of Part II, and one point of it against the plain way.

The plain way iterates the map itself, damped by one half, on one rule without symmetries, and searches the prox of
every node from scratch in every update. Times are those of the processor.

python benchmarks/single_head.py
"""

import time

import numpy as np
from scipy.special import expit

from attn_lib.fixed_point import ConvergenceError
from attn_lib.gaussian import gaussian_ball
from attn_lib.problems import MarchenkoPastur, PowerLaw, SingleHead
from attn_lib.theory import single_head as sh
from attn_lib.theory.attention_channel import TwoTokenChannel
from attn_lib.theory.attention_prox import loss_terms, lowest
from attn_lib.theory.single_head_iteration import starting_point
from attn_lib.theory.spectral_prior import Hats, prior


def timed(function, *args, **kwargs):
    start = time.process_time()
    result = function(*args, **kwargs)
    return result, time.process_time() - start


def plain_averages(problem, overlaps, nodes, weight):
    """E g^T C g, E omega.g and E z0.g over all nodes."""
    m, q, Sigma = overlaps
    Q_prime = problem.target.second_moment + problem.Delta / 2
    root = np.array([[2**0.5, 1], [2**0.5, -1]])
    z0 = Q_prime**0.5 * root @ nodes[:2]
    omega = m / Q_prime * z0 + (q - m**2 / Q_prime) ** 0.5 * root @ nodes[2:]
    target = expit(problem.beta0 * z0)
    _, g, _, _ = loss_terms(lowest(omega, target, problem.beta, Sigma), target, problem.beta)
    g_g = 3 * (g**2).sum(axis=0) + 2 * g[0] * g[1]
    return [weight @ term for term in (g_g, (omega * g).sum(axis=0), (z0 * g).sum(axis=0))]


def plain(problem, n, radius, tol=1e-11):
    """The fixed point on one rule, and the number of updates."""
    nodes, weight = gaussian_ball(radius / n, radius, [False] * 4)
    weight = weight / weight.sum()
    Q_prime = problem.target.second_moment + problem.Delta / 2
    hats = starting_point(TwoTokenChannel(problem))
    for n_iter in range(1, 400):
        o = prior(problem, hats).overlaps
        g_g, omega_g, z0_g = plain_averages(problem, o, nodes, weight)
        A, B = np.linalg.solve([[o.q, o.m], [o.m, Q_prime]], [omega_g, z0_g])
        new = Hats(-2 * problem.alpha * B, 2 * problem.alpha * g_g, 2 * problem.alpha * A)
        change = np.abs(np.log(new) - np.log(hats))
        hats = Hats(*np.exp((np.log(new) + np.log(hats)) / 2))
        if change.max() < tol:
            return hats, n_iter
    raise ConvergenceError("no fixed point")


POINT = {"lam": 0.01, "Delta": 0.5, "kappa": 1.0, "target": MarchenkoPastur(kappa0=0.5)}
CASES = [
    ("alpha = 0.5", {**POINT, "alpha": 0.5}),
    ("alpha = 2", {**POINT, "alpha": 2.0}),
    ("alpha = 0.05", {**POINT, "alpha": 0.05}),
    ("alpha = 0.15, lam = 1e-3", {**POINT, "alpha": 0.15, "lam": 1e-3}),
    ("alpha = 1, lam = 1e-4, Delta = 0", {**POINT, "alpha": 1.0, "lam": 1e-4, "Delta": 0.0}),
    ("alpha = 0.5, power law, d = 400", {**POINT, "alpha": 0.5, "target": PowerLaw(gamma=1.0, d=400)}),
]

if __name__ == "__main__":
    print("solutions at the default accuracy, lam = 0.01, Delta = 0.5, kappa0 = 0.5 unless said")
    for name, fields in CASES:
        solution, seconds = timed(sh.solve, SingleHead(**fields))
        values = {**solution.overlaps._asdict(), "test_error": solution.test_error, "train_loss": solution.train_loss}
        error = max(solution.quadrature_error[key] / value for key, value in values.items())
        print(f"  {name:34s} {seconds:6.2f} s, {solution.n_iter:3d} updates, error {error:.0e}", flush=True)

    problem = SingleHead(**CASES[1][1])
    (hats, n_iter), slow = timed(plain, problem, 14, 6.5)
    solution, fast = timed(sh.solve, problem)
    difference = max(abs(a / b - 1) for a, b in zip(hats, solution.hats, strict=True))
    print(f"alpha = 2: the plain way on the last rule {slow:.1f} s, {n_iter} updates; attn_lib {fast:.2f} s with all")
    print(f"  its rules, {slow / fast:.0f} times as fast; the conjugates differ by {difference:.0e}")
