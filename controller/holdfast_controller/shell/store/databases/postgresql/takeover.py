"""When a controller that stands by takes over: the one that leads has written nothing for a term, or has ended."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from holdfast._daemon import log
from holdfast.errors import StoreError
from holdfast_controller.shell.store import high_water, meta_rows, migrate
from holdfast_controller.shell.store.databases.postgresql import leadership, server, standbys
from holdfast_controller.shell.store.databases.postgresql.connection import PostgresConnection
from holdfast_controller.shell.store.databases.postgresql.leadership import Claim
from holdfast_controller.shell.store.faults import Damaged

TERM_S, GONE_S, LOOK_EVERY_S, SEEN_S = 2.0, 0.75, 0.1, 0.5
"""A controller that leads writes twice in a second. One that doesn't for a term has ended; one was killed whose
connection is gone too. The time between two looks counts for SEEN_S at most."""


class Takeover:
    """The wait of one controller until it leads. See ``Engine`` for what is read of it."""

    def __init__(self, link: PostgresConnection, path: Path, on_stand_by: Callable[[str], None]) -> None:
        """``on_stand_by`` is called with the name of the controller that leads, if this one has to wait for it."""
        self._link = link
        self._path = path
        self._on_stand_by = on_stand_by
        self.stood_by_for = ""
        """The controller that was waited for last, if any was."""
        self._seen = Claim("", "")
        self._furthest = (0, 0)
        """The newest transaction that was seen here: epoch and number."""
        self._followed, self._followed_to = "", 0
        """The server on which another controller was last seen to write, and how far the log was read."""
        self._differing: list[str] = []
        self._connected, self._leader_gone = "", False  # the newest epoch seen to be connected; it no longer is
        self.set_back, self._given_up, self.other_server = "", False, False

    def wait(self, look: Callable[[], int], settings: Mapping[str, str]) -> None:
        """Wait until the controller that leads has written nothing for a term, has ended, or was this one.

        Only time that passes here counts: no clock of another machine is compared. Raises ``StoreError`` once it was
        given up.
        """
        self._seen, last, still = self._claim(), time.monotonic(), 0.0
        self._furthest = max(self._furthest, self._seen.position)
        while not self._free(self._seen) and still < (GONE_S if self._leader_gone else TERM_S):
            time.sleep(LOOK_EVERY_S)
            if self._given_up:
                raise StoreError(f"The wait for {self._link.name} was given up.")
            found, now = self._link.on_whole(self._claim), time.monotonic()
            still = still + min(now - last, SEEN_S) if found == self._seen else 0.0  # not what wasn't seen
            if found != self._seen:
                if found.position > self._furthest:
                    self._furthest, self._followed = found.position, self._link.server.identity
                if not self._free(found):
                    self._stand_by(found.leader)
                    self._link.on_whole(lambda: self.look(look, settings))
            self._seen, last = found, now

    def look(self, read: Callable[[], int], settings: Mapping[str, str]) -> None:
        """Have a standby look at the log. It can't write: the server itself refuses."""
        database = self._link.sql
        with database.begin():
            database.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            self._link.may_take_long()
            self._followed_to = read()
            differing = standbys.differing(database, settings)
        with database.begin():  # what was read is read only
            self._link.tell(standbys.name_of(self._followed_to, standbys.in_short(differing)))
        if differing != self._differing:
            self._differing = differing
            fix = "Make controller.toml the same on both machines, but for what is each one's own."
            log.warning("controller.settings_differ", keys=differing, fix=fix if differing else "")

    def give_up(self) -> None:
        """End the wait, called on any thread: a controller that ends must not lead after all."""
        self._given_up = True

    def take(self) -> bool:
        """Within the transaction that begins an epoch: let no other controller commit until that has ended.

        False where another one has come first, or the one that leads was only slow.
        """
        database = self._link.sql
        self._link.lock()
        self._link.may_take_long()
        database.exec_driver_sql(leadership.LOOK)  # waits for a commit in flight
        if leadership.claim(database) != self._seen:
            return False
        if moved := meta_rows.read(database, "moved_to"):
            fix = "Take database_url out of controller.toml there, and start that controller."
            raise Damaged(f"The store of {self._link.name} was moved to {moved}.", fix=fix)
        migrate.in_transaction(database, self._link.name)  # none that another one uses on
        self._judge_server()
        meta_rows.write(database, "leader", socket.gethostname())
        return True

    def _judge_server(self) -> None:
        """See whether this database may lack what was acknowledged, and note which server it is."""
        before = server.noted(self._link.sql)
        self.other_server = before is not None and before.is_other_than(self._link.server)
        position = high_water.read(self._path)
        led_here = position is not None and position.epoch == self._seen.position[0]
        self.set_back = "it is behind what was seen of it here" if self._seen.position < self._furthest else ""
        if not self.set_back and before is not None and self.other_server:
            self.set_back = before.why_unreconciled(seen_to_its_end=led_here or self._followed == before.identity)
        meta_rows.write(self._link.sql, meta_rows.SERVER, self._link.server.note)

    def _free(self, claim: Claim) -> bool:
        """Whether there is no other controller to wait for: ours, if it was killed, began the epoch noted here."""
        noted = high_water.read(self._path)
        ours = noted is not None and claim.beat.partition(".")[0] == str(noted.epoch)
        return not claim.leader or ours

    def _stand_by(self, leader: str) -> None:
        if leader != self.stood_by_for:
            if leader == socket.gethostname():
                fix = (
                    "Give each controller's machine a host name of its own: status and logs tell them apart by it."
                )
                log.warning("controller.same_name", leader=leader, fix=fix)
            log.info("controller.stands_by", leader=leader, database=self._link.name)
            self._on_stand_by(leader)
        self.stood_by_for = leader

    def _claim(self) -> Claim:
        with self._link.sql.begin():
            found = leadership.claim(self._link.sql)
            epoch = found.beat.partition(".")[0]
            there = standbys.is_connected(self._link.sql, epoch)
        self._connected = epoch if there else self._connected
        self._leader_gone = self._connected == epoch and not there
        return found
