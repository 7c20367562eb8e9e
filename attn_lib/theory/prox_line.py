r"""The proximal operator along lines of constant :math:`w_v`, as quadrature nodes that respect its jumps.

In the coordinates u, v of :mod:`attn_lib.proximal` let v(u) be the minimiser of the Moreau objective at given u. With

.. math:: \Psi(u) = \tfrac12 u^2 + \min_v\big[\tfrac12(v-w_v)^2 + V\ell(u,v)\big]

the objective is, up to a constant, :math:`[\Psi(u) - u\,w_u]/V`. Its global minima for all :math:`w_u` are the points
where :math:`\Psi` touches its lower convex envelope. There :math:`w_u=\Psi'(u) = u+V\ell_u(u,v(u))` is explicit: the
integral over :math:`w_u` becomes one over u, and no proximal operator needs to be solved. Where :math:`\Psi` lies
above its envelope the operator jumps, between the two points of a common tangent (Maxwell's rule). A line may have any
number of jumps.
"""

import numpy as np
from numpy.polynomial.legendre import leggauss

from attn_lib.proximal import descend, loss, loss_derivatives, moreau_objective

__all__ = ["ProxLine"]


class ProxLine:
    """Lines of constant w_v through the prox, one for each entry of the arrays w_v, T11, T22 (shape (N,)).

    Parameters
    ----------
    w_v, T11, T22 : arrays, shape (N,)
        Second coordinate of the cavity field, diagonal of the target mixing.
    V, sigma : float
        Response and token standard deviation.
    """

    def __init__(self, w_v, T11, T22, V, sigma):
        self.w_v, self.T11, self.T22, self.V, self.sigma = w_v, T11, T22, V, sigma

    def __getitem__(self, index):
        return ProxLine(self.w_v[index], self.T11[index], self.T22[index], self.V, self.sigma)

    def nodes(self, low, high, n):
        """Quadrature nodes on the global minima from w_u = low to w_u = high.

        Parameters
        ----------
        low, high : arrays, shape (N,)
        n : int
            Gauss-Legendre points on each piece of a line between jumps; 2 n on a line without jump.

        Returns
        -------
        tuple of flat arrays
            (line, u, v, w_u, weight): index of the line, the point (u, v) = prox(w_u, w_v), weight in w_u.
        """
        start, end = self._lowest(low), self._lowest(high)
        u, v, w_u, slope, du = self._curve(start, end, 2 * n)
        jumps = (slope < 0).any(axis=1) | (np.diff(w_u, axis=1) < 0).any(axis=1)
        line = np.broadcast_to(np.arange(len(u))[:, None], u.shape)
        smooth = [x[~jumps].ravel() for x in (line, u, v, w_u, slope * du)]
        cut = np.flatnonzero(jumps)
        if not cut.size:
            return smooth
        begin, stop, piece = self[cut]._pieces(
            start[:, cut], end[:, cut], u[cut], v[cut], slope[cut], low[cut], high[cut]
        )
        u, v, w_u, slope, du = self[cut[piece]]._curve(begin, stop, n)
        line = np.broadcast_to(cut[piece][:, None], u.shape)
        return [np.concatenate([a, b.ravel()]) for a, b in zip(smooth, (line, u, v, w_u, slope * du), strict=True)]

    def jumps(self, low, high, n):
        """Jumps of the prox between w_u = low and w_u = high.

        Parameters
        ----------
        low, high, n
            As in :meth:`nodes`.

        Returns
        -------
        tuple of arrays
            (line, left, right, w_u): index of the line, the two wells (u, v), each of shape (2, M), and where they tie.
        """
        start, end = self._lowest(low), self._lowest(high)
        u, v, w_u, slope, _ = self._curve(start, end, 2 * n)
        cut = np.flatnonzero((slope < 0).any(axis=1) | (np.diff(w_u, axis=1) < 0).any(axis=1))
        if not cut.size:
            return cut, np.zeros((2, 0)), np.zeros((2, 0)), np.zeros(0)
        begin, stop, piece = self[cut]._pieces(
            start[:, cut], end[:, cut], u[cut], v[cut], slope[cut], low[cut], high[cut]
        )
        follows = piece[1:] == piece[:-1]
        left, right, line = stop[:, :-1][:, follows], begin[:, 1:][:, follows], cut[piece[1:][follows]]
        l_u = loss_derivatives(*left, self.T11[line], self.T22[line], self.sigma)[0]
        return line, left, right, left[0] + self.V * l_u

    def _pieces(self, start, end, u, v, slope, low, high):
        """First points, last points and lines of the pieces that Maxwell's rule leaves of the curves (u, v)."""
        u, v = (np.concatenate([a[:, None], x, b[:, None]], axis=1) for a, x, b in zip(start, (u, v), end, strict=True))
        w_v, T11, T22 = self.w_v[:, None], self.T11[:, None], self.T22[:, None]
        psi = (u**2 + (v - w_v) ** 2) / 2 + self.V * loss(u, v, T11, T22, self.sigma)
        w_u = u + self.V * loss_derivatives(u, v, T11, T22, self.sigma)[0]
        # height of every node over the tangent at every node: where some are negative the tangent point is no minimum
        height = psi[:, None, :] - psi[:, :, None] - w_u[:, :, None] * (u[:, None, :] - u[:, :, None])
        removed = height.min(axis=2) < -1e-13
        removed[:, 1:-1] |= slope < 0
        removed[:, [0, -1]] = False
        line, before = np.nonzero(~removed[:, :-1] & removed[:, 1:])
        after = np.nonzero(removed[:, :-1] & ~removed[:, 1:])[1] + 1
        chord = (psi[line, after] - psi[line, before]) / (u[line, after] - u[line, before])
        left, right = (np.stack([u[line, k], v[line, k]]) for k in (before, after))
        left, right = self[line]._tie(left, right, chord, low[line], high[line])
        every = np.arange(len(u))
        first = np.argsort(np.concatenate([every, line]), kind="stable")
        last = np.argsort(np.concatenate([line, every]), kind="stable")
        begin, stop = np.concatenate([start, right], axis=1), np.concatenate([left, end], axis=1)
        return begin[:, first], stop[:, last], np.concatenate([every, line])[first]

    def _tie(self, left, right, w_u, low, high):
        """The two wells that tie, by Newton's method in w_u from a guess; at the nearer end if they tie beyond it."""
        for _ in range(20):
            left, right = self._descend(*left, w_u), self._descend(*right, w_u)
            gap = right[0] - left[0]
            uneven = self.V * (self._moreau(*right, w_u) - self._moreau(*left, w_u))
            step = np.where(gap > 1e-4, uneven / np.maximum(gap, 1e-4), 0.0)  # merged wells leave nothing to cut out
            if np.abs(step).max() < 1e-9:
                break
            w_u = w_u + np.clip(step, -0.3, 0.3)
        w_u = np.clip(w_u, low, high)
        return self._descend(*left, w_u), self._descend(*right, w_u)

    def _lowest(self, w_u, spacing=0.3):
        """Global minimum at w_u: downhill from the lowest point of a grid over the disc that must hold it."""
        radius = np.sqrt(2 * self.V * loss(w_u, self.w_v, self.T11, self.T22, self.sigma))
        n = 2 * int(np.ceil(radius.max() / spacing)) + 1
        x, y = np.meshgrid(np.linspace(-1, 1, n), np.linspace(-1, 1, n))
        inside = np.hypot(x, y) <= 1
        u, v = w_u + radius * x[inside][:, None], self.w_v + radius * y[inside][:, None]
        best = self._moreau(u, v, w_u).argmin(axis=0), np.arange(w_u.size)
        return self._descend(u[best], v[best], w_u)

    def _curve(self, start, end, n):
        """Gauss-Legendre nodes in u between two points: (u, v(u), w_u, dw_u/du, weight in u), each of shape (N, n)."""
        x, weight = leggauss(n)
        half = ((end[0] - start[0]) / 2)[:, None]
        u = start[0][:, None] + half * (1 + x)
        guess = start[1][:, None] + (end[1] - start[1])[:, None] / 2 * (1 + x)
        w_v, T11, T22 = (np.broadcast_to(a[:, None], u.shape) for a in (self.w_v, self.T11, self.T22))
        v = self._valley(u, guess, w_v, T11, T22)
        l_u, _, l_uu, l_uv, l_vv = loss_derivatives(u, v, T11, T22, self.sigma)
        slope = 1 + self.V * l_uu - (self.V * l_uv) ** 2 / (1 + self.V * l_vv)
        return u, v, u + self.V * l_u, slope, half * weight

    def _valley(self, u, v, w_v, T11, T22):
        """v(u), by Newton's method inside a bracket from a guess."""
        strength = self.V * self.sigma**2
        bound = strength * np.abs(u)  # of |V l_v|
        low, high = w_v - bound, w_v + bound
        # -l_vv < 2 sigma^2 u^2 (c(T11) + c(T22)) with c convex and even about 1/2, below the chord from .0213 to .0602:
        # if V times that exceeds 1 there may be several minima in v
        several = strength * u**2 * (0.0852 + 0.0778 * (np.abs(2 * T11 - 1) + np.abs(2 * T22 - 1))) > 1
        if several.any():
            v, low, high = v.copy(), low.copy(), high.copy()
            v[several], low[several], high[several] = self._bracket(
                u[several], w_v[several], T11[several], T22[several]
            )
        for trial in range(100):
            _, l_v, _, _, l_vv = loss_derivatives(u, v, T11, T22, self.sigma)
            excess = v + self.V * l_v - w_v
            if np.abs(excess).max() < 1e-10:
                return v
            low, high = np.where(excess < 0, v, low), np.where(excess > 0, v, high)
            v = v - excess / (1 + self.V * l_vv)
            v = np.where((v >= low) & (v <= high) & (trial < 30), v, (low + high) / 2)
        raise FloatingPointError(f"line of constant w_v: no minimum in v found at V = {self.V:.3g}")

    def _bracket(self, u, w_v, T11, T22, n=33):
        """The lowest of n values of v in the range that must hold the minimum, and its two neighbours."""
        radius = np.sqrt(2 * self.V * loss(u, w_v, T11, T22, self.sigma))
        grid = w_v + radius * np.linspace(-1, 1, n)[:, None]
        values = moreau_objective(u, grid, u, w_v, T11, T22, self.V, self.sigma)
        best = values.argmin(axis=0).clip(1, n - 2)[None]
        return tuple(np.take_along_axis(grid, best + k, axis=0)[0] for k in (0, -1, 1))

    def _descend(self, u, v, w_u):
        return np.array(descend(u, v, w_u, self.w_v, self.T11, self.T22, self.V, self.sigma))

    def _moreau(self, u, v, w_u):
        return moreau_objective(u, v, w_u, self.w_v, self.T11, self.T22, self.V, self.sigma)
