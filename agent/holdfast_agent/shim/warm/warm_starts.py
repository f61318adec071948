"""Whether a worker's next generation can start warm: learns, parks and releases, or says why not.

One for each shim. Nothing of it runs for a job that does not ask for warm starts.
"""

from __future__ import annotations

import functools

from holdfast_agent.shim.failpoints import hit
from holdfast_agent.shim.processes import now_s, printable
from holdfast_agent.shim.walls import namespaces
from holdfast_agent.shim.warm import imports, standby
from holdfast_agent.shim.warm.imports import QUIET_S, Learner, Warm
from holdfast_agent.shim.warm.standby import Standby

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast_agent.shim.generation import Generation
    from holdfast_agent.shim.journal import Record
    from holdfast_agent.shim.launch import Identity, Plan
    from holdfast_agent.shim.warm.release import Release


LOOK_EVERY_S = 2.0  # at what was learned
MOST_TRIES = 4  # the first, and three without a package that is unsafe
KEPT_S = 600.0  # from the end of a generation to the launch of the next
PREPARED_S = 1200.0  # for all imports, at the lowest priority beside ranks that leave no processor idle
HOOKED_S = 120.0  # from the launch until the first rank's Python has begun


class WarmStarts:
    """``directory`` is the worker's; ``tell`` says something to the agent; ``watch`` and ``unwatch`` are for the
    descriptor of what is prepared.
    """

    def __init__(
        self,
        directory: int,
        tell: Callable[[Record], None],
        watch: Callable[[int], None],
        unwatch: Callable[[int], None],
    ) -> None:
        self.directory = directory
        self._tell, self._watch, self._unwatch = tell, watch, unwatch
        self.news: Record | None = None  # said last, and again to each new connection
        self.standby: Standby | None = None
        self._warm: Warm | None = None  # of the generation that runs; None: it is not asked for, or can't be
        self._learner: Learner | None = None
        self._names: list[str] = []
        self._never: list[str] = []  # packages that turned out unsafe
        self._left_out: list[str] = []  # they, with the reason
        self._tries = 0
        self._look_at = self._kept_until = 0.0
        self._began = 0.0  # the generation, or the preparation that is under way
        self._plans: Sequence[Plan] = ()
        self._identity: Identity | None = None
        self._worker_cgroup = ""
        self._bytes = 0  # of memory that the worker may take; 0 for no limit

    # -- at a launch

    def launch(
        self, generation: Generation, plans: Sequence[Plan], identity: Identity, order: Record
    ) -> Release | None:
        """The parked processes that become the ranks of a new generation, before anything of it is forked.

        None for a cold start: then the first rank learns, where the next may be warm. The children that the plans
        describe hand over or learn.
        """
        parked, self.standby = self.standby, None
        self._forget()
        asked = order.get("warm")
        if asked is None:
            if parked:
                parked.end()
            return None
        self._warm, self._tries = Warm(asked), 0
        self._plans, self._identity = plans, identity
        self._bytes = int(order.get("memory_bytes", 0))
        self._worker_cgroup = str(order.get("cgroup") or "")
        self._began, self._look_at = now_s(), now_s() + QUIET_S
        why = imports.obstacle(plans, order)
        if why:
            self._warm = None
            self._say(generation.number, f"starts cold: {why}")
        elif parked:
            why = parked.fits(generation.number, plans, identity, generation.room)
        else:
            why = "nothing is prepared" if self._names else ""
        if parked and not why:
            try:
                release = parked.let_go(plans)
                parked.close()
                return release
            except OSError as error:
                why = f"releasing what is prepared: {error.strerror}"
        if parked:
            parked.end()
        if self._warm:
            if why:
                self._say(generation.number, f"started cold: {why}")
            self._learn(plans[0])
        return None

    def started(self, generation: Generation, release: Release) -> None:
        """Say what came of a release: all ranks are started."""
        warm, cold = len(release.parked), f"started cold: {release.cold}"
        if not release.cold:
            self._say(generation.number, "started warm")
        else:
            self._say(
                generation.number, f"{warm} of {len(self._plans)} ranks started warm, {cold}" if warm else cold
            )

    def _learn(self, plan: Plan) -> None:
        try:
            self._learner = Learner()
        except OSError:
            self._warm = None
            return
        plan.before_program = functools.partial(imports.learn, plan, self._learner.fd)

    # -- while it runs

    def due_s(self) -> float | None:
        """When to look again; None for never."""
        if self.standby and self._kept_until:
            return self._kept_until
        parked = self.standby and self.standby.pids
        return self._look_at if self._warm and (self._learner or not parked) else None

    def look(self, generation: Generation) -> None:
        """Prepare the next generation once this one's imports are over, and again once there are more of them; end
        what takes too long or too much, or is kept for too long.
        """
        now = now_s()
        if self.standby and self._kept_until and now >= self._kept_until:
            self.end(generation, "no launch came")
        if not self._warm or now < self._look_at:
            return
        self._look_at = now + LOOK_EVERY_S
        if self.standby and not self.standby.pids:
            why = self.standby.grows_too_large()
            if not why and now - self._began > PREPARED_S:
                why = f"its imports take longer than {PREPARED_S / 60:g} minutes"
            if why:
                self._drop(generation)
                self._give_up(generation, why)
            return
        if generation.stop or generation.gone or len(generation.live) < len(self._plans):
            self._look_at = now + KEPT_S
            return
        if self._learner is None:
            if not self.standby:
                self._prepare(generation)
        elif self._learner.has_news() and self._tries < MOST_TRIES:
            rank = generation.live.get(self._learner.pid())
            if rank is None or rank.rank != self._plans[0].rank:
                self._give_up(generation, "its command starts Python in another process")
                return
            self._names = self._learner.names()
            self._drop(generation)
            self._prepare(generation)
        elif not self._learner.pid() and now - self._began > HOOKED_S:
            self._give_up(generation, "its Python runs no sitecustomize")

    def _prepare(self, generation: Generation) -> None:
        assert self._warm is not None
        assert self._identity is not None
        number = generation.number + 1
        self._tries += 1
        self._began = now_s()
        try:
            room = namespaces.take(number, self.directory, ahead=True) if generation.room else None
            path = f"{self._worker_cgroup}/w{number}" if generation.cgroup else ""
            self._warm.never = [*self._warm.never, *self._never]
            found = self._names, room, path, self._bytes
            self.standby = Standby(number, self._plans, self._identity, self._warm, *found)
        except (OSError, namespaces.NotAllowed) as error:
            self._give_up(generation, f"preparing it: {getattr(error, 'strerror', None) or error}")
            return
        generation.apart = self.standby.keeper
        self._watch(self.standby.fd)
        hit("shim.standby.after")

    def hears(self, fd: int) -> bool:
        """Whether the descriptor is of what is prepared."""
        return self.standby is not None and fd == self.standby.fd

    def hear(self, generation: Generation) -> None:
        """Take in what the process that preloads has said."""
        parked = self.standby
        if parked is None:
            return
        why = parked.hear()
        if why is None:
            return
        self._unwatch(parked.fd)
        why = why or parked.settle()
        if not why:
            words = f"{len(parked.pids)} ranks with {parked.modules} modules wait in {parked.bytes >> 20} MiB"
            self._say(generation.number, "; ".join([words, *self._left_out]))
            return
        unsafe = parked.unsafe
        if unsafe and unsafe not in self._never and self._tries < MOST_TRIES:
            self._never.append(unsafe)
            self._left_out.append(f"left out: {why}")
            self._drop(generation)
            self._prepare(generation)
            return
        self._drop(generation)
        self._give_up(generation, why)

    def _give_up(self, generation: Generation, why: str) -> None:
        self._forget()
        self._say(generation.number, f"the next start is cold: {why}")

    def _forget(self) -> None:
        if self._learner:
            self._learner.close()
        self._learner = self._warm = None
        self._kept_until = 0.0

    # -- at its end

    def reaped(self, pid: int, generation: Generation) -> None:
        """Take note of the end of a child: with the keeper nothing is parked any more."""
        parked = self.standby
        if parked is None or pid != parked.keeper:
            return
        parked.keeper = 0  # its number may be another's by now
        was_ready = bool(parked.pids)
        if not was_ready:
            self.hear(generation)  # it may have said why
        if self.standby is parked:
            self._drop(generation)
            self._give_up(
                generation, "a parked process has ended" if was_ready else "its imports did not come to an end"
            )

    def is_all_that_is_left(self) -> bool:
        """Whether this process has no child but the keeper."""
        return self.standby is not None and standby.only_child(self.standby.keeper)

    def keep(self) -> None:
        """The generation is over and another follows: keep what is parked for a while."""
        self._kept_until = now_s() + KEPT_S

    def end(self, generation: Generation, why: str = "") -> None:
        """End what is parked, and prepare nothing more for this generation."""
        had = self.standby is not None
        self._forget()
        self._drop(generation)
        if had and why:
            self._say(generation.number, f"the next start is cold: {why}")

    def _drop(self, generation: Generation) -> None:
        if self.standby:
            self._unwatch(self.standby.fd)
            self.standby.end()
        self.standby = None
        generation.apart = 0

    def _say(self, generation: int, message: str) -> None:
        parked = self.standby
        ready = {"ranks": len(parked.pids), "bytes": parked.bytes} if parked else {"ranks": 0, "bytes": 0}
        self.news = {"ev": "warm", "generation": generation, **ready, "message": printable(message)}
        self._tell(self.news)
