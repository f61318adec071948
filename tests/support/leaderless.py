"""A program whose main thread has ended while another runs on: /proc/PID/stat calls it a zombie, but it works."""

from __future__ import annotations

LEADERLESS = """
import ctypes, os, signal, threading, time
def work():
    stat = f"/proc/{os.getpid()}/stat"
    while open(stat).read().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)
    print(os.getpid(), flush=True)
    time.sleep(600)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
threading.Thread(target=work).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
"""
"""Prints its pid once that is so; deaf to TERM."""
