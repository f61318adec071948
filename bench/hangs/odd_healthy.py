"""Two healthy ranks that print oddly, or nothing for ``LAST_S``, by one of them or all."""

from __future__ import annotations

import contextlib
import itertools
import logging
import logging.handlers
import multiprocessing
import queue
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed

from bench.hangs.gang import LAST_S, RANK, Gang, work
from bench.hangs.odd_hung import TRAIN_STEPS, began, burn, say, train

CHILD = "import time\nfor n in range(10 ** 6): print({line}, flush=True); time.sleep(0.7)"


def steps(share: float = 0.7) -> Iterator[int]:
    """Steps of CPU time alone, for as long as a healthy phase lasts."""
    end = time.monotonic() + LAST_S
    for step in itertools.count():
        if time.monotonic() > end:
            return
        burn(0.5 * share)
        time.sleep(0.5 * (1 - share))
        yield step


def falling_loss(gang: Gang) -> None:
    began()
    for step in steps():
        gang.all_reduce(step)
        if RANK == 0 and step % 4 == 0:
            say(f"loss {2 / (1 + step / 50):.5f}")


def noisy_loss(gang: Gang) -> None:
    began()
    for step in steps():
        gang.all_reduce(step)
        if RANK == 0 and step % 4 == 0:
            say(f"loss {1 + random.random() / 10:.4f}")


def countdown(gang: Gang) -> None:
    began()
    for step in steps():
        gang.all_reduce(step)
        if RANK == 0 and step % 4 == 0:
            say(f"{5000 - step} batches to go")


def light_countdown(gang: Gang) -> None:
    """Hardly any CPU: what is counted down is done elsewhere."""
    began()
    for left in range(int(LAST_S / 2.5), 0, -1):
        time.sleep(2.5)
        gang.all_reduce(left)
        if RANK == 0:
            say(f"{left} requests to go")


def phase(odd: Callable[[], object], *, who: int = 0, everyone: bool = False) -> Callable[[Gang], None]:
    """Training, then one rank (or all) does something else for a while, then training again."""

    def run(gang: Gang) -> None:
        train(gang)
        began()
        if everyone or who == RANK:
            odd()
        train(gang, 200, TRAIN_STEPS)

    return run


def evaluates() -> None:
    for step in steps():
        if step % 4 == 0:
            say(f"eval: accuracy {0.7 + random.random() / 100:.4f} at {step * 0.7:.1f}%")


def compiles() -> None:
    end = time.monotonic() + LAST_S
    while time.monotonic() < end:
        code = (
            "import time; e = time.monotonic() + 4\nwhile time.monotonic() < e: sum(range(999)); time.sleep(1e-3)"
        )
        subprocess.run([sys.executable, "-c", code], check=True)


def child_with_bar() -> None:
    """A download by another program, which prints a bar."""
    line = "f'model.bin:  {n}.{n % 10} MB received'"
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run([sys.executable, "-c", CHILD.format(line=line)], timeout=LAST_S, check=True)


def tokenises() -> None:
    def run(number: int) -> None:
        for step in steps():
            if step % 6 == 0:
                say(f"shard {number}: {step * 100} documents")

    children = [multiprocessing.get_context("fork").Process(target=run, args=(number,)) for number in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()


def licence() -> None:
    """Asks for a licence again and again; its place in the queue falls."""
    for turn in range(int(LAST_S / 5)):
        say(f"licence server: position {30 - turn // 3}")
        time.sleep(5)


def schedule() -> None:
    for _ in range(int(LAST_S / 12)):
        time.sleep(12)


def loader_at_work() -> None:
    """A batch that takes its worker a minute."""
    batches: multiprocessing.Queue[int] = multiprocessing.Queue()

    def run() -> None:
        work(0.7)
        batches.put(1)

    multiprocessing.get_context("fork").Process(target=run, daemon=True).start()
    batches.get()


def listened(gang: Gang) -> None:
    """The main thread trains, and a logging thread prints."""
    lines: queue.Queue[object] = queue.Queue()
    logger = logging.getLogger("train")
    logger.setLevel(logging.INFO)
    logger.addHandler(logging.handlers.QueueHandler(lines))
    logging.handlers.QueueListener(lines, logging.StreamHandler(sys.stdout)).start()
    for shard in range(12):
        say(f"loading shard {shard}")
        time.sleep(0.7)
    began()
    for step in steps():
        gang.all_reduce(step)
        if RANK == 0 and step % 4 == 0:
            logger.info("step %d loss %.4f", step, 2 / (step + 1))


def threaded(gang: Gang) -> None:
    """The training is a thread, and the main thread waits for its end."""
    for shard in range(12):
        say(f"loading shard {shard}")
        time.sleep(0.7)

    def run() -> None:
        for step in steps():
            gang.all_reduce(step)
            if RANK == 0 and step % 4 == 0:
                say(f"step {step} loss {2 / (step + 1):.4f}")

    began()
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


def threaded_after_training(gang: Gang) -> None:
    """A minute of steps by the main thread; then a thread trains, and it waits."""
    train(gang)
    threaded(gang)


def asked_by_threads() -> None:
    """An evaluation by requests: threads that wait for a service, and count."""

    def ask(number: int) -> None:
        time.sleep(2 + random.random())
        burn(0.05)
        say(f"judged {number} answers")

    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(ask, range(int(LAST_S * 3))):
            pass


_done = itertools.count(1)
_counting = threading.Lock()


def tell_of_one(words: str) -> None:
    """Wait for something elsewhere for a moment, and count it in print."""
    time.sleep(1 + random.random())
    with _counting:
        say(words.format(next(_done)))


def counted_by_threads() -> None:
    """An evaluation by requests, counted by all threads together."""
    with ThreadPoolExecutor(2) as pool:
        for asked in as_completed([pool.submit(tell_of_one, "judged {} answers") for _ in range(int(LAST_S))]):
            asked.result()


def uploads() -> None:
    """Threads send a checkpoint from memory, and print how much; the main thread looks now and then."""
    with ThreadPoolExecutor(2) as pool:
        parts = [pool.submit(tell_of_one, "uploaded {} MB") for _ in range(int(LAST_S))]
        while not all(part.done() for part in parts):
            time.sleep(1)


def asked_by_processes() -> None:
    """Forked processes ask a service, and count; the main thread waits for all of them."""
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(tell_of_one, ["scored {} answers"] * int(LAST_S), chunksize=1)


def light_thread(gang: Gang) -> None:
    """A thread trains and waits for its accelerator; the main thread waits for the thread's end."""
    say("loading the data")
    began()

    def run() -> None:
        for step in range(int(LAST_S / 1.5)):
            time.sleep(1.5)
            gang.all_reduce(step)
            if RANK == 0:
                say(f"step {step} loss {2 / (step + 1):.4f}")

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


def told_by_a_thread(gang: Gang) -> None:
    """The main thread prints each epoch; what workers elsewhere print of their steps a thread prints."""

    def run() -> None:
        for step in range(int(LAST_S) + 40):
            time.sleep(1)
            say(f"(worker pid=7) step {step}")

    threading.Thread(target=run, daemon=True).start()
    for epoch in range(8):
        time.sleep(2)
        say(f"epoch {epoch} done")
    began()
    for _ in range(int(LAST_S) * 2):
        time.sleep(0.5)


def rare_lines(gang: Gang) -> None:
    began()
    for step in range(int(LAST_S / 0.4) + 200):
        burn(0.05)
        time.sleep(0.3)
        gang.all_reduce(step)
        if RANK == 0 and step % 40 == 0:
            say(f"step {step}")


def slow_steps(gang: Gang) -> None:
    began()
    for step in range(int(LAST_S / 4)):
        time.sleep(4)
        burn(0.05)
        gang.all_reduce(step)
        if RANK == 0:
            say(f"step {step}")


HEALTHY: dict[str, Callable[[Gang], None]] = {
    "falling loss": falling_loss,
    "noisy loss": noisy_loss,
    "countdown": countdown,
    "light countdown": light_countdown,
    "rank 0 evaluates and prints": phase(evaluates),
    "all evaluate": phase(work, everyone=True),
    "compile in children": phase(compiles, everyone=True),
    "download by a child with a bar": phase(child_with_bar),
    "tokenising in forked children": phase(tokenises),
    "licence queue, polled": phase(licence),
    "sleeping scheduler": phase(schedule, everyone=True),
    "loader worker at work": phase(loader_at_work),
    "logging thread": listened,
    "training in a thread": threaded,
    "training in a thread after a minute of steps": threaded_after_training,
    "evaluation by threads that ask": phase(asked_by_threads),
    "evaluation counted by threads": phase(counted_by_threads),
    "upload by threads": phase(uploads),
    "evaluation by forked processes that ask": phase(asked_by_processes),
    "light training in a thread": light_thread,
    "a thread prints the steps of others": told_by_a_thread,
    "rare lines": rare_lines,
    "slow steps": slow_steps,
}
