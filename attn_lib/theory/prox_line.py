r"""The proximal operator along lines of constant :math:`w_v`, as quadrature nodes that respect its jumps.

In the coordinates u, v of :mod:`attn_lib.proximal` let v(u) be the minimiser of the Moreau objective at given u. With

.. math:: \Psi(u) = \tfrac12 u^2 + \min_v\big[\tfrac12(v-w_v)^2 + V\ell(u,v)\big]

the objective is, up to a constant, :math:`[\Psi(u) - u\,w_u]/V`. Its global minima for all :math:`w_u` are the points
where :math:`\Psi` touches its lower convex envelope. There :math:`w_u=\Psi'(u) = u+V\ell_u(u,v(u))` is explicit: the
integral over :math:`w_u` becomes one over u, and no proximal operator needs to be solved. Where :math:`\Psi` lies
above its envelope the operator jumps, between the two points of a common tangent (Maxwell's rule). A line may have any
number of jumps.
"""

import functools

import numpy as np
from numpy.polynomial import legendre

from attn_lib.proximal import descend, loss, loss_expansion, lowest_starts, moreau_objective, right_point

__all__ = ["ProxLine", "leggauss"]

leggauss = functools.cache(legendre.leggauss)
_GRID = 100_000  # values of v at a time where a valley may have several minima: bounds the memory


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
        self.strength = V * sigma**2

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
        start, end = self._ends(low, high)
        u, v, w_u, slope, du, psi = self._curve(start, end, 2 * n)
        jumps = _decreases(w_u, slope)
        line = np.broadcast_to(np.arange(len(u))[:, None], u.shape)
        whole, cut = np.flatnonzero(~jumps), np.flatnonzero(jumps)
        smooth = [x.take(whole, axis=0).ravel() for x in (line, u, v, w_u, slope * du)]
        if not cut.size:
            return smooth
        curve = [x.take(cut, axis=0) for x in (u, v, w_u, slope, psi)]
        begin, stop, piece = self[cut]._pieces(start[:, cut], end[:, cut], *curve, low[cut], high[cut])
        u, v, w_u, slope, du, _ = self[cut[piece]]._curve(begin, stop, n)
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
        start, end = self._ends(low, high)
        u, v, w_u, slope, _, psi = self._curve(start, end, 2 * n)
        cut = np.flatnonzero(_decreases(w_u, slope))
        if not cut.size:
            return cut, np.zeros((2, 0)), np.zeros((2, 0)), np.zeros(0)
        curve = [x.take(cut, axis=0) for x in (u, v, w_u, slope, psi)]
        begin, stop, piece = self[cut]._pieces(start[:, cut], end[:, cut], *curve, low[cut], high[cut])
        follows = piece[1:] == piece[:-1]
        left, right, line = stop[:, :-1][:, follows], begin[:, 1:][:, follows], cut[piece[1:][follows]]
        return line, left, right, self[line]._w_u_and_psi(*left)[0]

    def _pieces(self, start, end, u, v, w_u, slope, psi, low, high):
        """First points, last points and lines of the pieces that Maxwell's rule leaves of the curves (u, v)."""
        first, last = ((*point, *self._w_u_and_psi(*point)) for point in (start, end))
        u, v, w_u, psi = (
            np.concatenate([a[:, None], x, b[:, None]], axis=1)
            for a, x, b in zip(first, (u, v, w_u, psi), last, strict=True)
        )
        # height over the tangent at each node, up to a constant: where some are lower the tangent point is no minimum
        height = np.multiply(w_u[:, :, None], u[:, None, :])
        np.subtract(psi[:, None, :], height, out=height)
        removed = height.min(axis=2) < psi - w_u * u - 1e-13
        removed[:, 1:-1] |= slope < 0
        removed[:, [0, -1]] = False
        line, before = np.nonzero(~removed[:, :-1] & removed[:, 1:])
        after = np.nonzero(removed[:, :-1] & ~removed[:, 1:])[1] + 1
        chord = (psi[line, after] - psi[line, before]) / (u[line, after] - u[line, before])
        wells = np.array([[x[line, k] for k in (before, after)] for x in (u, v)])
        left, right = self[line]._tie(wells, chord, low[line], high[line])
        every = np.arange(len(u))
        first = np.argsort(np.concatenate([every, line]), kind="stable")
        last = np.argsort(np.concatenate([line, every]), kind="stable")
        begin, stop = np.concatenate([start, right], axis=1), np.concatenate([left, end], axis=1)
        return begin[:, first], stop[:, last], np.concatenate([every, line])[first]

    def _tie(self, wells, w_u, low, high):
        """The two wells (u, v), of shape (2, 2, M) with the wells second, that tie, by Newton's method for all at once.

        With the Newton step towards a well its depth is known to third order in the distance; the difference of the
        depths changes with w_u by minus the difference of the u. Where this does not succeed: well by well.
        """
        z, at, strength = wells, w_u, self.strength
        smooth = np.ones(w_u.size, dtype=bool)
        for _ in range(8):
            rest, l_u, l_v, l_uu, l_uv, l_vv = loss_expansion(*z, self.T11, self.T22)
            r_u, r_v = z[0] - at + strength * l_u, z[1] - self.w_v + strength * l_v
            a, b, c = 1 + strength * l_uu, strength * l_uv, 1 + strength * l_vv
            det = a * c - b * b
            smooth &= ((det > 1e-3) & (c > 0)).all(axis=0)
            det = np.where(det > 1e-3, det, 1.0)
            step = np.stack([b * r_v - c * r_u, b * r_u - a * r_v]) / det
            depth = (z[0] ** 2 + (z[1] - self.w_v) ** 2) / 2 - z[0] * at + strength * rest
            depth += (r_u * step[0] + r_v * step[1]) / 2
            gap = z[0, 1] + step[0, 1] - z[0, 0] - step[0, 0]
            smooth &= (gap > 1e-2) & (np.abs(step) < 0.3).all(axis=(0, 1))
            change = np.where(smooth, (depth[1] - depth[0]) / np.where(gap > 1e-2, gap, 1.0), 0.0)
            smooth &= np.abs(change) < 0.3
            at = at + np.where(smooth, change, 0.0)
            step += np.stack([c, -b]) / det * change
            z = np.where(smooth, z + step, z)
            moved = np.maximum(np.abs(step).max(axis=(0, 1)), np.abs(change))
            if not (moved[smooth] > 1e-6).any():  # the next step would be of the order of its square
                break
        else:
            smooth &= moved < 1e-6
        smooth &= (at >= low) & (at <= high)
        left, right = z[:, 0], z[:, 1]
        rest = np.flatnonzero(~smooth)
        if rest.size:
            left[:, rest], right[:, rest] = self[rest]._tie_slowly(
                wells[:, 0, rest], wells[:, 1, rest], w_u[rest], low[rest], high[rest]
            )
        return left, right

    def _tie_slowly(self, left, right, w_u, low, high):
        """Newton's method in w_u, with the wells found anew at each; at the nearer end if they tie beyond it."""
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

    def _ends(self, low, high):
        """Global minima at w_u = low and at w_u = high, to 1e-4: only the range of u depends on them."""
        w_u, w_v, T11, T22 = np.concatenate([low, high]), *(np.tile(x, 2) for x in (self.w_v, self.T11, self.T22))
        here = w_u, w_v, T11, T22, self.V, self.sigma
        u, v = lowest_starts(*here)
        right_u, right_v = right_point(T11, T22)
        side = np.sign(right_u * w_u + right_v * w_v)  # the loss is even: no minimum is on the other side from w
        u, v = np.vstack([u, w_u, side * right_u]), np.vstack([v, w_v, side * right_v])
        u, v = descend(u, v, *here, tol=1e-4)
        best = moreau_objective(u, v, *here).argmin(axis=0), np.arange(w_u.size)
        ends = np.array([u[best], v[best]])
        return ends[:, : low.size], ends[:, low.size :]

    def _curve(self, start, end, n):
        """Gauss-Legendre nodes in u between two points, each of shape (N, n).

        (u, v(u), w_u, dw_u/du, weight in u, Psi up to a constant of each line).
        """
        x, weight = leggauss(n)
        half = ((end[0] - start[0]) / 2)[:, None]
        u = start[0][:, None] + half * (1 + x)
        w_v, T11, T22 = self.w_v[:, None], self.T11[:, None], self.T22[:, None]
        first, last = (_secant(*point, self.w_v)[:, None] for point in (start, end))  # in between they are smooth
        v = self._valley(u, w_v + u * (first + (last - first) / 2 * (1 + x)), w_v, T11, T22)
        strength = self.strength
        rest, l_u, _, l_uu, l_uv, l_vv = loss_expansion(u, v, T11, T22)
        slope = 1 + strength * l_uu - (strength * l_uv) ** 2 / (1 + strength * l_vv)
        psi = (u * u + (v - w_v) ** 2) / 2 + strength * rest
        return u, v, u + strength * l_u, slope, half * weight, psi

    def _valley(self, u, v, w_v, T11, T22):
        """v(u) of shape (N, n), by Newton's method from a guess; w_v, T11, T22 of shape (N, 1)."""
        strength = self.strength
        # -l_vv < 2 sigma^2 u^2 (c(T11) + c(T22)) with c convex and even about 1/2, below the chord from .0213 to .0602:
        # if V times that exceeds 1 there may be several minima in v
        several = strength * u**2 * (0.0852 + 0.0778 * (np.abs(2 * T11 - 1) + np.abs(2 * T22 - 1))) > 1
        if several.any():
            line = self[np.nonzero(several)[0]]
            v[several] = line._descend_in_v(u[several], *line._bracket(u[several]))
        half_u, slack1, slack2 = u / 2, 1 - 2 * T11, 1 - 2 * T22
        for _ in range(8):
            shift = half_u * v
            t1, t2 = np.tanh(half_u * u + shift), np.tanh(half_u * u - shift)  # 2 S - 1
            slope1, slope2, rest1, rest2 = 1 - t1 * t1, 1 - t2 * t2, t1 + slack1, t2 + slack2
            excess = v - w_v + (strength / 2) * half_u * (rest1 * slope1 - rest2 * slope2)
            curvature = slope1 * (slope1 / 2 - rest1 * t1) + slope2 * (slope2 / 2 - rest2 * t2)
            step = excess / (1 + strength * half_u * half_u * curvature)
            v = v - step
            open_ = ~(np.abs(step) < 1e-6)
            if not open_.any():  # the next step would be of the order of the square
                return v
        u, line = u[open_], self[np.nonzero(open_)[0]]
        bound = strength * np.abs(u)  # of |V l_v|
        v[open_] = line._descend_in_v(u, line.w_v, line.w_v - bound, line.w_v + bound)
        return v

    def _descend_in_v(self, u, v, low, high):
        """Minimum in v at one u for each line, by Newton's method inside a bracket."""
        for trial in range(100):
            _, _, l_v, _, _, l_vv = loss_expansion(u, v, self.T11, self.T22)
            excess = v + self.strength * l_v - self.w_v
            if np.abs(excess).max() < 1e-10:
                return v
            low, high = np.where(excess < 0, v, low), np.where(excess > 0, v, high)
            v = v - excess / (1 + self.strength * l_vv)
            v = np.where((v >= low) & (v <= high) & (trial < 30), v, (low + high) / 2)
        raise FloatingPointError(f"line of constant w_v: no minimum in v found at V = {self.V:.3g}")

    def _bracket(self, u, spacing=0.3):
        """The lowest of some values of v in the range that must hold the minimum, and its two neighbours.

        Their spacing is that of the logits, which change by u v.
        """
        radius = np.sqrt(2 * self.V * loss(u, self.w_v, self.T11, self.T22, self.sigma))
        n = 2 * int(np.ceil((radius * np.abs(u)).max() / spacing)) + 3
        if n * u.size > _GRID and u.size > 1:  # n is up to proportional to V: most lines need fewer values
            halves = (slice(u.size // 2), slice(u.size // 2, None))
            return tuple(map(np.concatenate, zip(*(self[k]._bracket(u[k], spacing) for k in halves), strict=True)))
        grid = self.w_v + radius * np.linspace(-1, 1, n)[:, None]
        values = moreau_objective(u, grid, u, self.w_v, self.T11, self.T22, self.V, self.sigma)
        best = values.argmin(axis=0).clip(1, n - 2)[None]
        return tuple(np.take_along_axis(grid, best + k, axis=0)[0] for k in (0, -1, 1))

    def _descend(self, u, v, w_u):
        return np.array(descend(u, v, w_u, self.w_v, self.T11, self.T22, self.V, self.sigma))

    def _moreau(self, u, v, w_u):
        return moreau_objective(u, v, w_u, self.w_v, self.T11, self.T22, self.V, self.sigma)

    def _w_u_and_psi(self, u, v):
        rest, l_u, *_ = loss_expansion(u, v, self.T11, self.T22)
        return u + self.strength * l_u, (u * u + (v - self.w_v) ** 2) / 2 + self.strength * rest


def _secant(u, v, w_v):
    """(v - w_v)/u, 0 where u is."""
    return np.where(np.abs(u) > 1e-3, (v - w_v) / np.where(u == 0, 1, u), 0.0)


def _decreases(w_u, slope):
    """Whether w_u decreases somewhere along each line."""
    return (slope.min(axis=1) < 0) | (np.diff(w_u, axis=1).min(axis=1) < 0)
