"""Uploaded code bundles on the controller's disk, by SHA-256.

How a bundle is packed is in ``holdfast.bundles``.
"""
