"""``holdfast guard``: a Holdfast of its own around one command, inside another scheduler's job or on one machine.

Each task of the job runs one guard, each guard one agent, and that of the first task the controller too. All of it is
the user's, lies in node-local scratch, and is gone when the command has ended, whatever ends it. ``allocation`` reads
where we are, ``trust`` makes certificates that no task has to send to another, ``meeting`` brings the tasks together,
``parts`` starts and ends the daemons, ``run`` begins one task and ``task`` is its life. ``ssh`` starts a task on each
of several hosts, through a ``connection`` to what ``remote`` does there.
"""
