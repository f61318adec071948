"""Metrics of both daemons for Prometheus: families and their series (pure), the text, and the listener.

Nothing here imports the rest: a core takes ``series`` alone, and a daemon that serves no metrics loads no more.
"""
