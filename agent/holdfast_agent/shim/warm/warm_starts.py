"""Whether a worker's next generation can start warm: learns, parks and releases, or says why not.

One for each shim. Nothing of it runs for a job that does not ask for warm starts.
"""

from __future__ import annotations

import functools

from holdfast_agent.shim.failpoints import hit
from holdfast_agent.shim.processes import now_s, printable
from holdfast_agent.shim.walls import namespaces
from holdfast_agent.shim.warm import imports, parked_ranks
from holdfast_agent.shim.warm.imports import QUIET_S, Learner, Warm
from holdfast_agent.shim.warm.parked_ranks import ParkedRanks
from holdfast_agent.shim.warm.release import Release, await_end, is_met

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from holdfast_agent.shim.generation import Generation
    from holdfast_agent.shim.journal import Record
    from holdfast_agent.shim.launch import Identity, Plan
    from holdfast_agent.shim.warm.release import Parked
    from holdfast_agent.shim.warm.survivors import Survivors


LOOK_EVERY_S = 2.0  # at what was learned
MOST_TRIES = 4  # the first, and three without a package that is unsafe
HELD_S = 30.0  # for the order that follows a generation, before what waits for the next one is ended
KEPT_S = 600.0  # from the end of a generation to the launch of the next
PREPARED_S = 1200.0  # for all imports, at the lowest priority beside ranks that leave no processor idle
TOO_EARLY = "which the program has not imported"  # of what is left out: later the program may have
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
        self.parked: ParkedRanks | None = None
        self.survivors: Survivors | None = None  # until a job asks for them
        self._warm: Warm | None = None  # of the generation that runs; None: it is not asked for, or can't be
        self._learner: Learner | None = None
        self._names: list[tuple[str, str]] = []
        self._never: list[str] = []  # packages that turned out unsafe
        self._left_out: list[str] = []  # they, with the reason
        self._tries = 0
        self._look_at = self._kept_until = 0.0
        self._began = 0.0  # the generation, or the preparation that is under way
        self._plans: Sequence[Plan] = ()
        self._identity: Identity | None = None
        self._worker_cgroup = ""
        self._bytes = 0  # of memory that the worker may take; 0 for no limit
        self._meets = False  # its ranks have been seen connected to where the gang's first one listens

    @property
    def holds(self) -> bool:
        """Whether anything waits for the next generation, or is on its way to that."""
        return self.parked is not None or bool(self.survivors and self.survivors.waiting)

    # -- at a launch

    def launch(
        self, generation: Generation, plans: Sequence[Plan], identity: Identity, order: Record
    ) -> Release | None:
        """The parked processes that become the ranks of a new generation, before anything of it is forked.

        None for a cold start: then the first rank learns, where the next may be warm. The children that the plans
        describe hand over or learn.
        """
        parked, self.parked = self.parked, None
        learner, self._learner = self._learner, None
        self._forget()
        asked = order.get("warm")
        if asked is None:
            if parked:
                parked.end()
            self._end_survivors()
            if learner:
                learner.close()
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
        going_on = self._go_on(generation, plans, identity, order, why)
        release: Release | None = None
        if not why and len(going_on) < len(plans):
            why = "nothing is prepared" if self._names else ""
            if parked:
                why = parked.fits(generation.number, plans, identity, generation.room)
            if parked and not why:
                try:
                    release = parked.let_go(plans)
                    parked.close()
                    parked = None
                except OSError as error:
                    why = f"releasing what is prepared: {error.strerror}"
        if parked:
            parked.end()
        if going_on:
            release = release or Release({}, None)
            release.prefer(going_on)
            release.cold = why
        elif self._warm and why and not release:
            self._say(generation.number, f"started cold: {why}")
        if release and self._meets:
            release.have_meet()
        if learner and plans[0].rank in going_on and not self._names:
            self._learner = learner  # it still writes there
        elif learner:
            learner.close()
        if self._warm and plans[0].rank not in (release.parked if release else ()):
            self._learn(plans[0])
        return release

    def _go_on(
        self, generation: Generation, plans: Sequence[Plan], identity: Identity, order: Record, why: str
    ) -> dict[int, Parked]:
        """The ranks whose processes have left the last generation and go on; the others may do so at this one's end."""
        survivors = self.survivors
        if survivors is None and (why or self._warm is None or not self._warm.in_process):
            return {}
        found: dict[int, Parked] = {}
        if survivors and survivors.waiting:
            if unfit := why or survivors.fit(plans, identity, generation.room):
                self._end_survivors()
                self._say(generation.number, f"started in new processes: {unfit}")
            else:
                found = survivors.let_go(plans)
        if why or self._warm is None or not self._warm.in_process:
            return found
        if self._bytes and generation.cgroup:
            # What a process holds stays counted where it was when it took it.
            self._say(generation.number, "restarts in new processes: each generation has a limit of memory")
            return found
        try:
            from holdfast_agent.shim.warm.survivors import VARIABLE, Survivors

            self.survivors = survivors or Survivors(self.directory, self._watch, self._unwatch)
        except OSError as error:
            self._say(generation.number, f"restarts in new processes: no socket: {error.strerror}")
            return found
        for plan in plans:
            plan.env[VARIABLE] = self.survivors.name
        return found

    def _end_survivors(self) -> None:
        """Have those that wait end before anything starts in their place."""
        if self.survivors:
            await_end(self.survivors.end())
            self.survivors.leave_cgroup()

    def started(self, generation: Generation, release: Release) -> None:
        """Say what came of a release: all ranks are started."""
        if self.survivors:
            self.survivors.leave_cgroup()
        on = sum(each.survived for each in release.parked.values())
        warm, ranks = len(release.parked) - on, len(self._plans)
        cold = f"started cold: {release.cold or 'nothing is prepared'}"
        problem = self.survivors.problem if self.survivors else ""
        if self.survivors:
            self.survivors.problem = ""
        if on:
            said = [f"{on} of {ranks} ranks went on in process"]
            said += [f"{warm} started warm"] if warm else []
            said += [f"{ranks - on - warm} {cold}"] if on + warm < ranks else []
            self._say(generation.number, ", ".join(said + ([problem] if problem else [])))
        elif not release.cold:
            self._say(generation.number, "started warm" + (f"; {problem}" if problem else ""))
        else:
            self._say(generation.number, f"{warm} of {ranks} ranks started warm, {cold}" if warm else cold)

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
        if self.holds and self._kept_until:
            return self._kept_until
        parked = self.parked and self.parked.pids
        return self._look_at if self._warm and (self._learner or not parked) else None

    def look(self, generation: Generation, now: float) -> None:
        """Prepare the next generation once this one's imports are over, and again once there are more of them; end
        what takes too long or too much, or is kept for too long.
        """
        if self.holds and self._kept_until and now >= self._kept_until:
            self.end(generation, "no launch came")
        if not self._warm or now < self._look_at:
            return
        self._look_at = now + LOOK_EVERY_S
        if self.parked and not self.parked.pids:
            why = self.parked.grows_too_large()
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
            if not self.parked:
                self._prepare(generation)
        elif self._learner.has_news() and self._tries < MOST_TRIES:
            rank = generation.live.get(self._learner.pid())
            if rank is None or rank.rank != self._plans[0].rank:
                self._give_up(generation, "its command starts Python in another process")
                return
            self._names = self._learner.names()
            known = [each for each in zip(self._never, self._left_out, strict=True) if TOO_EARLY not in each[1]]
            self._never, self._left_out = [name for name, _ in known], [why for _, why in known]
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
            room = None
            if generation.room and self._warm.in_process:
                room = namespaces.carry(generation.room, number, self.directory)
            elif generation.room:
                room = namespaces.take(number, self.directory, ahead=True)
            path = f"{self._worker_cgroup}/w{number}" if generation.cgroup else ""
            warm = Warm({"preload": self._warm.preload, "never": [*self._warm.never, *self._never]})
            found = self._names, room, path, self._bytes
            self.parked = ParkedRanks(number, self._plans, self._identity, warm, *found)
        except (OSError, namespaces.NotAllowed) as error:
            self._give_up(generation, f"preparing it: {getattr(error, 'strerror', None) or error}")
            return
        generation.apart.add(self.parked.keeper)
        self._watch(self.parked.fd)
        hit("shim.parked.after")

    def hears(self, fd: int) -> bool:
        """Whether the descriptor is of what is prepared, or of a rank that may survive."""
        if self.survivors and self.survivors.hears(fd):
            return True
        return self.parked is not None and fd == self.parked.fd

    def hear(self, fd: int, generation: Generation) -> bool:
        """Take in what the process that preloads has said, or a rank; whether a rank has ended its generation."""
        if self.survivors and self.survivors.hears(fd):
            if not self.survivors.hear(fd, generation):
                return False
            self._say(generation.number, self._waiting())
            return True
        self._hear_parked(generation)
        return False

    def _waiting(self) -> str:
        count = len(self.survivors.waiting) if self.survivors else 0
        return f"{count} of {len(self._plans)} ranks wait to go on"

    def _hear_parked(self, generation: Generation) -> None:
        parked = self.parked
        if parked is None:
            return
        why = parked.hear()
        if why is None:
            return
        self._unwatch(parked.fd)
        why = why or parked.settle()
        if not why:
            self._meets |= any(is_met(pid, self._plans[0].env) for pid in list(generation.live)[:1])
            ranks = "1 rank" if len(parked.pids) == 1 else f"{len(parked.pids)} ranks"
            words = f"{ranks} parked: {parked.modules} modules wait in {parked.bytes >> 20} MiB"
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

    def unwind(self, generation: Generation, hung: Collection[int]) -> dict[int, float]:
        """Have ranks leave by themselves, to go on in the next generation: by pid, until when they may."""
        now = now_s()
        asked = self.survivors.ask(generation, hung) if self.survivors else {}
        return {pid: now + within_s for pid, within_s in asked.items()}

    def reaped(self, pid: int, generation: Generation) -> None:
        """Take note of the end of a child: with the keeper nothing is parked any more."""
        if self.survivors and (rank := self.survivors.reaped(pid, generation)) is not None:
            self.survivors.problem = f"the process of rank {rank} ended while it waited"
            self._say(generation.number, f"{self.survivors.problem}; {self._waiting()}")
            return
        parked = self.parked
        if parked is None or pid != parked.keeper:
            return
        parked.keeper = 0  # its number may be another's by now
        generation.apart.discard(pid)
        was_ready = bool(parked.pids)
        if not was_ready:
            self._hear_parked(generation)  # it may have said why
        if self.parked is parked:
            self._drop(generation)
            self._give_up(
                generation, "a parked process has ended" if was_ready else "its imports did not come to an end"
            )

    def is_all_that_is_left(self) -> bool:
        """Whether this process has no child but the keeper and survivors, and these have none."""
        if not self.holds:
            return False
        waiting = self.survivors.pids() if self.survivors else []
        keeper = [self.parked.keeper] if self.parked else []
        return parked_ranks.are_children(sorted(keeper + waiting)) and (not waiting or self._survivors_are_idle())

    def _survivors_are_idle(self) -> bool:
        return self.survivors is not None and self.survivors.are_idle()

    def lets_end(self, generation: Generation) -> bool:
        """Whether `empty` can be said: not while something waits of which no order says that it will be needed."""
        if not self.holds:
            return True
        if generation.asked_for_next:
            self._kept_until = now_s() + KEPT_S
            return True
        generation.held_until = generation.held_until or now_s() + HELD_S
        return False

    def end(self, generation: Generation, why: str = "") -> None:
        """End what is parked, and prepare nothing more for this generation."""
        had = self.holds
        self._forget()
        self._drop(generation)
        if self.survivors:
            generation.apart.difference_update(self.survivors.end())
        if had and why:
            self._say(generation.number, f"the next start is cold: {why}")

    def _drop(self, generation: Generation) -> None:
        if self.parked:
            self._unwatch(self.parked.fd)
            generation.apart.discard(self.parked.keeper)
            self.parked.end()
        self.parked = None

    def _say(self, generation: int, message: str) -> None:
        parked = self.parked
        ready: Record = {"ranks": len(parked.pids), "bytes": parked.bytes} if parked else {"ranks": 0, "bytes": 0}
        if self.survivors and self.survivors.waiting:
            ready["survivors"] = self.survivors.pids()
        self.news = {"ev": "warm", "generation": generation, **ready, "message": printable(message)}
        self._tell(self.news)
