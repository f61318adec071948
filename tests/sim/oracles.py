"""What must always hold, checked as it happens, against the truth of the simulated world and nothing else.

The truth is: which processes run, what lies synced on which disk, what the log holds, when which message arrived.
The numbers are those of the invariants in docs/internals/simulation.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.sim.cluster.database import Record
from tests.sim.cluster.framing import labels_of
from tests.sim.cluster.processes import Process
from tests.sim.engine import Violation
from tests.sim.goodput import GoodputOracle
from tests.sim.ledger import JobAccount, Ledger
from tests.sim.shares import LimitsOracle, SharesOracle

from holdfast._session.reports import Exit, ExitReason, WorkerId, WorkerReport
from holdfast_agent.core.worker import actions as agent_act
from holdfast_agent.core.worker import events as agent_ev
from holdfast_agent.shim.peers import PeerBook
from holdfast_controller.core import events as ev
from holdfast_controller.core.model.hosts.lease import LeasePolicy

if TYPE_CHECKING:
    from tests.sim.cluster.host import Host
    from tests.sim.cluster.shim_model import Shim
    from tests.sim.cluster.world import World

OBEYING = (agent_act.Prepare, agent_act.LaunchRanks, agent_act.StopRanks, agent_act.Forget, agent_act.SignalRanks)
LEASES = LeasePolicy()
SLACK_S = 2.1
"""Between a decision and its commit, of which a slow one takes 2 s."""


def check(holds: bool, oracle: str, text: str) -> None:
    """Raises ``Violation`` where it doesn't hold."""
    if not holds:
        raise Violation(oracle, text)


class Oracles:
    """Every check of one world. Told of each event in the truth that may break something."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ledger = Ledger()
        self.goodput = GoodputOracle(check)
        self.shares = SharesOracle(check)
        self.spawned: set[tuple[str, int, int]] = set()
        self.statuses: dict[tuple[str, int, int], int] = {}
        self.prepared: set[tuple[str, WorkerId, int]] = set()
        self.answers: dict[tuple[str, str], str] = {}
        self.arrived: dict[str, float] = {}
        self.earlier: dict[str, list[float]] = {}
        """Of each host: its arrivals of the last moment, and one before that."""
        self.logged: list[tuple[float, str]] = []
        """True time of each commit, and what it says in words."""
        self.silences: list[tuple[str, float, float]] = []
        """(host, from when to when its silence was longer than the term of suspicion)."""
        self.listening_since = 0.0
        """When the controller has started, or has gone on after it stood still."""
        self.decided_before: set[str] = set()
        """Hosts that it had given up before it stood still, but had not written down."""

    # --- the log ------------------------------------------------------------------------------------------------

    def on_commit(self, epoch: int, records: list[Record]) -> None:
        """A transaction has landed."""
        newest = self.world.database.epoch
        check(epoch == newest, "1 one writer", f"epoch {epoch} has written into the log of epoch {newest}")
        for record in records:
            self.logged.append((self.world.engine.now, record.words))
            self.ledger.take(record, check)
            limits = LimitsOracle(check, record.event, self.goodput.cluster)
            self.goodput.take(record.event)
            limits.judge(self.goodput.cluster)
            self.shares.take(record.event, self.goodput.cluster, self.goodput.restarted)
            while self.ledger.reclaimed:
                self.shares.judge(*self.ledger.reclaimed.pop(), self.goodput.cluster)
            match record.event:
                case ev.GangLaunched(job_id=job_id, at=_, generation=generation, rendezvous=rendezvous):
                    self._all_prepared(job_id, generation, rendezvous.ports)
                case ev.RankExited(job_id=job_id, exit=exit_):
                    self._not_invented(job_id, exit_)
                case ev.JobPlaced(job_id=job_id, places=places):
                    self._near_enough(job_id, [place.host for place in places])
                    for index, place in enumerate(places):
                        self._not_in_use(job_id, index, place.host, place.gpus)
                case ev.JobEnded(job_id=job_id):
                    self._nothing_left(job_id)
                case ev.HostLost(host=host):
                    self._was_silent(host)
                case ev.HostFenced(host=host):
                    self._on_fenced(host)
            self.world.coverage.of_log(record)

    def on_confirmed(self, epoch: int, host: str, came: float) -> None:
        """A controller answers what keeps a host's work going, which had come to it at ``came``."""
        later = [begun for begun in self.world.database.begun[epoch:] if begun <= came]
        what = f"epoch {epoch} answers what {host} said after epoch {epoch + 1} had begun"
        check(not later, "1 one writer", what)

    def _all_prepared(self, job_id: str, generation: int, ports: tuple[int, ...]) -> None:
        job = self.ledger.jobs[job_id]
        for member in job.gang.members:
            place = job.place(generation, member.index)
            assert place is not None
            ready = (place.host, WorkerId(job_id, member.name), generation) in self.prepared
            check(ready, "4 gang", f"{job_id} generation {generation} is launched before {member.name} is ready")
        check(len(ports) == len(job.gang.members), "4 gang", f"{job_id}: a worker without a port")

    def _near_enough(self, job_id: str, hosts: list[str]) -> None:
        near = self.ledger.jobs[job_id].gang.near
        if near is not None and near.required:
            racks = {labels_of(host)["rack"] for host in hosts}
            check(len(racks) == 1, "24 topology", f"{job_id} has to be in one rack, and is on {hosts}")

    def _not_invented(self, job_id: str, exit_: Exit) -> None:
        rank = job_id, exit_.generation, exit_.rank
        status = self.statuses.get(rank)
        if exit_.exit_code is not None or exit_.signal is not None:
            told = exit_.signal if exit_.signal is not None else (exit_.exit_code or 0) << 8
            check(status == told, "6 no invented code", f"{rank}: told {told}, in truth {status}")
        else:
            honest = exit_.reason.name.startswith("LOST") or exit_.reason in (
                ExitReason.NOT_STARTED,
                ExitReason.CANNOT_START,
            )
            check(honest, "6 no invented code", f"{rank}: {exit_.reason.name} without a code")
        if exit_.reason in (ExitReason.NOT_STARTED, ExitReason.CANNOT_START):
            check(rank not in self.spawned, "6 no invented code", f"{rank}: {exit_.reason.name}, but it ran")

    def _not_in_use(self, job_id: str, index: int, host: str, gpus: tuple[str, ...]) -> None:
        for process in self.world.hosts[host].table.all_running():
            mine = process.key == (job_id, self.ledger.jobs[job_id].gang.members[index].name)
            shared = set(process.gpus) & set(gpus)
            check(mine or not shared, "11 one owner", f"{job_id} is given {shared}, which {process.key} still uses")

    def _nothing_left(self, job_id: str) -> None:
        for process in self._of_job(job_id):
            # Or its shim has stopped it: what outlives KILL keeps its share on its host until it ends.
            excused = process.host in self.ledger.lost or self._is_fenced(process)
            check(excused, "8 no orphans", f"{job_id} has ended, but {process.key} runs on {process.host}")

    def _is_fenced(self, process: Process) -> bool:
        """Whether its shim has killed it by itself, since nothing was heard of the controller."""
        return process.fence_at is not None and process.fence_at <= self.world.engine.now

    # --- hosts that are given up --------------------------------------------------------------------------------

    def on_arrived(self, host: str) -> None:
        """A message of a host has reached the controller's machine."""
        now, before = self.world.engine.now, self.arrived.get(host)
        suspect_s = self.world.controller_clock.true_s(LEASES.suspect_s)
        # One that was given up before is no part of what is silent now.
        if before is not None and now - before > suspect_s and host not in self.ledger.lost:
            self.silences.append((host, before + suspect_s, now))
        self.arrived[host] = now
        moments = self.earlier.setdefault(host, [0.0])
        while len(moments) > 1 and moments[1] < now - SLACK_S:
            del moments[0]
        moments.append(now)

    def on_unreadable(self, host: str, heard_before: float) -> None:
        """What had reached the machine came on a stream that was over: the host was last heard before that."""
        self.arrived[host] = min(self.arrived.get(host, 0.0), heard_before)
        self.earlier[host] = [min(at, heard_before) for at in self.earlier.get(host, [0.0])]

    def _on_fenced(self, host: str) -> None:
        """With the decision its stream was over: what the network had held and brought after that was not heard."""
        decided = self.world.engine.now - SLACK_S
        self.on_unreadable(host, max((at for at in self.earlier.get(host, ()) if at < decided), default=0.0))

    def on_listening(self) -> None:
        """The controller has started, or goes on after it stood still: now each lease has its full term."""
        self.listening_since = self.world.engine.now

    def on_frozen(self, given_up: set[str]) -> None:
        """The controller stands still from now on."""
        self.decided_before = given_up

    def _was_silent(self, host: str) -> None:
        now, clock = self.world.engine.now, self.world.controller_clock
        # What arrived since may have come between the decision and its commit.
        arrived = max((at for at in self.earlier.get(host, ()) if at < now - SLACK_S), default=0.0)
        silent_s = (now - arrived) * clock.rate
        check(silent_s + SLACK_S >= LEASES.lost_s, "14 clocks", f"{host} is lost after {silent_s:.1f} s")
        listened_s = (now - self.listening_since) * clock.rate
        full = listened_s + SLACK_S >= LEASES.lost_s or host in self.decided_before
        check(full, "16 full terms", f"{host} is given up {listened_s:.1f} s after the controller stood still")
        suspect_s = clock.true_s(LEASES.suspect_s)
        watched = [name for name in self.arrived if name not in self.ledger.lost or name == host]
        open_ = [(name, at + suspect_s, now) for name, at in self.arrived.items() if now - at > suspect_s]
        spans = [span for span in (*self.silences, *open_) if span[0] in watched]
        for moment in {now, *(end for _, _, end in spans if now - suspect_s + SLACK_S < end < now - SLACK_S)}:
            silent = {name for name, start, end in spans if start + SLACK_S <= moment <= end}
            mass = len(silent) >= 2 and len(silent) > LEASES.mass_share * len(watched)
            check(
                not mass,
                "15 mass brake",
                f"{host} is given up {now - moment:.0f} s after {sorted(silent)} were silent",
            )

    # --- processes ----------------------------------------------------------------------------------------------

    def on_spawn(self, process: Process, env: dict[str, str]) -> None:
        """A rank was forked."""
        job_id, generation = process.key.job, process.generation
        rank = job_id, generation, process.rank
        check(rank not in self.spawned, "2 one launch", f"{rank} is launched a second time")
        self.spawned.add(rank)
        synced = self.world.hosts[process.host].disk.synced(process.key, f"g{generation}")
        intended = any(record[0] == "intent" and process.rank in record[1] for record in synced)
        check(intended, "2 one launch", f"{rank} is forked before its intent is durable")
        job = self.ledger.jobs.get(job_id)
        check(job is not None, "4 gang", f"{rank} runs, but no such job is in the log")
        assert job is not None
        worker = job.gang.index_by_name[process.key.worker]
        check(job.may_run(worker, generation), "4 gang", f"{rank} runs, but the log doesn't say that it may")
        place = job.place(generation, worker)
        check(place is not None and place.host == process.host, "4 gang", f"{rank} runs on {process.host}")
        meets = job.rendezvous(generation)
        told = env.get("MASTER_PORT"), env.get("HOLDFAST_RENDEZVOUS_SECRET")
        check(
            meets is not None and told == (str(meets.master_port), meets.secret), "4 gang", f"{rank} meets others"
        )
        self._no_older(process, job)
        for other in self.world.hosts[process.host].table.all_running():
            shared = set(other.gpus) & set(process.gpus)
            same = other is process or other.key == process.key
            check(same or not shared, "11 one owner", f"{rank} and {other.key} both use {shared}")

    def _no_older(self, process: Process, job: JobAccount) -> None:
        alone = process.generation in job.alone
        for other in self._of_job(process.key.job):
            if other.generation >= process.generation or (alone and other.key != process.key):
                continue
            mine = job.gang.index_by_name[other.key.worker]
            if not alone and not job.stop_due(mine, other.generation):
                pass  # nothing durable has ended it: all the worse
            what = f"{other.key} generation {other.generation} still runs on {other.host}"
            check(
                self._is_fenced(other), "3 no overlap", f"generation {process.generation} is launched while {what}"
            )

    def on_end(self, process: Process) -> None:
        """A process has ended; how, nobody else may know yet."""
        if not process.helper and process.status is not None:
            self.statuses[process.key.job, process.generation, process.rank] = process.status

    def on_signal(self, process: Process, cause: str) -> None:
        """A process is about to be told to end."""
        job = self.ledger.jobs.get(process.key.job)
        what = f"{process.key} generation {process.generation}"
        match cause:
            case "ordered":
                worker = job.gang.index_by_name[process.key.worker] if job else 0
                due = job is not None and job.stop_due(worker, process.generation)
                check(due, "10 no unverified signal", f"{what} is stopped, and nothing durable says why")
            case "fence":
                due = process.fence_at is not None and process.fence_at <= self.world.engine.now + 0.01
                check(due, "10 no unverified signal", f"{what} is stopped before its time without the controller")
            case "strays":
                alone = process.key not in self.world.hosts[process.host].shims
                check(alone, "10 no unverified signal", f"{what} is killed as a stray, but its shim lives")
            case _:
                check(process.helper, "10 no unverified signal", f"{what} is no leftover")

    def on_isolated(self, shim: Shim, book: PeerBook) -> None:
        """A shim's deadline is over, though its peers could have moved it on."""
        network, now, mine = self.world.network, self.world.engine.now, shim.host
        for address, port in book.addresses.values():
            target = next(host for host in self.world.hosts.values() if host.address == address)
            generations = [shim.generation for shim in target.shims.values() if shim.generation]
            answers = any(each.port == port and now - each.since >= LEASES.lost_s for each in generations)
            ways = (mine.name, target.name), (target.name, mine.name)
            mended = max(network.apart.get(way, -LEASES.lost_s) for way in ways)
            if not target.powered or not answers or now - mended < LEASES.lost_s:
                return
        what = f"{shim.key} generation {book.generation}"
        check(False, "10 no unverified signal", f"{what} ends for want of the controller, and all its peers answer")

    def on_warned(self, process: Process) -> None:
        """A rank gets the job's warning signal."""
        job = self.ledger.jobs[process.key.job]
        check(job.warned >= process.generation, "10 no unverified signal", f"{process.key} is warned of nothing")

    def _of_job(self, job_id: str) -> list[Process]:
        return [p for h in self.world.hosts.values() for p in h.table.all_running() if p.key.job == job_id]

    # --- hosts --------------------------------------------------------------------------------------------------

    def on_prepared(self, host: Host, report: WorkerReport) -> None:
        """A host has said that a place is ready."""
        older = [p for p in host.table.of(report.key, report.generation - 1) if p.runs]
        check(not older, "3 no overlap", f"{report.key} is ready, but an older generation runs there")
        self.prepared.add((host.name, report.key, report.generation))

    def on_told(self, host: Host, key: WorkerId, generation: int, rank: int) -> None:
        """A shim tells an exit."""
        synced = host.disk.synced(key, f"g{generation}")
        durable = any(record[0] == "exited" and record[1].rank == rank for record in synced)
        check(durable, "12 durable", f"{key} generation {generation} rank {rank} is told before it is durable")

    def on_dropped(self, host: Host, key: WorkerId, generation: int, rank: int) -> None:
        """An agent takes an exit out of its outbox."""
        job = self.ledger.jobs.get(key.job)
        known = job is not None and (generation, rank) in job.exits
        check(known, "5 one record", f"{host.name} drops the exit of {key} {generation}/{rank}, which no log has")

    def on_forgotten(self, host: Host, key: WorkerId) -> None:
        """A place's files are removed."""
        left = [p for p in host.table.of(key, 1 << 30) if p.runs]
        check(not left, "8 no orphans", f"{host.name} forgets {key}, and {len(left)} processes still run there")
        job = self.ledger.jobs.get(key.job)
        for name, file in host.disk.workers.get(key, {}).items():
            for record in file.records if name[0] == "g" else ():
                known = job is not None and record[0] == "exited" and (int(name[1:]), record[1].rank) in job.exits
                told = record[0] != "exited" or known
                check(told, "5 one record", f"{host.name} forgets {key} with an exit that no log has")

    def on_agent_step(self, host: Host, event: agent_ev.Event, actions: list[agent_act.Action]) -> None:
        """An agent has decided."""
        if not isinstance(event, agent_ev.Assigned):
            return
        epoch, seen = event.assignment.epoch, host.disk.epoch
        for action in actions:
            if isinstance(action, agent_act.PersistEpoch):
                seen = action.epoch
            elif isinstance(action, OBEYING):
                what = f"{host.name} obeys epoch {epoch}, having noted {seen}"
                check(epoch == seen, "1 one writer", what)

    # --- clients ------------------------------------------------------------------------------------------------

    def on_answered(self, owner: str, request: str, job_id: str) -> None:
        """A client holds the answer to a submission."""
        check(job_id in self.ledger.jobs, "12 durable", f"{job_id} was answered for and is not in the log")
        first = self.answers.setdefault((owner, request), job_id)
        check(first == job_id, "13 idempotent", f"{request} was answered with {first}, then with {job_id}")

    def on_cancelled(self, job_id: str) -> None:
        """A client was told that its job is cancelled, or has ended."""
        job: Any = self.ledger.jobs.get(job_id)
        check(job is not None and bool(job.outcome), "12 durable", f"the cancel of {job_id} is not in the log")
