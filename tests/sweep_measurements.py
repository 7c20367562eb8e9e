"""Measurements for the tests of sweeps: in a module of their own, which other processes can import."""

import os
import resource
import signal
import time
from pathlib import Path

import numpy as np


def product(problem, *, seeds=(), d=1, pause=0.0, log=None):
    """alpha d, alone or plus each seed; a line in the log for each call."""
    if log:
        with Path(log).open("a") as file:
            file.write(f"{problem.alpha} {d} {seeds}\n")
    time.sleep(pause)
    value = problem.alpha * d
    return {"product": value + np.array(seeds) if seeds else value, "vector": np.zeros((max(1, len(seeds)), 3))}


def without_problem(*, name, size=1):
    """No problem: the options alone."""
    return {"length": size * len(name), "device": "abacus"}


def fragile(problem, *, broken=(), deadly=(), once=(), marker=None):
    """Raises at some alphas; at others its process dies, each time or, before there is a marker, once."""
    if problem.alpha in broken:
        raise ZeroDivisionError(f"alpha = {problem.alpha}")
    dies = problem.alpha in deadly
    if problem.alpha in once and not Path(marker).exists():
        Path(marker).touch()
        dies = True
    if dies:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"twice": 2 * problem.alpha}


def fills_the_disk(problem, *, bytes_left):
    """From here on no file of this process can grow above the limit."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_left, resource.RLIM_INFINITY))
    return {"twice": 2 * problem.alpha}
