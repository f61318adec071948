"""Runs training jobs on bare-metal GPU hosts and keeps them running.

A training program may call ``holdfast.progress(step=…)`` and ``with holdfast.idle(reason):``; importing this pulls in
neither grpc nor protobuf. A program that talks to a cluster imports these, and the names in their ``__all__``:

- ``holdfast.client``: the async SDK;
- ``holdfast.settings``: where the cluster is and who the caller is;
- ``holdfast.spec``: job files, read and checked;
- ``holdfast.errors``: what all of them raise;
- ``holdfast.v1``: the messages, generated from the proto files.

All else serves Holdfast's own programs and may change with any release: names with an underscore, and the packages
``bundles``, ``cli``, ``dev``, ``doctor``, ``hang`` and ``training``.
"""

from holdfast._base.version import __version__
from holdfast.training.progress_calls import idle, phase, progress, resumed, saved, saving

__all__ = ["__version__", "idle", "phase", "progress", "resumed", "saved", "saving"]
