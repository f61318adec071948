"""Stands in for the controller where only the starting and stopping of daemons is tried."""
