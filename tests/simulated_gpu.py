"""A device that behaves as a GPU does and computes on the CPU: for tests on machines without one.

Its tensors hold their numbers in the memory of the CPU, but are refused wherever a GPU would refuse them: with tensors
of the CPU in one operation, or by numpy. So whole trainings run on it, with the numbers that they have on a CPU, and
every operation for which a program must wait for the device is counted.
"""

from collections import Counter

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "simulated"
_setup_privateuseone_for_python_backend(NAME)

aten = torch.ops.aten
INDEXED = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default}  # take indices from the CPU, too
SHAPE_FROM_VALUES = {aten.nonzero.default, aten.masked_select.default, aten._unique2.default}


class OnDevice(torch.Tensor):
    """A tensor of the device; ``inner`` is the one of the CPU that computes for it."""

    @staticmethod
    def __new__(cls, inner):
        layout = {"strides": inner.stride(), "storage_offset": inner.storage_offset()}
        tensor = cls._make_wrapper_subclass(cls, inner.size(), dtype=inner.dtype, device=NAME, **layout)
        tensor.inner = inner
        return tensor

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.Tensor.tolist:  # not known to subclasses
            return args[0].cpu().tolist()
        return torch._C._disabled_torch_function_impl(func, types, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError(f"{func} outside of a SimulatedGPU")

    def __repr__(self, **_):
        return f"OnDevice({self.inner})"


class SimulatedGPU(TorchDispatchMode):
    """Context in which the device exists.

    ``waits`` counts the operations after which the program waits for the device, by name: numbers that are read,
    tensors copied to the CPU, and results whose shape depends on numbers. ``sent`` counts tensors copied to the device.
    """

    def __init__(self):
        super().__init__()
        self.waits, self.sent = Counter(), Counter()

    def __enter__(self):
        self.only_lift = torch._C._only_lift_cpu_tensors()
        torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(...) would otherwise copy past this mode
        return super().__enter__()

    def __exit__(self, *error):
        torch._C._set_only_lift_cpu_tensors(self.only_lift)
        return super().__exit__(*error)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        tensors = _tensors((args, kwargs.values()))
        here = any(type(t) is OnDevice for t in tensors)
        asked = kwargs.get("device")
        to_device = here if asked is None else torch.device(asked).type == NAME
        if not here and not to_device:
            return func(*args, **kwargs)
        self._check(func, args, tensors, here, asked)
        self._count(func, args, tensors, here, to_device)
        inner = {name: _inner(v) for name, v in kwargs.items()}
        if asked is not None:
            inner["device"] = "cpu"
        out = func(*map(_inner, args), **inner)
        if func is aten._local_scalar_dense.default or not to_device:
            return out
        return args[0] if func._schema.is_mutable else _outer(out)

    def _check(self, func, args, tensors, here, asked):
        """RuntimeError where a GPU would raise one: numbers (0 axes) of the CPU may be mixed in, but no more."""
        if not here or asked is not None or func in (aten.copy_.default, aten._copy_from.default):
            return
        if func in INDEXED:
            if not isinstance(args[0], OnDevice):
                raise RuntimeError(f"{func}: a tensor of the CPU indexed by one of the device")
            tensors = [t for t in args[2:3] if isinstance(t, torch.Tensor)]
        elsewhere = [t for t in tensors if not isinstance(t, OnDevice) and t.dim() > 0]
        if elsewhere:
            raise RuntimeError(f"{func}: tensors of shapes {[tuple(t.shape) for t in elsewhere]} are not on the device")

    def _count(self, func, args, tensors, here, to_device):
        name = func.name().removeprefix("aten::")
        if func in INDEXED:
            indices = [t for t in args[1] if t is not None]
            self.waits[name] += any(t.dtype in (torch.bool, torch.uint8) for t in indices)
            self.sent[name] += sum(not isinstance(t, OnDevice) for t in indices)
        elif func is aten.copy_.default:
            self.waits[name] += here and not isinstance(args[0], OnDevice)
            self.sent[name] += isinstance(args[0], OnDevice) and not isinstance(args[1], OnDevice)
        elif here and (func in SHAPE_FROM_VALUES or func is aten._local_scalar_dense.default or not to_device):
            self.waits[name] += 1
        elif tensors and not here and to_device:
            self.sent[name] += 1


def _tensors(values):
    found = []
    for v in values:
        if isinstance(v, torch.Tensor):
            found.append(v)
        elif isinstance(v, list | tuple | type({}.values())):
            found += _tensors(v)
    return found


def _inner(value):
    if isinstance(value, list | tuple):
        return type(value)(map(_inner, value))
    return value.inner if type(value) is OnDevice else value


def _outer(value):
    if isinstance(value, list | tuple):
        return type(value)(map(_outer, value))
    return OnDevice(value) if isinstance(value, torch.Tensor) else value
