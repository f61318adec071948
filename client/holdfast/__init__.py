"""What users and both daemons share. Kept light: importing this pulls in neither grpc nor protobuf.

A training program may call ``holdfast.progress(step=…)`` and ``with holdfast.idle(reason):``.
"""

from holdfast.progress_calls import idle, progress
from holdfast.version import __version__

__all__ = ["__version__", "idle", "progress"]
