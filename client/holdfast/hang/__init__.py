"""Finds hangs from the outside: pure decisions that the agent, the controller and the command line share.

Theory of operation. The agent turns raw samples of a rank into a small vector of features (``features``), and
log lines into "progress" or "noise" (``lines``). The controller holds one ``verdict.JobWatch`` per job and
generation and folds every worker's features into it: the job's rhythm of progress (``rhythm``), what each
worker is doing (``phase``), which rules apply (``rules``), and where on the ladder from healthy to acted the
job stands (``ladder``). Stack dumps are grouped by ``stacks``; ``common_cause`` looks across jobs; ``evaluate``
scores the rhythm on recorded healthy runs.

Nothing here reads a clock, a file or a random number. Times are seconds on one monotonic clock, given as
arguments; a vector from another host is moved onto the reader's clock by ``WorkerFeatures.shifted``.
"""
