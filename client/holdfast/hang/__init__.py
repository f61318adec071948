"""Finds hangs from the outside: pure decisions that the agent, the controller and the command line share.

Theory of operation. The agent turns raw samples of a rank into a small vector of features
(``pipeline.features``), and log lines into "progress" or "noise" (``pipeline.log_progress``). The controller holds
one ``judge.watch.JobWatch`` per job and generation and folds every worker's features into it: the job's progress
rate (``pipeline.progress_rate``), what each worker is doing (``pipeline.phase``), which rules apply
(``judge.rules``), and the job's stage between healthy and acted on (``judge.stages``). Stack dumps are grouped by
``evidence.stacks``; ``judge.common_cause`` looks across jobs; ``records.evaluate`` scores the progress rate on
recorded healthy runs.

Nothing here reads a clock, a file or a random number. Times are seconds on one monotonic clock, given as
arguments; a vector from another host is moved onto the reader's clock by ``WorkerFeatures.shifted``.
"""
