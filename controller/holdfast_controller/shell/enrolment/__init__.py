"""The cluster's certificate authority: join tokens, the enrolment port, and rotation of the CA.

The client's side is in ``holdfast._security.enrolment``.
"""
