"""Commands about a cluster: ``status``, ``user``, ``quota``, ``share``, ``usage``, ``secret``, ``doctor``, ``dev``."""
