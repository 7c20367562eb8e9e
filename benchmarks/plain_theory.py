"""The theory by textbook means: what the benchmarks compare attn_lib.theory and attn_lib.spectra with.

Gaussian averages by a tensor product of Gauss-Hermite rules, the proximal operator at each of its nodes, an iteration
of the state evolution damped by one half, and the free convolution on a grid. The proximal operator is that of
attn_lib, which favours the plain way.
"""

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from scipy.optimize import minimize
from scipy.special import expit

from attn_lib.proximal import attention_diagonal, loss_derivatives, moreau_objective, prox
from attn_lib.theory.attention_prox import loss_terms, lowest
from attn_lib.theory.positional_semantic import Overlaps


def tensor_rule(degree):
    """Nodes (4, degree^4) and weights of four standard Gaussians."""
    x, weight = hermegauss(degree)
    nodes = np.stack(np.meshgrid(*[x] * 4, indexing="ij")).reshape(4, -1)
    return nodes, np.prod(np.meshgrid(*[weight / weight.sum()] * 4, indexing="ij"), axis=0).ravel()


def damped(update, x, tol=1e-6, max_iter=100):
    """The iteration of x = update(x), damped by one half: the last x, and the number of updates.

    Where the rule jumps with x, which it does when a node crosses a jump of the proximal operator, it may not settle.
    """
    for n_iter in range(1, max_iter + 1):
        new = update(x)
        change = np.abs(new - x).max() / np.abs(x).max()
        x = (x + new) / 2
        if change < tol:
            return x, n_iter
    return x, max_iter


# Part I


def cavity_averages(problem, overlaps, nodes, weights):
    """E of g_u, |g|^2, g.zeta and g.h*."""
    q, m, theta, V = overlaps
    star = np.sqrt(problem.rho) * nodes[:2]
    w = theta / problem.rho * star + np.sqrt(q - theta**2 / problem.rho) * nodes[2:]
    w[0] += np.sqrt(2) * m
    targets = zip(attention_diagonal(*star), np.diag(problem.A), strict=True)
    T11, T22 = ((1 - problem.omega) * S + problem.omega * A for S, A in targets)
    u, v, _ = prox(*w, T11, T22, V, problem.sigma)
    g = (np.stack([u, v]) - w) / V
    return weights @ np.stack([g[0], (g**2).sum(0), (g * nodes[2:]).sum(0), (g * star).sum(0)]).T


def positional_semantic(problem, start, degree):
    """Overlaps at the fixed point, and the number of updates."""
    nodes, weights = tensor_rule(degree)
    alpha, rho, variance = problem.alpha, problem.rho, problem.sigma**2

    def update(overlaps):
        q, m, theta, V = overlaps
        g_u, g_g, g_zeta, g_star = cavity_averages(problem, overlaps, nodes, weights)
        V_hat = -alpha * g_zeta / np.sqrt(q - theta**2 / rho)
        m_hat = np.sqrt(2) * alpha * g_u * (start == "positional")
        theta_hat = (alpha * g_star + theta * V_hat) / rho * (start == "semantic")
        D = problem.lam + variance * V_hat
        q = variance * (variance * alpha * g_g + m_hat**2 + variance * rho * theta_hat**2) / D**2
        return np.array([q, m_hat / D, variance * rho * theta_hat / D, variance / D])

    m, theta = (0.3, 0.0) if start == "positional" else (0.0, 0.5 * rho)
    overlaps, n_iter = damped(update, np.array([0.4 * rho, m, theta, 10.0]))
    return Overlaps(*overlaps), n_iter


def prox_point_by_point(w_u, w_v, T11, T22, V, sigma):
    """The Moreau envelope at each point, by scipy.optimize from either side of u = 0."""
    found = []
    for point in zip(w_u, w_v, T11, T22, strict=True):
        w, T = np.array(point[:2]), point[2:]

        def value(z, w=w, T=T):
            return moreau_objective(*z, *w, *T, V, sigma)

        def slope(z, w=w, T=T):
            return (z - w) / V + loss_derivatives(*z, *T, sigma)[:2]

        starts = (w, w * [-1, 1])
        found.append(min(minimize(value, z, jac=slope, method="BFGS").fun for z in starts))
    return np.array(found)


# Part II


def tail(law, delta, eps, n_grid=1000, n_iter=3000):
    """Mass, J1, J and dJ/d(delta) above eps: Pastur's equation iterated just above a grid, and the trapezoidal rule."""
    x, step = np.linspace(eps, law.upper + 2.2 * delta, n_grid, retstep=True)
    z = x + 1e-4j * delta
    G = 1 / (z - law.mean)
    for _ in range(n_iter):
        previous, G = G, (G + law.resolvent(z - delta**2 * G)) / 2
        if np.abs(G - previous).max() < 1e-9 / delta:
            break
    density, above = -G.imag / np.pi, x - eps
    terms = [density, above * density, above**2 * density, 4 * delta * above * density * G.real]
    return [float(np.trapezoid(f, dx=step)) for f in terms]


def channel_averages(problem, overlaps, nodes, weights):
    """E of g.C g, omega.g and z0.g."""
    m, q, Sigma = overlaps
    Q_prime = problem.target.second_moment + problem.Delta / 2
    root = np.array([[2**0.5, 1], [2**0.5, -1]])
    z0 = Q_prime**0.5 * root @ nodes[:2]
    omega = m / Q_prime * z0 + (q - m**2 / Q_prime) ** 0.5 * root @ nodes[2:]
    target = expit(problem.beta0 * z0)
    _, g, _, _ = loss_terms(lowest(omega, target, problem.beta, Sigma), target, problem.beta)
    g_g = 3 * (g**2).sum(axis=0) + 2 * g[0] * g[1]
    return weights @ np.stack([g_g, (omega * g).sum(axis=0), (z0 * g).sum(axis=0)]).T


def single_head(problem, degree):
    """Conjugates at the fixed point, and the number of updates."""
    nodes, weights = tensor_rule(degree)
    Q_prime = problem.target.second_moment + problem.Delta / 2

    def update(log_hats):
        m_hat, q_hat, Sigma_hat = np.exp(log_hats)
        eta, delta, eps = m_hat / Sigma_hat, q_hat**0.5 / m_hat, 2 * problem.kappa**0.5 * problem.lam / m_hat
        _, J1, J, d1J = tail(problem.target, delta, eps)
        m, q = eta * (J + eps * J1 - delta / 2 * d1J), eta**2 * J
        g_g, omega_g, z0_g = channel_averages(problem, (m, q, d1J / (2 * delta * Sigma_hat)), nodes, weights)
        A, B = np.linalg.solve([[q, m], [m, Q_prime]], [omega_g, z0_g])
        return np.log([-2 * problem.alpha * B, 2 * problem.alpha * g_g, 2 * problem.alpha * A])

    log_hats, n_iter = damped(update, np.log([0.1, 0.1, 0.1]) + np.log(problem.alpha))
    return np.exp(log_hats), n_iter


def rows_prox_point_by_point(omega, target, beta, Sigma):
    """The least value of the prox objective at each point, by scipy.optimize from the field and from the target."""
    C = np.array([[3, 1], [1, 3]])
    precision = np.linalg.inv(C)
    found = []
    for w, t in zip(omega.T, target.T, strict=True):

        def value(z, w=w, t=t):
            return Sigma * loss_terms(z, t, beta)[0].sum() + (z - w) @ precision @ (z - w) / 2

        def slope(z, w=w, t=t):
            return Sigma * loss_terms(z, t, beta)[1] + precision @ (z - w)

        starts = (w, np.log(t / (1 - t)) / beta)
        found.append(min(minimize(value, z, jac=slope, method="BFGS").fun for z in starts))
    return np.array(found)
