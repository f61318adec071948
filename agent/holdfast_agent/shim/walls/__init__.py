"""The walls around ranks, made by the kernel: cgroups, namespaces, and those of a container that are entered."""
