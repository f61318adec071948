"""Messages between controller and agent: frozen types that both cores use, and codecs that alone know protobuf.

Private. ``protocol`` says which changes raise the protocol's number. Decisions don't belong here.
"""
