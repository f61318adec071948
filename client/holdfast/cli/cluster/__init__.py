"""Commands about the cluster: ``status``, ``user``, ``secret``, ``doctor``, ``dev``."""
