"""``holdfast top``: hosts, jobs and what needs attention, on a live screen."""
