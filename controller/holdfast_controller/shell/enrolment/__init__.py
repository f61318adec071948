"""The cluster's certificate authority: the enrolment port, issuing, and rotation of the CA.

The client's side is in ``holdfast._security.enrolment``.
"""
