"""Waits, in a thread of its own, for errors that the driver reports about its devices.

Runs in the helper process. What was heard is kept until the next reply, the first few. A driver without events,
or one that fails at them, only makes this source silent: a lost device also shows in its readings.
"""

from __future__ import annotations

import _thread
import time

import pynvml

TYPE_CHECKING = False  # as typing's, without loading typing
if TYPE_CHECKING:
    from typing import Any

_WAIT_MS = 5000
_AGAIN_S = 5.0
_MOST = 64
_XID = pynvml.nvmlEventTypeXidCriticalError

_heard: list[dict[str, Any]] = []
_listed: dict[int, list[str]] = {}
"""By address of a GPU's handle: the UUIDs by which readings list it, its instances' where it is divided."""
_registered: set[str] = set()
_set: Any = None
_off = False


def drain() -> list[dict[str, Any]]:
    """UUID and number of each error reported since the last call."""
    heard = _heard[:]
    del _heard[: len(heard)]
    return heard


def watch(handle: Any, uuid: str, listed: list[str]) -> None:
    """Listen to this GPU too. Its errors are those of all the UUIDs ``listed``."""
    global _set, _off
    if _off:
        return
    try:
        if _set is None:
            _set = pynvml.nvmlEventSetCreate()
            _thread.start_new_thread(_listen, (_set,))
    except (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError):
        _off = True
        return
    _listed[_address(handle)] = listed
    if uuid not in _registered:
        try:
            pynvml.nvmlDeviceRegisterEvents(handle, _XID, _set)
        except pynvml.NVMLError:
            return  # asked again when devices are looked for again
        _registered.add(uuid)


def _listen(events: Any) -> None:
    while True:
        try:
            event = pynvml.nvmlEventSetWait_v2(events, _WAIT_MS)
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_NOT_SUPPORTED:
                return
            if error.value != pynvml.NVML_ERROR_TIMEOUT:
                time.sleep(_AGAIN_S)
            continue
        except pynvml.NVMLLibraryMismatchError:
            return
        if event.eventType != _XID:
            continue
        for uuid in _listed.get(_address(event.device), ()):
            if len(_heard) < _MOST:
                _heard.append({"uuid": uuid, "number": int(event.eventData)})


def _address(handle: Any) -> int:
    return int(pynvml.cast(handle, pynvml.c_void_p).value or 0)
