"""Machine types: classes of hosts that admins name, and that pools of jobs may ask for."""

from __future__ import annotations

from holdfast._base.dataclass import dataclass
from holdfast._base.job_file.label_match import Condition


@dataclass(frozen=True)
class MachineType:
    """A class of hosts: those whose labels meet ``match``, and that have at least so much of everything."""

    name: str
    match: tuple[Condition, ...] = ()
    gpus: str = ""
    """A model of GPUs as jobs name it, of which ``gpu_count`` are counted; empty: any."""
    gpu_count: int = 0
    cpus: int = 0
    memory_mb: int = 0

    @property
    def key(self) -> str:
        """Equal for equal classes."""
        return repr((self.name, self.match, self.gpus, self.gpu_count, self.cpus, self.memory_mb))
