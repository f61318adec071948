"""A whole cluster on one machine, for trying things out: a controller, and as many agents as you like.

There is no supervisor. ``start`` starts whatever is dead, with the ports and identities of the first time;
``stop`` ends daemons and workers alike and proves that nothing is left. ``status`` looks, and changes nothing.
"""

from holdfast.dev.starting import start
from holdfast.dev.status import Status, status
from holdfast.dev.stopping import stop

__all__ = ["Status", "start", "status", "stop"]
