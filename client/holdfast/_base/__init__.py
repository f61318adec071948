"""Foundations that everything else may import: configuration files, identities, names, error statuses,
failpoints, and facts that all parts share, such as Xids; those about job files are in ``job_file``.

Private, and importing nothing else of Holdfast but ``errors``.
"""
