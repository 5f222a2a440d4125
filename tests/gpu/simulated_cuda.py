"""A simulated CUDA device on the CPU: finds code that mixes host and device memory where no card is at hand.

A tensor on the simulated device says that it is on `cuda:0` and holds a CPU tensor. Operations compute on the CPU, and
refuse what a real device refuses: tensors of two devices in one operation, `numpy()` of a device tensor, a generator of
the other device. Speed, memory, streams, the rounding of kernels, NCCL and compilation are not simulated.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

__all__ = ["SimulatedTensor", "simulated_cuda"]

CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")
HostGenerator = torch.Generator

# Operations that take indices and values of the host, as a real device does.
MIXED = {"aten::index", "aten::index_put_", "aten::index_put", "aten::_index_put_impl_"}
# Beginnings of operations that do not even take a scalar tensor of the host. The others take one, as a number.
STRICT = (
    "_foreach_", "_fused_", "addmm", "bmm", "cat", "convolution", "embedding", "gather", "index_", "linear", "mm",
    "scatter", "searchsorted", "stack",
)  # fmt: skip


class SimulatedTensor(Tensor):
    """A tensor on the simulated device; its numbers are in `held`, a CPU tensor."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> SimulatedTensor:
        """Wrap a CPU tensor."""
        shape = {"strides": held.stride(), "storage_offset": held.storage_offset()}
        own: Any = Tensor._make_wrapper_subclass(cls, held.size(), dtype=held.dtype, layout=held.layout, **shape)  # type: ignore[attr-defined]
        own.held = held
        return own

    def __repr__(self) -> str:  # type: ignore[override]
        return f"SimulatedTensor({self.held!r}, device='cuda:0')"

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A file holds the numbers, as it is read with `map_location="cpu"`."""
        return self.held.detach().__reduce_ex__(protocol)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        new = SimulatedTensor(self.held.clone()).requires_grad_(self.requires_grad)
        new.__dict__.update({name: copy.deepcopy(v, memo) for name, v in self.__dict__.items() if name != "held"})
        memo[id(self)] = new
        return new

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Answer for the device; the rest is as for a plain tensor."""
        own = args[0] if args else None
        if isinstance(own, SimulatedTensor) and func in ANSWERS:
            return ANSWERS[func](own, *args[1:])
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Compute on the CPU; the results are on the device.

        Raises:
            RuntimeError: a tensor or a generator is of the other device.
        """
        args, kwargs = tuple(args), dict(kwargs or {})
        leaves = tree_leaves((args, kwargs))
        name = func._schema.name
        check_devices(name, [leaf for leaf in leaves if isinstance(leaf, Tensor)])
        held_args, held_kwargs = tree_map(_held, (args, kwargs))
        out = func(*held_args, **held_kwargs)
        if name == "aten::copy_":
            return args[0]
        on_device = tree_map(lambda each: SimulatedTensor(each) if isinstance(each, Tensor) else each, out)
        return return_and_correct_aliasing(func, args, kwargs, on_device)


def check_devices(name: str, tensors: Sequence[Tensor]) -> None:
    """Refuse tensors of the host in an operation of the device, but scalars that count as numbers.

    Raises:
        RuntimeError: as torch's.
    """
    hosts = [tensor for tensor in tensors if not isinstance(tensor, SimulatedTensor)]
    mixes = name == "aten::copy_" or (name in MIXED and isinstance(tensors[0], SimulatedTensor))
    if not hosts or mixes or torch._C._current_graph_task_id() != -1:
        return  # within backward, torch itself makes zeros for gradients that are missing
    is_strict = name.removeprefix("aten::").startswith(STRICT)
    if is_strict or len(hosts) == len(tensors) or any(tensor.dim() for tensor in hosts):
        shapes = [tuple(tensor.shape) for tensor in hosts]
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! ({name}; "
            f"shapes on the cpu: {shapes})"
        )


def _held(leaf: Any) -> Any:
    return leaf.held if isinstance(leaf, SimulatedTensor) else leaf


def _set_data(own: SimulatedTensor, value: Tensor) -> None:
    if not isinstance(value, SimulatedTensor):
        raise RuntimeError("incompatible tensor type: `.data` of a device tensor was set to a tensor of the cpu")
    with torch._C.DisableTorchFunctionSubclass():
        Tensor.data.__set__(own, value)  # type: ignore[attr-defined]
    own.held = value.held


def _refuse_numpy(own: SimulatedTensor, *_: Any, **__: Any) -> Any:
    raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first")


def _refuse_pin(own: SimulatedTensor, *_: Any) -> Any:
    raise RuntimeError("cannot pin 'torch.cuda.FloatTensor': only dense CPU tensors can be pinned")


ANSWERS: dict[Any, Callable[..., Any]] = {
    Tensor.device.__get__: lambda own: CUDA,  # type: ignore[attr-defined]
    Tensor.is_cuda.__get__: lambda own: True,  # type: ignore[attr-defined]
    Tensor.is_cpu.__get__: lambda own: False,  # type: ignore[attr-defined]
    Tensor.get_device: lambda own: 0,
    Tensor.data.__set__: _set_data,  # type: ignore[attr-defined]
    Tensor.data_ptr: lambda own: own.held.data_ptr(),
    Tensor.tolist: lambda own: own.held.tolist(),
    Tensor.new_tensor: lambda own, values: SimulatedTensor(own.held.new_tensor(values)),
    torch.nn.functional.one_hot: lambda own, *classes: SimulatedTensor(torch.nn.functional.one_hot(own.held, *classes)),
}


class ToDevice(torch.autograd.Function):
    """Copies from the host to the device."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        """The copy."""
        return SimulatedTensor(tensor.detach().clone())

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """The gradient on the host."""
        return gradients[0].held


class ToHost(torch.autograd.Function):
    """Copies from the device to the host."""

    @staticmethod
    def forward(ctx: Any, tensor: Any) -> Tensor:
        """The copy."""
        return tensor.held.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """The gradient on the device."""
        return SimulatedTensor(gradients[0])


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on a device."""
    if (device.type == "cuda") == isinstance(tensor, SimulatedTensor):
        return tensor
    out: Any = (ToDevice if device.type == "cuda" else ToHost).apply(tensor)
    return out


class SimulatedCuda(TorchFunctionMode):
    """Intercepts what creates tensors on a device, or moves them between devices."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The operation, with the device as a wrapper."""
        kwargs = dict(kwargs or {})
        if func is Tensor.cpu:
            return moved(args[0], CPU)
        if func is Tensor.cuda:
            return moved(args[0], CUDA)
        if func in (Tensor.numpy, Tensor.__array__) and isinstance(args[0], SimulatedTensor):
            return args[0].held.detach().numpy() if kwargs.get("force") else _refuse_numpy(args[0])
        if func is Tensor.to:
            return self._to(args, kwargs)
        device = kwargs.pop("device", None)
        if (generator := kwargs.get("generator")) is not None:
            first = args[0] if args and isinstance(args[0], Tensor) else None
            place = torch.device(device or (CPU if first is None else first.device))
            if generator.device.type != place.type:
                raise RuntimeError(
                    f"Expected a '{place.type}' device type for generator but found '{generator.device}'"
                )
        out = func(*args, **kwargs)
        return out if device is None else moved(out, torch.device(device))

    def _to(self, args: Any, kwargs: dict[str, Any]) -> Any:
        tensor, device, rest = args[0], kwargs.pop("device", None), []
        for value in args[1:]:
            if isinstance(value, Tensor):
                device, value = value.device, value.dtype
            if isinstance(value, str | torch.device) or type(value) is int:
                device = value
            elif value is not None:
                rest.append(value)
        if isinstance(kwargs.get("other"), Tensor):
            other = kwargs.pop("other")
            device, rest = other.device, [other.dtype]
        if device is not None:
            target = CUDA if type(device) is int else torch.device(device)
            tensor = moved(tensor, target)
        rest = [value for value in rest if isinstance(value, torch.dtype)]
        kwargs.pop("non_blocking", None)
        return tensor.to(*rest, **kwargs) if rest or kwargs else tensor


class SimulatedGenerator(HostGenerator):
    """A generator of the simulated device."""

    def __new__(cls, device: Any = "cpu") -> Any:
        """A plain one for the CPU."""
        return HostGenerator() if torch.device(device).type == "cpu" else super().__new__(cls)

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The simulated device."""
        return CUDA


@contextmanager
def simulated_cuda() -> Iterator[None]:
    """A block in which `torch.cuda` has one device, which is simulated."""
    answers: dict[str, Callable[..., Any]] = {
        "is_available": lambda: True, "device_count": lambda: 1, "current_device": lambda: 0,
        "set_device": lambda device: None, "get_device_name": lambda device=None: "simulated",
        "get_device_capability": lambda device=None: (9, 0), "empty_cache": lambda: None,
        "synchronize": lambda device=None: None, "manual_seed": lambda seed: None, "manual_seed_all": lambda seed: None,
        "is_bf16_supported": lambda including_emulation=True: True, "is_initialized": lambda: True,
        "get_rng_state_all": lambda: [], "set_rng_state_all": lambda states: None,
        "get_rng_state": lambda device=None: torch.get_rng_state(), "set_rng_state": lambda *_: None,
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        for name, answer in answers.items():
            patch.setattr(torch.cuda, name, answer)
        patch.setattr(torch, "Generator", SimulatedGenerator)
        patch.setattr(Tensor, "pin_memory", lambda own, *_: _refuse_pin(own) if own.is_cuda else own)
        patch.setattr(Tensor, "is_pinned", lambda tensor, *_: False)
        patch.setattr(torch, "autocast", SimulatedAutocast)
        patch.setattr(nn.Module, "_apply", move_module)
        patch.setattr(torch.optim.Optimizer, "_group_tensors_by_device_and_dtype", staticmethod(grouped))
        patch.setattr("torch.nn.utils.clip_grad._group_tensors_by_device_and_dtype", grouped)
        with SimulatedCuda():
            yield


apply_to_module = nn.Module._apply
group_tensors = torch.optim.Optimizer._group_tensors_by_device_and_dtype


def grouped(lists: Any, with_indices: bool = False) -> Any:
    """Torch's groups of tensors by device and dtype, which it finds by the memory."""
    found: Any = group_tensors(lists, with_indices)
    return {
        (CUDA if any(isinstance(tensor, SimulatedTensor) for tensor in group[0][0]) else device, dtype): group
        for (device, dtype), group in found.items()
    }


def move_module(module: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
    """Parameters stay the same objects, as on a real device, whose tensors can take the place of the host's."""
    swapping = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        return apply_to_module(module, *args, **kwargs)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(swapping)


class SimulatedAutocast(torch.autocast):
    """Autocast of the device is that of the CPU, on which its operations compute."""

    def __init__(self, device_type: str, *args: Any, **kwargs: Any) -> None:
        super().__init__("cpu", *args, **kwargs)
