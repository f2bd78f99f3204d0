"""Mixed load from many clients of several principals: scans, changes of rows, DDL, cancels,
disconnects.

    python -m tests.load.mixed --seconds 3600 --lake

No error may come that was not asked for (only those who change the same row may be told to try
again), the server's memory and threads stay level, and in the end the rows are those that were
acknowledged. `--kill` kills the server in the midst of it and starts it again, `--terminate` has it
end by SIGTERM.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow as pa
from tests.load.figures import Figures
from tests.load.serving import ROOT, SCHEMA, WRITERS, Ground, Served, Watch
from tests.load.worker import COUNTERS, ROWS, SHARED, Place, Worker, total

from sparkport.testing import DuckDBClient

NOBODY = 9_999
"""Owner of rows that are sent by processes that die, and never committed."""
_MORE_SECONDS = 60.0


class Load:
    """Clients with what they know, on a ground on which servers may come and go."""

    def __init__(self, ground: Ground, clients: int = 32, big_rows: int = 50_000) -> None:
        self.ground = ground
        self.figures = Figures()
        self.workers = [Worker(number) for number in range(clients)]
        self._big_rows = big_rows

    def place(self, served: Served) -> Place:
        ground = self.ground
        return Place(
            served.location,
            ground.catalog,
            ground.tokens,
            self._big_rows,
            ground.lake,
            self.figures,
        )

    def prepare(self, served: Served) -> None:
        """Make the tables."""
        place = self.place(served)
        with self._client(place) as client:
            client.create_schema(SCHEMA)
            for name in SHARED:
                client.create_table(SCHEMA, name, ROWS)
            ids = pa.array(range(self._big_rows), pa.int64())
            text = pa.array(
                [f"row {number} of the table that is read" for number in range(self._big_rows)]
            )
            big = {"id": ids, "owner": pa.array([0] * len(ids)), "n": ids, "text": text}
            client.create_table_as(SCHEMA, "big", pa.table(big, ROWS))
            counters = {
                "id": range(COUNTERS),
                "owner": [0] * COUNTERS,
                "n": [0] * COUNTERS,
                "text": [""] * COUNTERS,
            }
            client.create_table_as(
                SCHEMA, "counters", pa.table({k: list(v) for k, v in counters.items()}, ROWS)
            )

        def prepare(worker: Worker) -> None:
            with worker.connected(place):
                worker.prepare()

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(prepare, self.workers))

    def run(
        self,
        served: Served,
        seconds: float,
        end: Callable[[], object] | None = None,
        enough: Callable[[], bool] = lambda: True,
    ) -> None:
        """Work for so long, and up to a minute longer until it is enough.

        `end` then ends the server under the clients' feet.
        """
        place = self.place(served)
        threads = [
            threading.Thread(target=worker.work, args=[place], daemon=True)
            for worker in self.workers
        ]
        vanishing = threading.Thread(target=self._vanish, args=[place], daemon=True)
        for thread in (*threads, vanishing):
            thread.start()
        deadline = time.monotonic() + seconds
        while not self.figures.wrong and served.process.poll() is None:
            late = time.monotonic() - deadline
            if late > _MORE_SECONDS or (late > 0 and enough()):
                break
            time.sleep(0.2)
        if served.process.poll() is not None:
            self.figures.unexpected(
                f"the server has ended by itself with {served.process.returncode}"
            )
        if end is not None:
            place.going.set()
            end()
        place.stop.set()
        for thread in (*threads, vanishing):
            thread.join(180)
            if thread.is_alive():
                self.figures.unexpected("a client hangs")

    def _vanish(self, place: Place) -> None:
        """Processes that die in the midst of a scan and of a write."""
        command = [
            sys.executable,
            "-m",
            "tests.load.vanishing",
            place.location,
            place.catalog,
            place.tokens["ada"],
        ]
        while not place.stop.wait(3):
            code = subprocess.run(
                command, timeout=120, check=False, cwd=ROOT, stderr=subprocess.DEVNULL
            ).returncode
            if code == 0:
                self.figures.done("vanish", 0.0)
            elif not place.going.is_set():
                self.figures.unexpected(f"a client that should vanish ended with {code}")
            place.stop.wait(15)

    def verify(self, served: Served) -> None:
        """Compare what is there with what was acknowledged."""
        place = self.place(served)

        def verify(worker: Worker) -> None:
            with worker.connected(place):
                worker.verify()

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(verify, self.workers))
        with self._client(place) as client:
            self._verify_counts(place, client)
            assert client.scan(SCHEMA, SHARED[0], where=f"owner = {NOBODY}").num_rows == 0
            big = client.scan(SCHEMA, "big")
            assert (big.num_rows, total(big["n"])) == (
                self._big_rows,
                self._big_rows * (self._big_rows - 1) // 2,
            )
            least = sum(worker.increments for worker in self.workers)
            most = least + sum(worker.perhaps_increments for worker in self.workers)
            found = total(client.scan(SCHEMA, "counters", ["n"])["n"])
            assert least <= found <= most, f"{found} increments, {least} to {most} of them known"
            for name in [each for each in client.tables(SCHEMA) if each.startswith("scratch_")]:
                assert client.count(SCHEMA, name) in (
                    0,
                    10,
                )  # of a CREATE TABLE AS that the server has not survived

    def _verify_counts(self, place: Place, client: DuckDBClient) -> None:
        """Nobody has rows but those who know of them. Statements that were cancelled last may still
        be on their way.
        """
        deadline = time.monotonic() + 60
        while True:
            expected = sum(len(worker.shared.rows) for worker in self.workers)
            found = sum(client.count(SCHEMA, name) for name in SHARED)
            if found == expected or time.monotonic() > deadline:
                break
            time.sleep(1)
            for worker in self.workers:
                if worker.shared.perhaps:
                    with worker.connected(place):
                        worker.check_rows()
        assert found == expected, "there are rows that nobody knows of, or too few"

    def _client(self, place: Place) -> DuckDBClient:
        return DuckDBClient(
            place.location, place.catalog, token=place.tokens[WRITERS[0]], timeout=120
        )

    def expect_nothing_wrong(self) -> None:
        """Raises: AssertionError."""
        wrong = [*self.figures.wrong, *self.ground.unforeseen()]
        assert not wrong, "\n".join(
            [f"{len(wrong)} things are wrong:", *wrong[:10], self.figures.table()]
        )


def growth(watch: Watch, clients: int, warm: float = 0.3) -> tuple[str, list[str]]:
    """What the server uses when it is warm and in the end, and what has grown by more than it may.

    Memory may grow by a quarter and 64 MB of the server, and by a quarter and 256 MB of Java, whose
    heap is filled up to its limit before it is swept; threads of the server by 24, or to three for
    each client, since there is one for each call that happens to be under way, and of Java by 100,
    which has one for each of those that has asked it something, until it notices that they have
    ended.
    """
    first, last = watch.between(warm, min(1.0, warm + 0.2)), watch.between(0.85, 1.0)
    text = (
        f"server {first.server_mb:.0f} → {last.server_mb:.0f} MB, {first.threads} → "
        f"{last.threads} threads; "
        f"Java {first.java_mb:.0f} → {last.java_mb:.0f} MB, {first.java_threads} → "
        f"{last.java_threads} threads"
    )
    problems = []
    for what, before, after, most in (
        ("memory of the server", first.server_mb, last.server_mb, first.server_mb * 1.25 + 64),
        ("memory of Java", first.java_mb, last.java_mb, first.java_mb * 1.25 + 256),
        (
            "threads of the server",
            first.threads,
            last.threads,
            max(first.threads + 24, 3 * clients),
        ),
        ("threads of Java", first.java_threads, last.java_threads, first.java_threads + 100),
    ):
        if after > most:
            problems.append(f"{what} grew from {before:.0f} to {after:.0f}")
    return text, problems


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--big-rows", type=int, default=100_000)
    parser.add_argument(
        "--lake",
        action="store_true",
        help="a lake in a temporary folder; without it, the demo in memory",
    )
    parser.add_argument(
        "--kill", action="store_true", help="kill the server after a third of the time"
    )
    parser.add_argument(
        "--terminate", action="store_true", help="end it by SIGTERM after two thirds of the time"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        # Java fills the heap that it is given before it sweeps it: with a small one it can be seen
        # whether it stays level.
        flags = ["--spark-conf", "spark.driver.memory=1g"] if options.lake else []
        ground = Ground(Path(folder), options.lake, flags)
        load = Load(ground, options.clients, options.big_rows)
        problems = _run(load, options)
        say(load.figures.table())
        problems += [*load.figures.wrong, *ground.unforeseen()]
    say("\n".join(["WRONG:", *problems[:20]]) if problems else "nothing is wrong")
    return 1 if problems else 0


def _run(load: Load, options: argparse.Namespace) -> list[str]:
    part, problems = options.seconds / (1 + options.kill + options.terminate), []
    ends: list[Callable[[Served], object] | None] = [Served.kill] if options.kill else []
    ends += [lambda served: _expect_zero(served, load)] if options.terminate else []
    for number, end in enumerate([*ends, None]):
        with load.ground.serving() as served:
            if number == 0:
                load.prepare(served)
            else:
                load.verify(served)
                say("after a restart all that was acknowledged is there")
            with Watch(served) as watch:
                load.run(served, part, None if end is None else partial(end, served))
            text, grown = growth(watch, options.clients)
            say(text)
            problems += grown
            if end is None:
                load.verify(served)
                _expect_zero(served, load)
    return problems


def _expect_zero(served: Served, load: Load) -> None:
    began = time.monotonic()
    code = served.terminate(60)
    say(f"SIGTERM: it ended with {code} after {time.monotonic() - began:.1f} s")
    if code:
        load.figures.unexpected(f"after SIGTERM it ended with {code}")


if __name__ == "__main__":
    sys.exit(main())
