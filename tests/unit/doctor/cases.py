"""For each check of the doctor: facts, and what has to be found in them. Good ones and bad ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from holdfast.doctor import certificates, disks, reach
from holdfast.doctor.findings import Finding, Status
from holdfast.doctor.reach import Step
from holdfast_agent.core.doctor import (
    accounts,
    cgroups,
    clock,
    containers,
    debugging,
    gpus,
    limits,
    memory,
    network,
    packages,
    service,
)
from holdfast_agent.core.launch.preflight import Minimums
from holdfast_agent.core.model.gpus import Blind, Gpu, Reading, Unidentified

OK, UNKNOWN, WARNING, ERROR = Status.OK, Status.UNKNOWN, Status.WARNING, Status.ERROR
DAY, GIB, MIB = 86_400.0, 1 << 30, 1 << 20


@dataclass(frozen=True)
class Case:
    """``found``: what comes of the facts. ``saw`` and ``fix``: words that have to be there."""

    found: Iterable[Finding]
    check: str
    status: Status
    saw: str = ""
    fix: str = ""


def _accounts(check: str, status: Status, saw: str = "", fix: str = "", **facts: Any) -> Case:
    base = accounts.AccountFacts(agent_is_root=True, worker_user="trainer", uid=1001)
    return Case(accounts.check(replace(base, **facts)), f"accounts.{check}", status, saw, fix)


def _cgroups(check: str, status: Status, saw: str = "", fix: str = "", **facts: Any) -> Case:
    base = cgroups.CgroupFacts(
        mount="/sys/fs/cgroup", above="/sys/fs/cgroup", controllers=("cpu", "memory", "pids")
    )
    return Case(cgroups.check(replace(base, **facts)), f"cgroups.{check}", status, saw, fix)


def _debugging(check: str, status: Status, saw: str = "", fix: str = "", **facts: Any) -> Case:
    return Case(debugging.check(debugging.DebuggingFacts(**facts)), f"debugging.{check}", status, saw, fix)


def _packages(check: str, status: Status, saw: str = "", fix: str = "", **facts: Any) -> Case:
    base = packages.PackageFacts("index PyPI")
    return Case(packages.check(replace(base, **facts)), f"packages.{check}", status, saw, fix)


def _disk(check: str, status: Status, saw: str = "", fix: str = "", **facts: Any) -> Case:
    base = disks.DiskFacts(
        "state_dir", "/s", kind="ext4", options=("rw",), free_bytes=100 * GIB, inodes=10**6, free_inodes=10**5,
        durable=True, executes=True, sync_s=0.004,
    )  # fmt: skip
    return Case(disks.check(replace(base, **facts)), f"disk.{check}", status, saw, fix)


H100 = Gpu("GPU-0", 0, "NVIDIA H100", 80 * GIB)
TWO = Reading((H100, replace(H100, uuid="GPU-1", index=1)))
AWAKE = gpus.DriverFacts("550.54", (("GPU-0", True), ("GPU-1", True)))
DEVICES = (gpus.DeviceFile("/dev/nvidia0", 0o666, 0, 0), gpus.DeviceFile("/dev/nvidiactl", 0o660, 0, 44))


def _gpus(check: str, status: Status, saw: str = "", fix: str = "", **facts: Any) -> Case:
    base = gpus.GpuFacts(TWO, AWAKE, 0, DEVICES, 2, "trainer", 1001, frozenset({1001, 44}))
    return Case(gpus.check(replace(base, **facts)), f"gpus.{check}", status, saw, fix)


def _limits(check: str, status: Status, saw: str = "", fix: str = "", **facts: Any) -> Case:
    base = limits.LimitFacts("the agent", nofile=1 << 20, stack=8 << 20)
    return Case(limits.check(replace(base, **facts)), f"limits.{check}", status, saw, fix)


def _memory(check: str, status: Status, saw: str = "", fix: str = "", **facts: Any) -> Case:
    base = memory.MemoryFacts(shm_bytes=64 * GIB, shm_free_bytes=60 * GIB)
    return Case(memory.check(replace(base, **facts)), f"memory.{check}", status, saw, fix)


def _network(check: str, status: Status, saw: str = "", fix: str = "", **facts: Any) -> Case:
    base = network.NetworkFacts(
        ports=(20000, 20199), ephemeral=(32768, 60999), hostname="h7", host_addresses=("10.0.0.7",),
        interfaces=("lo", "ib0"), address="10.0.0.7", own_addresses=("10.0.0.7", "127.0.0.1"),
    )  # fmt: skip
    return Case(network.check(replace(base, **facts)), f"network.{check}", status, saw, fix)


UNIT = {"LoadState": "loaded", "ActiveState": "active", "UnitFileState": "enabled", "KillMode": "process"}


def _service(check: str, status: Status, saw: str = "", fix: str = "", **facts: Any) -> Case:
    base = service.ServiceFacts(True, "0.3.0", UNIT, "0.3.0", connected=True)
    return Case(service.check(replace(base, **facts)), f"service.{check}", status, saw, fix)


def _certificate(check: str, status: Status, saw: str = "", fix: str = "", **facts: Any) -> Case:
    base = certificates.CertificateFacts(
        "ca.pem", "host.pem", "host.key", 100 * DAY, identity="holdfast://c/host/h7", begins_at=99.9 * DAY,
        renew_at=100.6 * DAY, ends_at=100.9 * DAY, ca_ends_at=3000 * DAY, renews=True, wanted="host/h7",
    )  # fmt: skip
    found = certificates.check(replace(base, **facts), again="holdfast-agent join")
    return Case(found, f"certificates.{check}", status, saw, fix)


def _reach(check: str, status: Status, saw: str = "", fix: str = "", **facts: Any) -> Case:
    base = reach.ReachFacts("ctl:7443", None, "", ("10.0.0.1",), 0.002, 0.01, 0.001)
    return Case(reach.check(replace(base, **facts)), check, status, saw, fix)


def _containers(check: str, status: Status, saw: str = "", fix: str = "", **facts: Any) -> Case:
    return Case(containers.check(containers.ContainerFacts(**facts)), f"containers.{check}", status, saw, fix)


NONE = Reading(note="no NVIDIA driver on this host")
FOREIGN = network.Listener(20007, 4321, "python serve.py")
OURS = network.Listener(20008, 4322, "python train.py", ours=True)

CASES = [
    _accounts("worker", OK, "workers run as trainer (uid 1001)"),
    _accounts("worker", ERROR, "no user 'ghost'", "useradd", worker_user="ghost", uid=None),
    _accounts("worker", WARNING, "would run as root", 'worker_user = "trainer"', worker_user="", uid=0),
    _accounts("worker", WARNING, "would run as root", worker_user="root", uid=0),
    _accounts("worker", WARNING, "run as root", worker_user="", uid=0, allows_root=True),
    _accounts("worker", ERROR, "the agent is not root", agent_is_root=False),
    _accounts("ipc", OK, "no login manager"),
    _accounts("ipc", OK, "have one of their own", logind=True),
    _accounts("ipc", WARNING, "at logout", "RemoveIPC=no", logind=True, private_shm=False),
    _accounts("ipc", OK, "leaves", logind=True, private_shm=False, logind_conf=("#RemoveIPC=yes", "RemoveIPC=no")),
    _accounts("ipc", WARNING, logind=True, private_shm=False, logind_conf=("RemoveIPC=no", "RemoveIPC=yes")),
    _accounts("ipc", OK, "system users", logind=True, agent_is_root=False, worker_user="", uid=998),
    _cgroups("tree", OK, "version 2 at /sys/fs/cgroup"),
    _cgroups("tree", WARNING, "not mounted", "systemd.unified_cgroup_hierarchy=1", mount="", above=""),
    _cgroups("tree", WARNING, "cgroups = false", wanted=False),
    _cgroups("tree", WARNING, "can't be written", "Delegate=yes", writable=False),
    _cgroups("tree", UNKNOWN, "by root", "as root", writable=False, denied=True),
    _cgroups("tree", WARNING, "no cgroup.kill", "5.14", kill=False),
    _cgroups("controllers", OK, "cpu, memory, pids"),
    _cgroups("controllers", WARNING, "version 1 of cgroups holds memory", controllers=("pids",),
         version1=("memory",)),
    _cgroups("controllers", WARNING, "pids can't be bounded", "kernel", controllers=("memory",)),
    Case(clock.check(clock.ClockFacts(True, 0.004)), "time.ntp", OK, "4 ms at most"),
    Case(clock.check(clock.ClockFacts(False)), "time.ntp", WARNING, "nothing synchronises", "timedatectl set-ntp"),
    Case(clock.check(clock.ClockFacts(None)), "time.ntp", UNKNOWN),
    _containers("engine", OK, "podman"),
    _containers("engine", OK, "switched off", enabled=False),
    _containers("engine", WARNING, "podman is not installed", "apt install podman",
         problem="podman is not installed"),
    _containers("engine", UNKNOWN, root=False),
    _containers("gpus", OK, gpu_problem=""),
    _containers("gpus", WARNING, "no CDI", "nvidia-ctk cdi generate", gpu_problem="no CDI specification"),
    _debugging("stacks", OK),
    _debugging("stacks", OK, ptrace_scope=1),
    _debugging("stacks", WARNING, "no process may trace", "reboot", ptrace_scope=3),
    _debugging("stacks", WARNING, "no CAP_SYS_PTRACE", "--cap-add SYS_PTRACE", capable=False),
    _debugging("stacks", WARNING, "not root", "ptrace_scope=0", capable=False, agent_is_root=False, ptrace_scope=1),
    _debugging("stacks", OK, capable=False, agent_is_root=False),
    _debugging("stacks", WARNING, "py-spy", spy=False),
    _debugging("native", OK, "C and C++"),
    _debugging("native", WARNING, "pystack", "holdfast[agent]", native=False),
    _debugging("native", OK, "no wheel for riscv64", native=False, processor="riscv64"),
    _packages("sources", OK, "index PyPI"),
    _packages("sources", WARNING, "/etc/ca.pem, which trainer", "/etc/pip.conf", problem="/etc/ca.pem, which trainer"),
    _packages("installer", OK),
    _packages("installer", WARNING, "uv", "agent's package", installer=False),
    _debugging("cores", OK, "no core file"),
    _debugging("cores", OK, "heeds", core_pattern="|/usr/lib/systemd/systemd-coredump %P %c"),
    _debugging("cores", WARNING, "/opt/dump", "sysctl -w kernel.core_pattern=core", core_pattern="|/opt/dump %p"),
    _disk("state_dir", OK, "100.0 GiB free (ext4)"),
    _disk("state_dir", ERROR, "900 MiB free of the 1024 MiB", "du -xh", free_bytes=900 * MIB),
    _disk("state_dir", WARNING, "5120 MiB free", free_bytes=5 * GIB),
    _disk("state_dir", ERROR, "/s is full", "du -xh", least_mb=0, free_bytes=0),
    _disk("state_dir", ERROR, "500 inodes left", "--inodes", free_inodes=500),
    _disk("state_dir", WARNING, "30000 inodes left", "--inodes", free_inodes=30_000),
    _disk("state_dir", OK, inodes=0, free_inodes=0),
    _disk("state_dir", ERROR, "mounted read-only", "remount,rw", options=("ro",)),
    _disk("state_dir", ERROR, "noexec", "cache_dir", options=("rw", "noexec")),
    _disk("state_dir", ERROR, "in memory (tmpfs)", "local disk", kind="tmpfs"),
    _disk("state_dir", ERROR, "must have; /s lies in memory", "du -xh", kind="tmpfs", free_bytes=3 * MIB),
    _disk("state_dir", WARNING, "lies on nfs4", kind="nfs4"),
    _disk("state_dir", ERROR, "Input/output error", "dmesg", problem="Input/output error"),
    _disk("state_dir", UNKNOWN, "Permission denied", "as root", problem="Permission denied", denied=True),
    _disk("state_dir_sync", OK, "4.0 ms"),
    _disk("state_dir_sync", WARNING, "300.0 ms", "iostat", sync_s=0.3),
    _disk("state_dir_sync", ERROR, "2500.0 ms", sync_s=2.5),
    _gpus("driver", OK, "driver 550.54, 2 GPUs"),
    _gpus("driver", ERROR, "did not answer", "reboot", reading=Blind("the GPU driver did not answer within 10 s")),
    _gpus("driver", OK, "no NVIDIA GPUs", reading=NONE, pci=0),
    _gpus("driver", ERROR, "though 8 GPUs of NVIDIA are on the bus", "modprobe nvidia", reading=NONE, pci=8),
    _gpus("driver", WARNING, "simulated", simulated=4),
    _gpus("health", OK, "2 × NVIDIA H100"),
    _gpus("health", ERROR, "GPU 0 (GPU-0): is lost", "Xid", reading=Reading((replace(H100, problem="is lost"),))),
    _gpus("health", ERROR, "GPU 3: unknown", reading=Reading((H100,), (Unidentified(3, "unknown"),))),
    _gpus("health", ERROR, "8 GPUs on the bus, and the driver knows 2", pci=8),
    _gpus("persistence", OK, "on"),
    _gpus("persistence", OK, "no such mode", driver=gpus.DriverFacts("550")),
    _gpus("persistence", WARNING, "off for 1 GPU of 2", "persistenced",
          driver=gpus.DriverFacts("550", (("GPU-0", True), ("GPU-1", False)))),
    _gpus("rights", OK, "all 2 device files"),
    _gpus("rights", OK, worker_uid=0, worker_gids=frozenset()),
    _gpus("rights", ERROR, "trainer may not open /dev/nvidiactl", "usermod -aG", worker_gids=frozenset({1001})),
    _gpus("rights", ERROR, "no /dev/nvidia", "nvidia-modprobe", devices=()),
    _limits("nofile", OK),
    _limits("nofile", WARNING, "20000 open files", "LimitNOFILE=1048576", nofile=20000),
    _limits("nofile", ERROR, "512 open files", nofile=512),
    _limits("nofile", OK, nofile=None),
    _limits("memlock", OK, "without limit"),
    _limits("memlock", WARNING, "8192 KiB", "LimitMEMLOCK=infinity", memlock=8 << 20),
    _limits("memlock", WARNING, "8192 KiB", "DefaultLimitMEMLOCK=8M", memlock=8 << 20, default_memlock="8M"),
    _limits("memlock", OK, "root", memlock=8 << 20, counted=False),
    _limits("tasks", OK, "unlimited processes"),
    _limits("tasks", WARNING, "4915 processes", "TasksMax=infinity", tasks=4915),
    _limits("tasks", WARNING, "4096 processes", "LimitNPROC=infinity", nproc=4096),
    _limits("tasks", ERROR, "100 processes", nproc=100),
    _limits("tasks", OK, nproc=100, counted=False),
    _limits("tasks", WARNING, "pid_max is 32768", "kernel.pid_max=4194304", pid_max=32768),
    _limits("stack", OK, "8192 KiB"),
    _limits("stack", ERROR, "512 KiB", "LimitSTACK", stack=512 << 10),
    _limits("stack", WARNING, "unlimited", stack=None),
    _limits("stack", OK, stack=512 << 10, minimums=Minimums(stack_kb=0)),
    _memory("shm", OK, "65536 MiB"),
    _memory("shm", WARNING, "64 MiB", "remount,size=50%", shm_bytes=64 * MIB, shm_free_bytes=64 * MIB),
    _memory("shm", ERROR, "8 MiB", shm_bytes=8 * MIB),
    _memory("shm", ERROR, "0 of them free", private_shm=False, shm_free_bytes=0),
    _memory("shm", WARNING, "0 of them free", "/dev/shm", shm_free_bytes=0),
    _memory("shm", ERROR, "not mounted", "mount -t tmpfs", shm_bytes=None),
    _memory("swap", OK, "none"),
    _memory("swap", WARNING, "8192 MiB", "swapoff -a", swap_bytes=8 * GIB),
    _memory("pages", OK),
    _memory("pages", WARNING, "over 2 nodes", "numa_balancing=0", numa_balancing=True, numa_nodes=2),
    _memory("pages", OK, numa_balancing=True),
    _memory("pages", WARNING, "while programs wait", "madvise", huge_defrag="always"),
    _network("port_range", OK, "20000-20199, outside"),
    _network("port_range", ERROR, "32000-33000 lies in", "ip_local_reserved_ports=32000-33000", ports=(32000,
         33000)),
    _network("port_range", OK, ports=(40000, 40099), reserved=((39000, 40050), (40051, 40099))),
    _network("port_range", ERROR, ports=(40000, 40099), reserved=((40000, 40098),)),
    _network("ports", OK, "200 of 200 are free"),
    _network("ports", OK, "199 of 200", listeners=(OURS,)),
    _network("ports", WARNING, "port 20007 is held by python serve.py (pid 4321)", "ss -tlnp", listeners=(OURS,
         FOREIGN)),
    _network("ports", ERROR, ports=(20007, 20007), listeners=(FOREIGN,)),
    _network("ports", UNKNOWN, "whose 1 of 200", listeners=(network.Listener(20007),), seen=False),
    _network("hostname", OK, "h7 is 10.0.0.7"),
    _network("hostname", ERROR, "h7 is 127.0.1.1", "'10.0.0.7 h7'", host_addresses=("127.0.1.1",)),
    _network("hostname", WARNING, "h7 is 127.0.1.1", host_addresses=("127.0.1.1",), interface="ib0",
             interface_addresses=("10.0.0.7",)),
    _network("hostname", WARNING, "can't be resolved", "/etc/hosts", host_addresses=()),
    _network("interface", OK, "default route"),
    _network("interface", OK, "ib0, 10.0.0.7", interface="ib0", interface_addresses=("10.0.0.7",)),
    _network("interface", ERROR, "no interface ib7", "ib0", interface="ib7"),
    _network("interface", ERROR, "ib0 has no address", interface="ib0"),
    _network("interface", WARNING, "10.9.9.9 is no address of this host", address="10.9.9.9"),
    _network("interface", OK, address="h7.lab"),
    _service("unit", OK, "enabled, active"),
    _service("unit", OK, "no systemd", systemd=False),
    _service("unit", WARNING, "knows no holdfast-agent.service", "systemctl enable",
         unit={"LoadState": "not-found"}),
    _service("unit", WARNING, "disabled", "systemctl enable", unit={**UNIT, "UnitFileState": "disabled"}),
    _service("unit", ERROR, "KillMode=control-group", "KillMode=process", unit={**UNIT,
         "KillMode": "control-group"}),
    _service("unit", WARNING, "newer than", "daemon-reload", unit={**UNIT, "NeedDaemonReload": "yes"}),
    _service("agent", OK, "0.3.0 runs, and is connected"),
    _service("agent", WARNING, "no agent runs", "systemctl start", running=""),
    _service("agent", WARNING, "that runs is 0.2.0, 0.3.0 is installed", "systemctl restart", running="0.2.0"),
    _service("agent", WARNING, "without a controller", connected=False),
    _service("agent", UNKNOWN, "only root", "as root", running="", denied=True),
    _certificate("files", OK, "host.pem"),
    _certificate("files", ERROR, "host.key: No such file", "join", unreadable=(("host.key", "No such file"),)),
    _certificate("files", UNKNOWN, "denied", "as root", unreadable=(("k", "denied"),), denied=True),
    _certificate("key", OK, "0600"),
    _certificate("key", ERROR, "mode 0644", "chmod 0600 host.key", key_mode=0o644),
    _certificate("key", WARNING, "uid 1001", "chown 0", key_owner=1001),
    _certificate("identity", OK, "holdfast://c/host/h7"),
    _certificate("identity", ERROR, "the settings say host/h8", "Correct name", wanted="host/h8"),
    _certificate("identity", ERROR, "no certificate", problem="x is no certificate of a cluster"),
    _certificate("chain", OK),
    _certificate("chain", ERROR, "is not the key", pairs="host.key is not the key of host.pem"),
    _certificate("chain", ERROR, "not of the CA", signed="host.pem is not of the CA in ca.pem"),
    _certificate("end", OK, "ends in 21 h, renewed by itself"),
    _certificate("end", ERROR, "ended 2 days ago", "join", now=102.95 * DAY),
    _certificate("end", ERROR, "begins only in", "timedatectl", now=99.0 * DAY),
    _certificate("end", WARNING, "should have been renewed", "enrolment", now=100.8 * DAY),
    _certificate("end", WARNING, "nothing renews it", renews=False),
    _certificate("end", OK, "ends in 30 days", renews=False, ends_at=130.5 * DAY),
    _certificate("ca", OK, "ends in 2900 days"),
    _certificate("ca", WARNING, "the CA ends in 50 days", ca_ends_at=150.5 * DAY),
    _certificate("ca", ERROR, "the CA ended", ca_ends_at=90 * DAY),
    _certificate("ca", UNKNOWN, "can't be understood", ca_ends_at=0.0),
    _reach("controller.call", OK, "ctl:7443 answers in 2 ms"),
    _reach("controller.call", WARNING, "800 ms", "mtr", round_trip_s=0.8),
    _reach("controller.call", ERROR, "void", failed=Step.CALL, problem="The certificate of host h7 is void"),
    _reach("controller.name", ERROR, "ctl can't be resolved", "getent hosts ctl", failed=Step.NAME,
         problem="unknown"),
    _reach("controller.name", OK, "ctl is 10.0.0.1", failed=Step.TCP),
    _reach("controller.tcp", ERROR, "refused", "nc -vz ctl 7443", failed=Step.TCP, problem="Connection refused"),
    _reach("controller.tcp", OK, failed=Step.TLS),
    _reach("controller.tls", ERROR, "self-signed", "certificates", failed=Step.TLS,
         problem="self-signed certificate"),
    _reach("controller.tls", ERROR, "timed out", "overloaded or stopped", failed=Step.TLS, mute=True,
         problem="timed out"),
    _reach("controller.tls", OK, failed=Step.CALL),
    _reach("time.controller", OK, "within 10 ms"),
    _reach("time.controller", WARNING, "10 s behind", "timedatectl", difference_s=10.0),
    _reach("time.controller", ERROR, "900 s ahead of", difference_s=-900.0),
    _reach("time.controller", OK, "within 3000 ms", difference_s=2.5, uncertain_s=3.0),
    _reach("time.controller", UNKNOWN, "upgrade it", difference_s=None),
    _reach("time.controller", UNKNOWN, "not reached", difference_s=None, failed=Step.TCP),
]  # fmt: skip
