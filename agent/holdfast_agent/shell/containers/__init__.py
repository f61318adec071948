"""Containers by podman: images, mounts, and the mounted output directory.

Settings are in ``containers``, calls of the engine in ``podman``.
The shim enters a container's namespaces itself; see ``holdfast_agent.shim``.
"""
