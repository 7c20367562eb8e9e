"""What this machine can do on one thread: products of square matrices, reading and copying beyond the caches."""

import pytest
import torch

BYTES = 2**28  # of an array


@pytest.mark.benchmark(group="machine")
@pytest.mark.parametrize("size", [512, 1024, 2048])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def bench_matrix_product(timed, dtype, size):
    a, b = torch.randn(2, size, size, dtype=getattr(torch, dtype), generator=torch.Generator().manual_seed(0))
    timed(f"matrix product, {dtype}", f"size {size}", torch.mm, a, b, flop=2 * size**3)


@pytest.mark.benchmark(group="machine")
def bench_read(timed):
    """The sum of an array."""
    timed("memory", "read", torch.ones(BYTES // 8, dtype=torch.float64).sum, bytes=BYTES)


@pytest.mark.benchmark(group="machine")
def bench_copy(timed):
    source = torch.ones(BYTES // 8, dtype=torch.float64)
    timed("memory", "copy", torch.empty_like(source).copy_, source, bytes=2 * BYTES)


@pytest.mark.benchmark(group="machine")
def bench_matrix_vector(timed):
    """How near to the rate of reading the library's product of a matrix with a vector comes."""
    matrix = torch.ones(BYTES // 8000, 1000, dtype=torch.float64)
    timed("memory", "matrix times vector", torch.mv, matrix, matrix[0].clone(), bytes=matrix.nbytes)
