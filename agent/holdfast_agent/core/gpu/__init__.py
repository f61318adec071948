"""Interprets GPU readings: utilisation, faults and their end, and which process holds which GPU.

Reading them is I/O and belongs to ``holdfast_agent.gpu``; what each Xid calls for is in ``holdfast._base.xids``.
"""
