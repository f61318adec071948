"""What users and both daemons share. Kept light: importing this pulls in neither grpc nor protobuf.

A training program may call ``holdfast.progress(step=…)`` and ``with holdfast.idle(reason):``.
"""

from holdfast._base.version import __version__
from holdfast.training.progress_calls import idle, progress

__all__ = ["__version__", "idle", "progress"]
