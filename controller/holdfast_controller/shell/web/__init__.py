"""The web page: its files, the sessions of browsers, and the addresses of ``rest`` for those that are signed in.

A session is one more way to be a caller. What a browser may do is decided by the guard of all calls; here is decided
only whether a request comes from the page itself, and whose browser it is. How long a session lasts is in
``core.model.accounts.web_sessions``.
"""
