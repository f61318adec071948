"""How ``holdfast.client`` makes its calls: transport, reconnecting streams, and JSON views of messages.

Private; users import ``holdfast.client``.
"""
