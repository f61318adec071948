"""From raw samples to features: baselines, phases, log progress, the rate of progress, NCCL signals.

One rank or worker at a time; judging across the gang is in ``hang.judge``.
"""
