"""Grids of problems x seeds on many processes or a cluster, computed once, resumed when interrupted.

A measurement is a function of a problem, for instance :func:`attn_lib.sweep.solved.single_head`. Of every cell of a
grid it gives numbers and arrays, which are stored in a folder as soon as they are there:

>>> from tempfile import TemporaryDirectory
>>> from attn_lib import sweep
>>> from attn_lib.problems import MarchenkoPastur, SingleHead
>>> axes = {"lam": [0.01], "Delta": [0.5], "kappa": [1.0], "target": [MarchenkoPastur(kappa0=0.5)], "accuracy": [1e-3]}
>>> cells = sweep.grid(SingleHead, alpha=[1.0, 2.0], **axes)
>>> with TemporaryDirectory() as folder:
...     outcome = sweep.run("attn_lib.sweep.solved.single_head", cells, folder, workers=1, progress=False)
>>> outcome.table["alpha"], outcome.table["test_error"].round(3)
(array([1., 2.]), array([0.102, 0.087]))

The same call again computes nothing. The command line is ``python -m attn_lib sweep --help``.
"""

from attn_lib.sweep.cells import Cell, grid
from attn_lib.sweep.engine import Outcome, run
from attn_lib.sweep.planning import Plan, plan
from attn_lib.sweep.table import read

__all__ = ["Cell", "Outcome", "Plan", "grid", "plan", "read", "run"]
