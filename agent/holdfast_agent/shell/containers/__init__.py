"""Containers by podman: images, mounts, and the mounted output directory.

The shim enters a container's namespaces itself; see ``holdfast_agent.shim``.
"""
