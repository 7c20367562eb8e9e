"""Time and accuracy of the state evolution, against the plain way: a tensor rule with the prox solved at each node.

python benchmarks/state_evolution.py
"""

import time

import numpy as np
from numpy.polynomial.hermite_e import hermegauss

from attn_lib.problems import PositionalSemantic
from attn_lib.proximal import attention_diagonal, prox
from attn_lib.theory import positional_semantic as ps
from attn_lib.theory import transitions
from attn_lib.theory.cavity import Rule, cavity_averages


def timed(function, *args, **kwargs):
    start = time.perf_counter()
    result = function(*args, **kwargs)
    return result, time.perf_counter() - start


def tensor_rule(problem, overlaps, degree):
    """E|g|^2 by the product rule of this degree in the four standard Gaussians."""
    x, weight = hermegauss(degree)
    nodes = np.stack(np.meshgrid(*[x] * 4, indexing="ij")).reshape(4, -1)
    weights = np.prod(np.meshgrid(*[weight / weight.sum()] * 4, indexing="ij"), axis=0).ravel()
    q, m, theta, V = overlaps
    star = np.sqrt(problem.rho) * nodes[:2]
    w = theta / problem.rho * star + np.sqrt(q - theta**2 / problem.rho) * nodes[2:]
    w[0] += np.sqrt(2) * m
    T11, T22 = (
        (1 - problem.omega) * S + problem.omega * A
        for S, A in zip(attention_diagonal(*star), np.diag(problem.A), strict=True)
    )
    u, v, _ = prox(*w, T11, T22, V, problem.sigma)
    return float((weights * ((u - w[0]) ** 2 + (v - w[1]) ** 2)).sum() / V**2)


problem = PositionalSemantic(alpha=1.5, omega=0.3)
print("fixed points at alpha = 1.5, omega = 0.3")
for start in ("semantic", "positional"):
    for accuracy in (1e-4, 1e-6):
        solution, seconds = timed(ps.solve, problem, start, accuracy=accuracy)
        error = max(
            e / abs(v)
            for e, v in zip(list(solution.quadrature_error.values())[:4], solution.overlaps, strict=True)
            if v
        )
        print(f"  {start:10s} accuracy {accuracy:.0e}: {seconds:5.2f} s, {solution.n_iter} updates, error {error:.0e}")

for name in ("alpha_c", "alpha_l"):
    value, seconds = timed(getattr(transitions, name), 0.3)
    print(f"{name}(omega = 0.3) = {value:.5f} in {seconds:.1f} s")

print("one average, E|g|^2 on the positional branch")
overlaps = ps.solve(problem, "positional").overlaps
reference = cavity_averages(problem, overlaps, Rule(n_teacher=28, n_inner=40, step=0.4, radius=7.0)).g_g
for rule in (
    Rule(n_teacher=9, n_inner=18, step=0.9, radius=5.75),
    Rule(n_teacher=12, n_inner=24, step=0.675, radius=6.25),
):
    value, seconds = timed(cavity_averages, problem, overlaps, rule)
    error = abs(value.g_g / reference - 1)
    print(f"  split at the jump, {rule.n_teacher} points: {seconds:6.3f} s, relative error {error:.0e}")
for degree in (7, 15, 25):
    value, seconds = timed(tensor_rule, problem, overlaps, degree)
    print(f"  tensor Gauss-Hermite, degree {degree}: {seconds:6.3f} s, relative error {abs(value / reference - 1):.0e}")
