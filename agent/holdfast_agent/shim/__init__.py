"""What the shim is made of: standard library only, imports counted, for `python -I -S` without site-packages."""
