"""What controller and agent say to each other: frozen types that both cores use, and codecs that alone know protobuf.

Private. ``protocol`` says which changes raise the protocol's number. Decisions don't belong here.
"""
