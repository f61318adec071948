"""Takes evidence of a worker that may hang: stacks, /proc, GPUs, last words, what the frameworks recorded.

Theory of operation. ``Examiner.diagnose`` looks at every rank of a worker twice and returns one
``holdfast.hang.evidence.evidence.Evidence``. Everything that may block runs in a thread or a process of its own
with a deadline, few at a time, and the whole has a budget; what is late, refused, missing or gone leaves a
sentence in its place. Nothing here stops a rank, but for the native dumps of suspects, which hold theirs for a
moment.

Nor is a rank made to dump itself: ``PYTHONFAULTHANDLER`` prints every thread on SIGABRT, but the process dies of
it, so that belongs to the kill and not to the diagnosis.
"""

from holdfast_agent.shell.evidence.examiner import Examiner, Limits

__all__ = ["Examiner", "Limits"]
