"""The CUDA driver by ctypes: all that is needed to run a kernel where nothing but the driver is installed."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PTX = Path(__file__).with_name("kernels.ptx")
_BLOCKING_SYNC, _MAPPED, _MULTIPROCESSORS = 4, 2, 16


class CudaError(Exception):
    """A call of the driver failed; the message names it and says why."""


def missing() -> str:
    """Why no kernel can be run here; empty where one can."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no CUDA driver: libcuda.so.1 is not there"
    if code := library.cuInit(0):
        return f"the CUDA driver can't be used: cuInit gave {code}"
    count = ctypes.c_int()
    library.cuDeviceGetCount(ctypes.byref(count))
    return "" if count.value else "the CUDA driver knows no device"


class Device:
    """One GPU with a context of this process, which waits for kernels without burning CPU."""

    def __init__(self, index: int = 0) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), index)
        name = ctypes.create_string_buffer(128)
        self.call("cuDeviceGetName", name, len(name), device)
        self.name = name.value.decode()
        processors = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(processors), _MULTIPROCESSORS, device)
        self.multiprocessors = processors.value
        self.call("cuDevicePrimaryCtxSetFlags_v2", device, _BLOCKING_SYNC)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self._module = self.load(PTX.read_bytes())

    def call(self, function: str, *args: Any) -> None:
        """Call the driver. Raises ``CudaError``."""
        code = getattr(self._library, function)(*args)
        if code:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(code, ctypes.byref(text))
            raise CudaError(f"{function}: {(text.value or b'').decode()} ({code})")

    def load(self, ptx: bytes) -> ctypes.c_void_p:
        """A module, compiled by the driver."""
        module = ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), ptx + b"\0")
        return module

    def unload(self, module: ctypes.c_void_p) -> None:
        self.call("cuModuleUnload", module)

    def allocate(self, size: int) -> ctypes.c_uint64:
        """So many bytes of the GPU's memory, all zero."""
        pointer = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        self.call("cuMemsetD8_v2", pointer, ctypes.c_ubyte(0), ctypes.c_size_t(size))
        return pointer

    def fill(self, pointer: ctypes.c_uint64, value: float, count: int) -> None:
        """Set ``count`` floats to ``value``."""
        bits = ctypes.c_uint.from_buffer(ctypes.c_float(value))
        self.call("cuMemsetD32_v2", pointer, bits, ctypes.c_size_t(count))

    def read(self, pointer: ctypes.c_uint64, size: int) -> bytes:
        """Bytes of the GPU's memory."""
        host = ctypes.create_string_buffer(size)
        self.call("cuMemcpyDtoH_v2", host, pointer, ctypes.c_size_t(size))
        return host.raw

    def launch(self, kernel: str, grid: Sequence[int], block: Sequence[int], *args: Any) -> None:
        """Start a kernel; ctypes values are its arguments. Returns at once."""
        function = ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(function), self._module, kernel.encode())
        held = (ctypes.c_void_p * len(args))(*(ctypes.addressof(arg) for arg in args))
        self.call("cuLaunchKernel", function, *grid, *block, 0, None, held, None)

    def wait(self) -> None:
        """Return when every kernel has ended."""
        self.call("cuCtxSynchronize")


class Flag:
    """A word that kernels read and the host sets while they run: it lies in the host's memory, and is mapped."""

    def __init__(self, device: Device) -> None:
        self._host, self.pointer = ctypes.c_void_p(), ctypes.c_uint64()
        device.call("cuMemHostAlloc", ctypes.byref(self._host), ctypes.c_size_t(4), _MAPPED)
        device.call("cuMemHostGetDevicePointer_v2", ctypes.byref(self.pointer), self._host, 0)
        self.set(0)

    def set(self, value: int) -> None:
        ctypes.c_uint.from_address(self._host.value or 0).value = value


class Spin:
    """A kernel on a few multiprocessors that waits as a collective does: for ``end``, or for ``most_s`` at most."""

    def __init__(self, device: Device, most_s: float) -> None:
        self._device, self._flag = device, Flag(device)
        blocks = max(1, device.multiprocessors // 6)
        device.launch("spin", (blocks, 1, 1), (512, 1, 1), self._flag.pointer, ctypes.c_uint64(int(most_s * 1e9)))

    def end(self) -> None:
        """Set the flag and return once the kernel has ended."""
        self._flag.set(1)
        self._device.wait()


class Training:
    """Matrix products and sweeps over memory, one after the other, as a step of a training takes both."""

    SIZE, SWEPT = 4096, 256 << 20

    def __init__(self, device: Device) -> None:
        self._device = device
        self._a, self._b, self._c = (device.allocate(4 * self.SIZE**2) for _ in range(3))
        device.fill(self._a, 1.0, self.SIZE**2)
        device.fill(self._b, 2.0, self.SIZE**2)
        self._swept = device.allocate(self.SWEPT)

    def step(self) -> None:
        """Four products and eight sweeps."""
        size, count = ctypes.c_int(self.SIZE), ctypes.c_uint64(self.SWEPT // 4)
        tiles = self.SIZE // 16
        for _ in range(4):
            self._device.launch("matmul", (tiles, tiles, 1), (16, 16, 1), self._a, self._b, self._c, size)
            for _ in range(2):
                self._device.launch(
                    "sweep", (4 * self._device.multiprocessors, 1, 1), (512, 1, 1), self._swept, count
                )
        self._device.wait()

    def result(self) -> float:
        """An element of the last product, which is twice the size."""
        return ctypes.c_float.from_buffer_copy(self._device.read(self._c, 4)).value

    def weights(self) -> bytes:
        """64 MiB of the GPU's memory, as a checkpoint reads it."""
        return self._device.read(self._a, 64 << 20)
