"""Stands in for the agent where only the starting and stopping of daemons is tried."""
