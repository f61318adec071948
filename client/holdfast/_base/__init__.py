"""Foundations that everything else may import: configuration files, identities, names, error statuses,
failpoints, and tables of facts that all parts share: launchers, Xids, a rank's variables.

Private, and importing nothing else of Holdfast but ``errors``.
"""
