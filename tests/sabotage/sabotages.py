"""The sabotages: what is done to which line, and the tests that must notice."""

from typing import Final, NamedTuple

RACES: Final = "tests/path/test_races.py"
REPLAYS: Final = "tests/path/test_replays.py"
FLUSHER: Final = "tests/flusher"
CONTRACTS: Final = "tests/contracts"
CORE: Final = "tests/core"
POWER: Final = "tests/processes/test_power.py"
ACCOUNTS: Final = "tests/flusher/test_accounts.py"
CONSERVATION: Final = "tests/path/test_conservation.py"
SETS: Final = "tests/path/test_sets.py"
SETTER: Final = "tests/core/test_setter.py"
COMPACTIONS: Final = "tests/path/test_compactions.py"
GROWTH: Final = "tests/flusher/test_growth.py"
SET_OVER_HTTP: Final = "tests/http/test_set.py"
STORE: Final = "tests/contracts/test_sqlite.py"
IMPORTER: Final = "tests/imports/test_importer.py"
IMPORTS: Final = "tests/simulation/test_imports.py"
JOBS: Final = "tests/jobs/test_seeds.py"
JOBS_OVER_HTTP: Final = "tests/http/test_jobs.py"
KEPT_JOBS: Final = "tests/contracts/test_jobs.py"
SEEDS: Final = "tests/simulation/test_seeds.py::test_a_few_seeds"
FLEET: Final = "tests/simulation/test_fleet_seeds.py"
EVIDENCE: Final = "tests/core/test_evidence.py"
FENCES: Final = "tests/emulators/test_redis_fleet.py"


class Sabotage(NamedTuple):
    """`line` stands in the file once, and becomes `instead`."""

    name: str
    file: str
    line: str
    instead: str
    caught_by: tuple[str, ...]


SABOTAGES: Final = (
    Sabotage(
        "ack before commit",
        "flusher/flush.py",
        "        while self.window.unsettled():",
        "        await self._ack([held for held in self.window.held])\n        while self.window.unsettled():",
        (FLUSHER,),
    ),
    Sabotage(
        "ALREADY_EXISTS taken as success",
        "flusher/flush.py",
        "            await self._look_up(plan.receipts, {part.key for part in plan.parts})",
        "            self.window.learn(plan.receipts, APPLIED)",
        (FLUSHER, SEEDS),
    ),
    Sabotage(
        "a receipt found dead taken as applied",
        "flusher/window.py",
        "                self.known[key] = receipt.state",
        "                self.known[key] = APPLIED",
        (FLUSHER,),
    ),
    Sabotage(
        "a repeated id counted twice in one commit",
        "flusher/window.py",
        "            if known.get(key) != APPLIED and key not in self.receipts and key not in seen:",
        "            if known.get(key) != APPLIED and key not in seen:",
        (FLUSHER,),
    ),
    Sabotage(
        "receipt outside the commit",
        "shared/sqlite/store.py",
        "INSERT INTO receipts",
        "INSERT OR IGNORE INTO receipts",
        (CONTRACTS,),
    ),
    Sabotage(
        "overlay dropped too early: when a message is pulled",
        "shared/memory/broker.py",
        "            held.attempt += 1",
        "            held.attempt += 1; self.pending.remove([number], 0) if number in self.pending else None",
        (CONTRACTS, SEEDS),
    ),
    Sabotage(
        "an entry removed without raising the floor",
        "shared/memory/overlay.py",
        "self._pending.remove(numbers, time)",
        "self._pending.remove(numbers, 0)",
        (CONTRACTS, SEEDS),
    ),
    Sabotage(
        "an entry made anew is not late",
        "shared/memory/overlay.py",
        "confirmed=confirmed, late=confirmed)",
        "confirmed=confirmed, late=False)",
        (RACES,),
    ),
    Sabotage(
        "an unconfirmed entry counts",
        "shared/exact.py",
        "        if not entry.confirmed:",
        "        if False:",
        (RACES,),
    ),
    Sabotage(
        "a base from before the floor is believed",
        "shared/exact.py",
        "    if base.time < view.floor or base.epoch != view.epoch:",
        "    if base.epoch != view.epoch:",
        (RACES, SEEDS),
    ),
    Sabotage(
        "a late entry is believed to be unapplied",
        "shared/exact.py",
        "        if entry.late and not",
        "        if False and not",
        (RACES,),
    ),
    Sabotage(
        "receipts of unconfirmed entries are not asked for",
        "shared/exact.py",
        "    for entry in view.entries:\n        keys.append",
        "    for entry in view.entries:\n        if not entry.confirmed:\n            continue\n        keys.append",
        (RACES,),
    ),
    Sabotage(
        "a view from before the base is believed",
        "shared/reader.py",
        "                if answer is None or answer.base.viewed <= begun:",
        "                if True:",
        ("tests/core/test_reader.py",),
    ),
    Sabotage(
        "the overlay is viewed before the instant is chosen",
        "shared/reader.py",
        "                if any(snapshot.time < view.floor for view in views.values()):",
        "                if False:",
        (RACES,),
    ),
    Sabotage(
        "what failed to be published is forgotten by the spool",
        "ingest/spool.py",
        "            await self._waiting.give_back(tokens)",
        "            await self._waiting.ack(tokens, 0)",
        ("tests/ingest/test_spool.py", SEEDS),
    ),
    Sabotage(
        "a stale shard number: readers are told of fewer shards than are written",
        "flusher/shardbook.py",
        "        return ShardAdd(name, index, delta, max(num_shards, index + 1), num_shards)",
        "        return ShardAdd(name, index, delta, self._new_counter, num_shards)",
        (FLUSHER,),
    ),
    Sabotage(
        "a shard is made without telling readers of it",
        "shared/sqlite/store.py",
        "(counter, shard, delta))\n            _raise_shards(db, counter, number_for(add, number))",
        "(counter, shard, delta))",
        (CONTRACTS,),
    ),
    Sabotage(
        "the parts of a divided envelope share one receipt",
        "shared/parts.py",
        "        key = key_of_part(envelope.id, number)",
        "        key = key_of_part(envelope.id, 0)",
        (CORE, CONTRACTS),
    ),
    Sabotage(
        "the key of an id forgets its counter",
        "shared/receipts.py",
        """    return "i" + sha256(f"{len(counter)}:{counter}{client_id}".encode()).hexdigest()""",
        """    return "i" + sha256(client_id.encode()).hexdigest()""",
        (CORE, FLUSHER),
    ),
    Sabotage(
        "what is too old to be judged is applied",
        "flusher/worker.py",
        "        if self._ages and too_old(created, published, now, self._tools.retention):",
        "        if False:",
        (FLUSHER,),
    ),
    Sabotage(
        "an envelope is as old as its ingest alone says",
        "shared/receipts.py",
        "    return now - min(created, published) > retention + DAY - HOUR",
        "    return now - created > retention + DAY - HOUR",
        (CORE, FLUSHER),
    ),
    Sabotage(
        "a 202 before the publish is durable",
        "ingest/publishing.py",
        """        future: asyncio.Future[None] = self._loop.create_future()""",
        """        future: asyncio.Future[None] = self._loop.create_future(); future.set_result(None)""",
        (SEEDS,),
    ),
    Sabotage(
        "a start builds on a log that may be on no disk",
        "shared/sqlite/log.py",
        "        if self._inherited:",
        "        if False:",
        (POWER,),
    ),
    Sabotage(
        "a replay's receipt is flipped outside of the commit",
        "flusher/flush.py",
        "            time = await self._apply(Commit(new, adds, revived, plan.tally))",
        "            await tools.store.apply(Commit((), (), revived))\n"
        "            time = await tools.store.apply(Commit(new, adds))",
        (FLUSHER, REPLAYS),
    ),
    Sabotage(
        "a replay does not say that the receipt must be dead",
        "flusher/flush.py",
        "            time = await self._apply(Commit(new, adds, revived, plan.tally))",
        "            time = await tools.store.apply(Commit(new, adds))",
        (FLUSHER, REPLAYS),
    ),
    Sabotage(
        "a dead letter is forgotten before the commit",
        "flusher/replay.py",
        "        await flush.run(patience)",
        "        await self._letters.ack([one.letter.delivery.token for one in opened], 0); await flush.run(patience)",
        (FLUSHER, REPLAYS),
    ),
    Sabotage(
        "a receipt is revived by an upsert",
        "shared/sqlite/store.py",
        "        if not db.execute(_REVIVE",
        "        new = 'INSERT OR IGNORE INTO receipts (key, expires, state, time) VALUES (?, 0, ?, 0)'\n"
        "        db.execute(new, (one.key, 'dead'))\n"
        "        if not db.execute(_REVIVE",
        (CONTRACTS,),
    ),
    Sabotage(
        "a receipt that is not dead is revived",
        "shared/sqlite/store.py",
        " WHERE key = ? AND state = 'dead'",
        " WHERE key = ?",
        (CONTRACTS,),
    ),
    Sabotage(
        "a receipt found dead is not renewed by who buries",
        "flusher/flush.py",
        "                    await self._renew(part)",
        "                    pass",
        (FLUSHER,),
    ),
    Sabotage(
        "what may be applied already is replayed",
        "flusher/replay.py",
        "            if self._judges and",
        "            if False and",
        (FLUSHER,),
    ),
    Sabotage(
        "a forgotten letter leaves the floor where it was",
        "shared/sqlite/letters.py",
        "                forget(db, done, floor)",
        "                forget(db, done, 0)",
        (CONTRACTS,),
    ),
    Sabotage(
        "a second use of a key is taken for a copy, and counted nowhere",
        "flusher/window.py",
        """        if first in {"", part.attempt}:""",
        """        if True:""",
        (SEEDS,),
    ),
    Sabotage(
        "a copy is taken for a second use of its key",
        "flusher/window.py",
        """        if first in {"", part.attempt}:""",
        """        if first == "":""",
        (SEEDS,),
    ),
    Sabotage(
        "an increment whose id is known counts as applied",
        "flusher/window.py",
        "part.increments if part.second else len(part.keyed) - len(keyed)",
        "part.increments if part.second else 0",
        (ACCOUNTS,),
    ),
    Sabotage(
        "a receipt that is revived stands for another use of its id than before",
        "shared/parts.py",
        "replace(self, attempt=attempt or self.attempt, ",
        "replace(self, ",
        (ACCOUNTS,),
    ),
    Sabotage(
        "a receipt that is revived goes on to call its increments dead",
        "flusher/flush.py",
        "note=one.note or notes.SILENT",
        "note=one.note",
        (SEEDS,),
    ),
    Sabotage(
        "a commit that was doubtful is not counted",
        "flusher/flush.py",
        "            if note.commit == self._id and",
        "            if False and",
        (ACCOUNTS,),
    ),
    Sabotage(
        "receipts say of a commit what was planned for another",
        "shared/notes.py",
        "            note[_SUMS] = some",
        "            note[_SUMS] = dict.fromkeys(some, 1)",
        (SEEDS,),
    ),
    Sabotage(
        "a sweep forgets what receipts said",
        "shared/sqlite/books.py",
        "    carry(db, sums)",
        "    carry(db, {})",
        (CONTRACTS,),
    ),
    Sabotage(
        "a file does not count what it takes",
        "shared/sqlite/broker.py",
        "                    increments += row[4]",
        "                    increments += 1",
        (CONSERVATION,),
    ),
    Sabotage(
        "the guard of a set is not checked",
        "shared/sqlite/guards.py",
        '    " WHERE :seen = coalesce((SELECT',
        '    " WHERE -1 < :seen + coalesce((SELECT',
        (STORE,),
    ),
    Sabotage(
        "a set does not say which guard it saw",
        "shared/setter.py",
        "        guard = Guard(look.guard.version, ",
        "        async with self._store.snapshot() as now:\n"
        "            seen = (await now.read([counter], ()))[0][counter].guard.version\n"
        "        guard = Guard(seen, ",
        (SETS, SEEDS),
    ),
    Sabotage(
        "a set does not raise the floor",
        "shared/setter.py",
        "            await self._overlay.raise_floor(counter, time)",
        "            pass",
        (SETS, SEEDS),
    ),
    Sabotage(
        "a retry of a set does not raise the floor",
        "shared/setter.py",
        "                    return await self._earlier(receipt)",
        "                    return (await self._earlier(receipt))[0], 0",
        (SETS,),
    ),
    Sabotage(
        "a raised floor is not told to other processes",
        "shared/sqlite/broker.py",
        "    _tell(db, orjson.dumps(counter).decode())",
        "    pass",
        (STORE,),
    ),
    Sabotage(
        "the receipt of a set outside of its commit",
        "shared/setter.py",
        "        time = await self._store.apply(Commit(tuple(receipts), tuple(adds), guard=(counter, guard)))",
        "        await self._store.apply(Commit((), tuple(adds)))\n"
        "        time = await self._store.apply(Commit(tuple(receipts), (), guard=(counter, guard)))",
        (SETS, SEEDS),
    ),
    Sabotage(
        "each try of a set has a receipt of its own",
        "shared/setter.py",
        "        receipt = key_of_set(counter, wish.kind, wish.key or mint())",
        "        receipt = key_of_set(counter, wish.kind, mint())",
        (SET_OVER_HTTP,),
    ),
    Sabotage(
        "a set forgets what is pending",
        "shared/setter.py",
        "divided(wish.value - look.reading.value)",
        "divided(wish.value - look.reading.applied)",
        (SETS, SEEDS),
    ),
    Sabotage(
        "a set of what can't be read exactly",
        "shared/setter.py",
        "        if not reading.exact:",
        "        if False:",
        (SETTER,),
    ),
    Sabotage(
        "a limit after a commit that may come late is taken for the end of a set",
        "shared/setter.py",
        "                doubtful = True",
        "                pass",
        (SETTER,),
    ),
    Sabotage(
        "a removal is not seen by a set that was read before it",
        "shared/sqlite/guards.py",
        "SET deleted = 0, version = ? WHERE",
        "SET deleted = 0, version = max(0 * ?, version) WHERE",
        (STORE,),
    ),
    Sabotage(
        "the receipt of a set does not say what it added",
        "shared/notes.py",
        "    rest = [{_SUMS: {counter: delta}} for delta in deltas]",
        "    rest = [{_SUMS: {counter: 0}} for delta in deltas]",
        (SET_OVER_HTTP, SEEDS),
    ),
    Sabotage(
        "what was deleted is removed though something is under way to it",
        "shared/memory/store.py",
        "        if not guard.deleted or self._held(counter):",
        "        if not guard.deleted:",
        (SEEDS,),
    ),
    Sabotage(
        "a file removes what was deleted though it holds something",
        "shared/sqlite/guards.py",
        "    if sum(count for (count,) in counts):",
        "    if False:",
        (STORE,),
    ),
    Sabotage(
        "the mark of an import is not checked",
        "shared/sqlite/marks.py",
        '    " WHERE :seen = coalesce((SELECT',
        '    " WHERE 0 <= abs(:seen) + coalesce((SELECT',
        (STORE,),
    ),
    Sabotage(
        "the mark of an import outside of its commit",
        "countersink/importer.py",
        "            await self._insist(lambda: self._store.apply(commit))",
        "            await self._insist(lambda: self._store.apply(Commit(commit.receipts, commit.adds)))\n"
        "            await self._insist(lambda: self._store.apply(Commit((), (), marks=commit.marks)))",
        (IMPORTS,),
    ),
    Sabotage(
        "an import adds to what it saw before the others",
        "shared/memory/store.py",
        "        if any(self._marks.get(mark[:2], 0) != mark.seen for mark in commit.marks):",
        "        if any(self._marks.get(mark[:2], 0) > mark.total for mark in commit.marks):",
        (IMPORTS,),
    ),
    Sabotage(
        "each try of an import is a commit of its own",
        "countersink/importer.py",
        "            return key in (await self._insist(lambda: self._store.receipts([key]))).found",
        "            return False",
        (IMPORTER,),
    ),
    Sabotage(
        "an import takes what another did for its own",
        "countersink/importer.py",
        "            return key in (await self._insist(lambda: self._store.receipts([key]))).found",
        "            return True",
        (IMPORTER,),
    ),
    Sabotage(
        "the receipt of an import says totals",
        "countersink/importer.py",
        "{add.counter: add.delta for add in adds}",
        "{mark.counter: mark.total for mark in todo}",
        (IMPORTER, IMPORTS),
    ),
    Sabotage(
        "an import follows a counter down",
        "countersink/importer.py",
        "went_back(one.total, mark) and not self._way.shrink",
        "False",
        (IMPORTER,),
    ),
    Sabotage(
        "what another import saw later is taken for a loss",
        "countersink/importer.py",
        "        one = await self._insist(lambda: self._source.counter(name)) or Foreign(name)",
        "        one = Foreign(name)",
        (IMPORTER,),
    ),
    Sabotage(
        "a task of a job is done with before its counters are changed",
        "flusher/tasks.py",
        "        outcome = await visit(job, page) if page else Outcome(0)",
        "        import asyncio\n\n        outcome = Outcome(len(page), len(page))\n"
        "        self._late = asyncio.ensure_future(visit(job, page))",
        (JOBS,),
    ),
    Sabotage(
        "a task of a job is acknowledged before it is done",
        "flusher/runner.py",
        "                await self._worker.work(lease.task)",
        "                await self._tasks.ack([lease.token])\n                await self._worker.work(lease.task)",
        (JOBS,),
    ),
    Sabotage(
        "what a job adds has no receipts",
        "flusher/adding.py",
        "        return Commit(tuple(receipts), tuple(adds))",
        "        return Commit((), tuple(adds))",
        (JOBS,),
    ),
    Sabotage(
        "one receipt of a page is taken for all of them",
        "flusher/adding.py",
        "        return {name: shards for name, shards in left.items() if keys[name] not in found}",
        "        return {}",
        (JOBS,),
    ),
    Sabotage(
        "a job adds to what is left of deleted counters",
        "flusher/visits.py",
        "for name, number in there.items() if name not in deleted or totals[name].value}",
        "for name, number in there.items() if totals}",
        (JOBS_OVER_HTTP,),
    ),
    Sabotage(
        "a job resets under a receipt of each visit",
        "flusher/setting.py",
        "set_existing(name, wish, job.receipt_of(name))",
        'set_existing(name, wish, job.receipt_of(name) + __import__("secrets").token_hex())',
        (JOBS_OVER_HTTP, JOBS),
    ),
    Sabotage(
        "a job compacts under no receipt of its own",
        "flusher/compacting.py",
        "compact(name, job.number, stamps[name])",
        "compact(name, job.number)",
        (JOBS_OVER_HTTP,),
    ),
    Sabotage(
        "a job compacts beside an ndb application",
        "shared/starting.py",
        "            self._compactor.check()",
        "            pass",
        (JOBS_OVER_HTTP,),
    ),
    Sabotage(
        "what a file's queue is given back is handed out again at once",
        "shared/sqlite/tasks.py",
        "INSERT INTO tasks (data) SELECT data FROM",
        "INSERT INTO tasks (seq, data) SELECT -seq, data FROM",
        (KEPT_JOBS,),
    ),
    Sabotage(
        "a job looks whether counters are deleted after it looked whether they are there",
        "flusher/visits.py",
        "    deleted = await store.deleted_among(names)\n    there = await store.shards(names)\n",
        "    there = await store.shards(names)\n    deleted = await store.deleted_among(names)\n",
        ("tests/jobs/test_worker.py",),
    ),
    Sabotage(
        "a task that can't be done keeps its place",
        "flusher/runner.py",
        "        for left in reversed(range(TRIES)):",
        "        while left := True:",
        ("tests/jobs/test_worker.py",),
    ),
    Sabotage(
        "the children of a task that was recorded are not published again",
        "flusher/tasks.py",
        "            left = await self._left(task, done)",
        "            left = ()",
        (JOBS,),
    ),
    Sabotage(
        "who goes through a job once more stops at what is done",
        "flusher/tasks.py",
        "        if task.again:",
        "        if False:",
        (JOBS_OVER_HTTP, "tests/jobs"),
    ),
    Sabotage(
        "a job is finished while tasks are open",
        "flusher/tasks.py",
        "standing.state == RUNNING and not standing.open:",
        "standing.state == RUNNING:",
        (JOBS,),
    ),
    Sabotage(
        "a second split of a task is believed",
        "shared/sqlite/jobs.py",
        "                return _recorded(db, task.job, [task.range.after])[task.range.after]",
        "                return done",
        (KEPT_JOBS,),
    ),
    Sabotage(
        "a job that is older than its receipts goes on",
        "flusher/tasks.py",
        "        if int(self._clock.now() * 1000) <= job.until(self._receipts_live):",
        "        if True:",
        ("tests/jobs",),
    ),
    Sabotage(
        "who believes in a shard that went makes it anew",
        "shared/sharding.py",
        "    return 0 < there <= add.shard < add.known",
        "    return False",
        (STORE, COMPACTIONS),
    ),
    Sabotage(
        "what is added to a shard that is made is not looked for",
        "shared/sharding.py",
        "    return add.shard + 1 if there and add.known else add.num_shards",
        "    return 0 if there else add.num_shards",
        (STORE, SEEDS),
    ),
    Sabotage(
        "a compaction drops what the highest shards hold",
        "shared/sharding.py",
        "        given.append(part)",
        "        given.append(0)",
        (STORE, COMPACTIONS, SEEDS),
    ),
    Sabotage(
        "a file keeps the shards that nobody reads any more",
        "shared/sqlite/compaction.py",
        'db.execute("DELETE FROM shards WHERE counter = ? AND shard >= ?", (counter, num_shards))',
        'db.execute("UPDATE shards SET count = 0 WHERE counter = ? AND shard >= ?", (counter, num_shards))',
        (STORE,),
    ),
    Sabotage(
        "a set gives up when its shard went",
        "shared/setter.py",
        "            except (ChangedError, ShrunkError) as error:",
        "            except ChangedError as error:",
        (COMPACTIONS,),
    ),
    Sabotage(
        "what a flusher wrote itself is taken for others'",
        "flusher/writing.py",
        "        if age is not None and age < since - SLACK:",
        "        if age is not None:",
        (GROWTH,),
    ),
    Sabotage(
        "a burst is taken for a rate",
        "flusher/writing.py",
        "        return min(sum(counts) / len(counts), UNEVEN * min(counts)) / BUCKET",
        "        return sum(counts) / len(counts) / BUCKET",
        (GROWTH,),
    ),
    Sabotage(
        "a member answers apart and does not say so to the store",
        "shared/redis/member.py",
        "            if left <= 0:\n                await self._owe()",
        "            if left <= 0:\n                self.membership.state = OWES",
        (FLEET,),
    ),
    Sabotage(
        "a member does not wait for looks of before it went apart",
        "shared/membership.py",
        "        self._wait = longest_look + MARGIN if longest_look else 0.0",
        "        self._wait = 0.0",
        (FLEET,),
    ),
    Sabotage(
        "any master that holds the epoch is the overlay",
        "shared/redis/scripts.py",
        "if not master or identity ~= ARGV[1] or redis",
        "if not master or redis",
        (FLEET,),
    ),
    Sabotage(
        "a server that lost the epoch is the overlay",
        "shared/redis/scripts.py",
        " or redis.call('EXISTS', EPOCH) == 0 then return {'bad'}",
        " then return {'bad'}",
        (FLEET,),
    ),
    Sabotage(
        "a member that comes back leaves out what it has answered",
        "shared/redis/member.py",
        "        while left := [attempt for attempt in self._copy.confirmed() if attempt.number not in written]:",
        "        while left := []:",
        (FLEET,),
    ),
    Sabotage(
        "a reading is exact though a member owes",
        "shared/redis/overlay.py",
        "look is not None and look.fleet.whole()",
        "look is not None",
        (FLEET,),
    ),
    Sabotage(
        "a base of before a change of the fleet is believed",
        "shared/redis/overlay.py",
        "max(floor, changed))",
        "floor)",
        (FLEET,),
    ),
    Sabotage(
        "a record goes though it is not the one that was seen",
        "shared/redis/janitor.py",
        "            same = now.overlay == fleet.overlay and now.members.get(name) == record",
        "            same = True",
        (FENCES,),
    ),
    Sabotage(
        "the floor of all counters is not raised by those that are forgotten",
        "shared/redis/scripts.py",
        "  if less(floor, own) then",
        "  if false then",
        (FENCES,),
    ),
    Sabotage(
        "a member that is gone is forgotten without a wait",
        "shared/evidence.py",
        "max(one.begun, last) >= WATCHES * 1000",
        "max(one.begun, last) >= -(10**15)",
        (
            FLEET,
            EVIDENCE,
        ),
    ),
    Sabotage(
        "what flushers saw before a member's last word is evidence",
        "shared/evidence.py",
        "max(one.begun, last)",
        "one.begun",
        (EVIDENCE,),
    ),
    Sabotage(
        "a flusher that comes late is struck before it could report",
        "shared/fleet.py",
        "begun=now, until=now)",
        "begun=0, until=0)",
        (
            FLEET,
            EVIDENCE,
        ),
    ),
    Sabotage(
        "a member that was fenced answers under the record that may go",
        "shared/redis/member.py",
        "        if self._fenced and self.membership.state == JOINED:",
        "        if False:",
        (FENCES,),
    ),
)
