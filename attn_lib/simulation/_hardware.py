"""Where to compute: the device, the precision, and how much of the memory a training takes."""

import psutil
import torch

from attn_lib.simulation._checks import require

DTYPES = {"float32": torch.float32, "float64": torch.float64}
BLOCK = 5_000_000  # random numbers that are drawn, on the CPU, before they go to the device
SMALL = {"attention": 500_000, "single head": 100_000}  # numbers of tokens that are trained on at once on a CPU
CACHED = 200_000  # numbers that are multiplied at once on a CPU: with their products, what its cache holds


def devices():
    """Names of the devices of this machine, the default last.

    Returns
    -------
    list of str
    """
    gpus = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    return ["cpu", *gpus, *(["cuda"] if torch.cuda.is_available() else [])]


def chosen_device(device=None, dtype="float64"):
    """The device to compute on: the one asked for, or else a GPU where there is one.

    Parameters
    ----------
    device : str or torch.device, optional
    dtype : str
        Is checked as well.

    Returns
    -------
    str

    Raises
    ------
    ValueError
        The precision is unknown, or the device not on this machine.
    """
    known = devices()
    device = known[-1] if device is None else str(device)
    require(dtype in tuple(DTYPES), "dtype", dtype, f"one of {tuple(DTYPES)}")
    require(device in known, "device", device, f"one of {known} on this machine")
    return device


def free_memory(device):
    """Bytes that can be allocated on a device, with what PyTorch has kept there of earlier trainings.

    Parameters
    ----------
    device : torch.device

    Returns
    -------
    int
    """
    if device.type == "cpu":
        return psutil.virtual_memory().available
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + kept


def batches(seeds, device, needed, on_cpu):
    """The seeds in groups that are trained at once: on a GPU as many as half of its free memory holds.

    On a CPU a few small ones share the costs of every operation. Where memory bandwidth or arithmetic decides, nothing
    is gained by more than one, and a stopped run costs as much as one that goes on.

    Parameters
    ----------
    seeds : list
    device : str
    needed : int
        Bytes that one of them takes on the device.
    on_cpu : int
        Seeds to a group on a CPU; one if this is 0.

    Returns
    -------
    list of lists
    """
    device = torch.device(device)
    size = max(1, on_cpu if device.type == "cpu" else free_memory(device) // (2 * int(needed)))
    return [seeds[i : i + size] for i in range(0, len(seeds), size)]


def stacked(data):
    """The parts of several data sets, one tensor each; of a single data set no copy is made.

    Parameters
    ----------
    data : list of tuples
        Tensors, or None.

    Returns
    -------
    list of tensors
        With one more axis, the first, or None.
    """
    parts = zip(*data, strict=True)
    return [None if v[0] is None else v[0][None] if len(v) == 1 else torch.stack(v) for v in parts]


def block_size(device, numbers, size):
    """Samples to multiply at once: what the cache of a CPU or a quarter of the free memory of a GPU holds.

    Parameters
    ----------
    device : torch.device
    numbers, size : int
        Numbers of a sample, whose products take twice as many again, and bytes of a number.

    Returns
    -------
    int
    """
    if device.type == "cpu":
        return max(1, CACHED // numbers)
    return max(1, free_memory(device) // (12 * numbers * size))


def attention_bytes(d, n, n_runs, dtype, *, n_tokens=2, rank=1):
    """Memory that the training on one data set of Part I takes on the device, at most.

    Tokens, twice while they are brought together; the fields of every run and what the loss and the line search make of
    them, about 25 times; and the past steps of L-BFGS, 30 times Q.

    Parameters
    ----------
    d, n, n_runs : int
    dtype : str
    n_tokens, rank : int

    Returns
    -------
    int
    """
    per_run = 25 * n * n_tokens * max(n_tokens, rank) + 30 * d * rank
    return DTYPES[dtype].itemsize * (2 * n_tokens * n * d + n_runs * per_run)


def single_head_bytes(problem, *, d, n, p, n_test, dtype="float64"):
    """Memory that the training on one data set of Part II takes, at most.

    Tokens; labels and what the loss and the line search hold per sample, about 25 matrices (T, T); the past steps of
    L-BFGS, 30 times W; fresh samples; and what is drawn or multiplied at once.

    Parameters
    ----------
    problem : SingleHead
    d, n, p, n_test : int
        Sizes; p is d where S itself is trained.
    dtype : str
        Of the minimisation; fresh samples are float64.

    Returns
    -------
    int
    """
    T = problem.n_tokens
    training = n * (T * d + 25 * T * T) + 30 * d * p
    fresh = n_test * (T * d + 25 * T * T)
    return DTYPES[dtype].itemsize * training + 8 * (fresh + 4 * (BLOCK + d**2))


def check_memory(needed, problem, *, n, n_test, device="cpu"):
    """Raise ValueError, before anything is drawn, unless a training on one data set fits in the free memory.

    Parameters
    ----------
    needed : int
        Bytes.
    problem : SingleHead
    n, n_test : int
        Numbers of samples, trained on and fresh, for the message.
    device : str
    """
    free = free_memory(torch.device(device))
    name, value = ("n_test", n_test) if n_test > n else ("alpha", problem.alpha)
    allowed = (
        f"smaller, or d: n = {n} samples and n_test = {n_test} fresh ones, with the weights, need {needed:.3g} bytes, "
        f"and {free:.3g} are free on {device}"
    )
    require(needed <= free, name, value, allowed)
