"""Looks at the live ranks of this host, cheaply, and hands on what it saw. Decides nothing."""
