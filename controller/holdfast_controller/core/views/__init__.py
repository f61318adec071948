"""Read models over the state: the cluster overview, alerts, gauges and metric families.

They only read; nothing else in the core imports them except the reactor.
"""
