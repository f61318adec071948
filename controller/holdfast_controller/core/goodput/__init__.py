"""The goodput ledger: a fold of the event log that puts every millisecond of every allocated GPU into one category.

Theory of operation. ``hold`` and ``let_go``, by which the scheduler counts shares, begin and end a worker's time; so
the sums are those of the allocations, whatever is known of the work. Workers with the same history share one *tape*
of spans (``tape``), so an event of the whole gang costs the same for one worker and for a thousand; a worker to which
something else happens is split off with a copy. The event that ends a generation brings what agents have reported of
its progress (``progress``), and late knowledge (a hang that began before its notice, a failure before its decision,
the step that the next generation resumed from) renames stretches of spans of its own job. A span that nothing can
rename any more is *settled*: added to the job's sums, and booked by day for its hosts, project and owner. When the
job ends all is settled, one closing statement is kept in the store, and the ledger leaves memory.
"""
