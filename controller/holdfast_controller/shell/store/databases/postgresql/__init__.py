"""A store in a database of PostgreSQL, which several controllers may share: one leads, the others stand by.

``takeover`` is when one that stands by takes over, ``leadership`` what keeps an old leader from writing after that,
``standbys`` what those that wait report.
"""
