"""The tests that have to notice mutations, by what they hold."""

from typing import Final

FLUSHER: Final = (
    "tests/unit/flush/test_window.py",
    "tests/unit/flush/test_flusher.py",
    "tests/unit/flush/test_accounts.py",
    "tests/unit/flush/test_commit_loop.py",
)
ACCOUNTS: Final = "tests/unit/flush/test_accounts.py"
REPLAY: Final = "tests/unit/dead_letters/test_replay.py"
FLUSH_AND_REPLAY: Final = (*FLUSHER, REPLAY)
SETTER: Final = "tests/unit/counters/test_setter.py"
PENDING_SINCE: Final = "tests/unit/counters/test_pending.py"
GROWTH: Final = "tests/unit/shards/test_shards_needed.py"
IMPORTER: Final = "tests/unit/cli/test_importer.py"
PUBLISHING: Final = "tests/unit/accept/test_publishing.py"
SPOOL: Final = "tests/unit/accept/test_spool.py"
NEWER: Final = "tests/unit/flush/test_newer_versions.py"
EVIDENCE: Final = "tests/unit/model/test_fleet.py"
LARGEST: Final = "tests/unit/counters/test_largest.py"
RANKING: Final = "tests/unit/datastore/test_ranking.py"
ALL_NAMES: Final = "tests/unit/counters/test_reader.py"
DAILY: Final = "tests/unit/jobs/test_expiry.py"
JOB_WORKER: Final = "tests/unit/jobs/test_worker.py"

STORE: Final = "tests/contracts/test_sqlite.py"
IDS: Final = (
    "tests/contracts/test_sqlite.py",
    "tests/unit/sqlite/test_ids.py",
    "tests/unit/flush/test_lives_of_ids.py",
)
MEMORY: Final = "tests/contracts/test_memory.py"
KEPT_JOBS: Final = "tests/contracts/test_jobs.py"

RACES: Final = "tests/interleavings/steps/test_races.py"
DEAD: Final = "tests/interleavings/steps/test_dead_letters.py"
CHANGES_SEEN: Final = "tests/unit/sqlite/test_changes_seen.py"
CHANGES_IN_FLEET: Final = "tests/interleavings/simulation/test_changes.py"
SETS: Final = "tests/interleavings/steps/test_sets.py"
COMPACTIONS: Final = "tests/interleavings/steps/test_compactions.py"
CONSERVATION: Final = "tests/interleavings/traffic/test_conservation.py"
IMPORTS: Final = "tests/interleavings/simulation/test_imports.py"
_RUNS: Final = "tests/interleavings/simulation/test_seeds.py::test_whatever_fails"
SEEDS: Final = f"{_RUNS}_each_increment_counts_once_and_each_read_is_exact"
FLEET: Final = f"{_RUNS}_in_a_fleet_on_redis_no_reading_says_exact_and_is_not"
JOBS: Final = f"{_RUNS}_a_job_changes_each_counter_once"

SET_OVER_HTTP: Final = "tests/http/test_set.py"
JOBS_OVER_HTTP: Final = "tests/http/test_jobs.py"
LETTERS_OVER_HTTP: Final = "tests/http/test_dead_letters.py"
NEW_NAMES: Final = "tests/http/test_new_names.py"
FUZZ: Final = "tests/http/fuzz/test_fuzz.py"
BAD_HTTP: Final = "tests/http/test_bad_http.py"
PLAIN: Final = "tests/unit/parsing/test_plain.py"
POWER: Final = "tests/processes/test_power.py"
STOPS: Final = "tests/interleavings/simulation/test_stops.py"
STOPPED: Final = "tests/unit/fleet/test_membership.py"
HANDOVERS: Final = ("tests/unit/fleet/test_handovers.py", EVIDENCE)
FENCES: Final = "tests/emulators/test_redis_fleet.py"
MEMBERS: Final = "tests/unit/fleet/test_membership.py"
FLEET_IN_DATASTORE: Final = ("tests/emulators/test_datastore_fleet.py", "-k", "epoch")
READER: Final = "tests/unit/counters/test_reader.py"
AGES: Final = "tests/emulators/test_redis_ages.py"
DEAD_IN_DATASTORE: Final = ("tests/emulators/test_datastore.py", "-k", "found_by_each or take_each_other_away")
