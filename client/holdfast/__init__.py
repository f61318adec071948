"""What users and both daemons share. Kept light: importing this pulls in neither grpc nor protobuf."""

from holdfast.version import __version__

__all__ = ["__version__"]
