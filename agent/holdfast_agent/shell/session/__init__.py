"""The connection to the controller: the control session, transfers, shells and terminals of ranks.

Messages are made and read by ``holdfast._session.codec``. Reconnecting is handled here; what is reported is
decided in the core.
"""
