"""How hosts and users come by certificates, and by the next ones.

The daemon of a host doesn't import this: it brings ``cryptography`` along. It runs
``python -m holdfast._security.enrolment`` for a moment instead.
"""
