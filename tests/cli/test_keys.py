"""countersink keys, and services that can't read their keys."""

import asyncio
import contextlib
import fcntl
import json
import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from countersink import AsyncClient, RejectedError
from countersink_server.cli import keys as commands
from ingest.access.keys import KeyRing, content_of, find, parse
from shared.model.errors import CountersinkError, SettingsError
from tests.cli.running import Done, run, run_here
from tests.meta.checkout import ROOT
from tests.processes.harness import processes
from tests.world.manual_clock import ManualClock

FILE = "COUNTERSINK_KEYS_FILE"


def keys(folder: Path, *arguments: str) -> Done:
    return run_here("keys", *arguments, cwd=folder, **{FILE: "keys.json"})


def entries(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "keys.json").read_bytes())["keys"]
    return found


def test_a_key_is_shown_once_and_only_its_hash_is_stored(tmp_path: Path) -> None:
    new = keys(tmp_path, "new", "shop", "--scope", "write,read", "--prefix", "a:", "--prefix", "b:", "--rate", "10")
    text = new.said.removesuffix("\n")
    assert text.startswith("csk_shop_")
    (entry,) = entries(tmp_path)
    wanted = {"id": "shop", "scopes": ["write", "read"], "prefixes": ["a:", "b:"], "rate": 10.0}
    assert {name: value for name, value in entry.items() if name != "sha256"} == wanted
    file = tmp_path / "keys.json"
    assert text.rpartition("_")[2] not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    by_id = {key.id: key for key in parse(file.read_bytes()).keys}
    found = find(by_id, text)
    assert found is not None
    assert found.id == "shop"
    for wrong in (text[:-1], text + "0", text.replace("csk", "cpk"), text.replace("shop", "shoq"), "", "csk_shop_"):
        assert find(by_id, wrong) is None


def test_list_shows_what_a_key_may_and_revoke_removes_it(tmp_path: Path) -> None:
    assert keys(tmp_path, "list").out == ""
    first = keys(tmp_path, "new", "a", "--scope", "admin", "--owner", "ops", "--expires", "2020-01-01", "--note", "old")
    second = keys(tmp_path, "new", "site", "--publishable", "--prefix", "p:", "--origin", "https://a.example")
    assert second.out.startswith("cpk_site_")
    (tmp_path / "keys.json").chmod(0o640)
    listed = keys(tmp_path, "list").out
    assert listed.splitlines() == [
        "a     admin, owner ops, EXPIRED 2020-01-01T00:00:00+00:00, old",
        "site  publishable, write, prefixes 'p:', origins https://a.example",
    ]
    for done in (first, second):
        assert done.out.rpartition("_")[2].strip() not in listed
    assert keys(tmp_path, "revoke", "a") == Done(0, "", [])
    assert [entry["id"] for entry in entries(tmp_path)] == ["site"]
    assert stat.S_IMODE((tmp_path / "keys.json").stat().st_mode) == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["keys.json"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("new", "b"), 2), (("new", "b", "--scope", "delete"), 2), (("new", "b", "--scope", ""), 2),
        (("new", "b", "--scope", "read,,write"), 2), (("new", "b", "--scope", "read,"), 2),
        (("new", "b", "--scope", "read", "--scope", "read"), 2),
        (("new", "b_c d", "--scope", "read"), 2), (("new", "a", "--scope", "read"), 1),
        (("new", "b", "--scope", "read", "--rate", "0"), 2),
        (("new", "b", "--scope", "read", "--rate", "nan"), 2),
        (("new", "b", "--scope", "read", "--rate", "inf"), 2),
        (("new", "b", "--scope", "read", "--expires", "soon"), 2),
        (("new", "b", "--scope", "read", "--prefix", ""), 2),
        (("new", "b", "--scope", "read", "--owner", "a/b"), 2),
        (("new", "b", "--scope", "read", "--origin", "https://a.example"), 2),
        (("new", "b", "--scope", "write", "--max-delta", "1"), 2),
        (("new", "b", "--scope", "write", "--max-new", "0"), 2),
        (("new", "b", "--scope", "write", "--client-rate", "1"), 2),
        (("new", "b", "--publishable", "--prefix", "p:", "--origin", "https://a.example", "--max-delta", "0"), 2),
        (("new", "b", "--publishable", "--prefix", "p:", "--origin", "https://a.example", "--max-delta", "x"), 2),
        (("new", "b", "--publishable", "--prefix", "p:", "--origin", "https://a.example", "--max-new", "-1"), 2),
        (("new", "b", "--publishable", "--prefix", "p:", "--origin", "https://a.example", "--client-rate", "0"), 2),
        (("new", "b", "--publishable"), 2), (("new", "b", "--publishable", "--prefix", "p:"), 2),
        (("new", "b", "--publishable", "--prefix", "p:", "--origin", "https://a.example/path"), 2),
        (("new", "b", "--publishable", "--scope", "write,admin", "--prefix", "p:", "--origin", "https://a.example"), 2),
        (("revoke", "b"), 1),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_and_changes_nothing(tmp_path: Path, arguments: tuple[str, ...], code: int) -> None:
    assert keys(tmp_path, "new", "a", "--scope", "read").code == 0
    before = (tmp_path / "keys.json").read_bytes()
    done = keys(tmp_path, *arguments)
    assert (done.code, done.out) == (code, "")
    assert len(done.lines) == 1 or code == 2
    assert (tmp_path / "keys.json").read_bytes() == before


def test_what_is_wrong_is_said_by_the_name_of_its_option(tmp_path: Path) -> None:
    for arguments, said in (
        (("--scope", "wrte"), "--scope must be some of write, read, admin, each once; is ['wrte']"),
        (("--scope", "read,read"), "--scope must be some of write, read, admin, each once; is ['read', 'read']"),
        (("--scope", "read", "--rate", "0"), "--rate must be a number of increments a second, above 0"),
        (("--scope", "read", "--prefix", ""), "--prefix has '', which must not be empty"),
        (("--scope", "read", "--origin", "https://a.example"), "only publishable keys have --origin"),
        (("--scope", "read", "--max-new", "1"), "only publishable keys have --max-new"),
    ):
        assert keys(tmp_path, "new", "scopes", *arguments).lines[-1] == f"countersink keys new: error: {said}"


def test_scopes_may_be_given_one_by_one_and_one_is_required(tmp_path: Path) -> None:
    assert keys(tmp_path, "new", "c", "--scope", "write", "--scope", "read,admin").code == 0
    assert entries(tmp_path)[0]["scopes"] == ["write", "read", "admin"]
    usage = " ".join(keys(tmp_path, "new", "c").lines)
    assert "--scope SCOPES" in usage
    assert "[--scope SCOPES]" not in usage
    assert "required: --scope" in usage


def test_a_key_that_has_expired_already_is_told(tmp_path: Path) -> None:
    done = keys(tmp_path, "new", "c", "--scope", "write", "--expires", "2020-01-01")
    assert (done.code, done.out.startswith("csk_c_")) == (0, True)
    assert done.lines == [
        "countersink: the key c has expired already, at 2020-01-01T00:00:00+00:00: services refuse it"
    ]
    assert keys(tmp_path, "new", "d", "--scope", "write", "--expires", "2120-01-01").lines == []


def test_a_publishable_key_has_limits_of_its_own(tmp_path: Path) -> None:
    site = ("new", "site", "--publishable", "--prefix", "p:", "--origin", "https://a.example")
    assert keys(tmp_path, *site, "--client-rate", "5", "--max-delta", "20", "--max-new", "0").code == 0
    (entry,) = entries(tmp_path)
    assert (entry["client_rate"], entry["max_delta"], entry["max_new"]) == (5.0, 20, 0)
    said = "publishable, write, prefixes 'p:', origins https://a.example, 5/s for each client, deltas up to 20"
    assert keys(tmp_path, "list").out == f"site  {said}, 0 new counters an hour\n"
    listed = json.loads(keys(tmp_path, "list", "--json").out)
    assert (listed["client_rate"], listed["max_delta"], listed["max_new"]) == (5.0, 20, 0)
    (row,) = re.findall(r"^\| `keys list` \| (.*) \|$", (ROOT / "docs" / "cli.md").read_text(), re.MULTILINE)
    assert re.findall(r"`(\w+)`", row) == [*listed]


@pytest.mark.parametrize("secret", [None, "", "short", sha256(b"").hexdigest()])
def test_a_file_without_a_good_secret_gets_a_random_one(tmp_path: Path, secret: str | None) -> None:
    """Otherwise, who knows the secret can make receipts of others."""
    seen = set()
    for _ in range(2):
        (tmp_path / "keys.json").write_text(json.dumps({"keys": []} | ({} if secret is None else {"secret": secret})))
        assert keys(tmp_path, "new", "a", "--scope", "read").code == 0
        seen.add(json.loads((tmp_path / "keys.json").read_bytes())["secret"])
    assert [len(one) for one in seen] == [64, 64]
    assert secret not in seen


def test_commands_at_the_same_time_lose_no_key(tmp_path: Path) -> None:
    names = [f"k{number}" for number in range(8)]
    with ThreadPoolExecutor(4) as pool:
        new = partial(run, "keys", "new", cwd=tmp_path, **{FILE: "keys.json"})
        done = list(pool.map(lambda name: new(name, "--scope", "read"), names))
    assert all(one.code == 0 for one in done)
    assert sorted(entry["id"] for entry in entries(tmp_path)) == names


def test_who_may_only_read_the_folder_holds_up_nobody(tmp_path: Path) -> None:
    """Any user can lock a folder, or a file, that they can open."""
    assert keys(tmp_path, "new", "a", "--scope", "read").code == 0
    with contextlib.ExitStack() as opened:
        for path in (tmp_path, tmp_path / "keys.json"):
            number = os.open(path, os.O_RDONLY)
            opened.callback(os.close, number)
            fcntl.flock(number, fcntl.LOCK_EX)
        assert keys(tmp_path, "new", "b", "--scope", "read").code == 0
        assert keys(tmp_path, "revoke", "a").code == 0
    assert [entry["id"] for entry in entries(tmp_path)] == ["b"]
    assert [path.name for path in tmp_path.iterdir()] == ["keys.json"]


def test_the_lock_is_not_waited_for_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "LOCK_WITHIN", 0.0)
    file, lock = tmp_path / "keys.json", tmp_path / ".keys.json.lock"
    with commands._alone(file):
        assert stat.S_IMODE(lock.stat().st_mode) == 0o600
        with pytest.raises(CountersinkError, match=re.escape(str(lock))), commands._alone(file):
            pass
    assert not lock.exists()
    lock.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CountersinkError, match="can't be opened"), commands._alone(file):
        pass
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write_holds_no_keys(tmp_path: Path, mode: int) -> None:
    assert keys(tmp_path, "new", "a", "--scope", "read").code == 0
    file = tmp_path / "keys.json"
    file.chmod(mode)
    for done in (
        keys(tmp_path, "list"),
        keys(tmp_path, "new", "b", "--scope", "read"),
        run("up", "--port", "0", cwd=tmp_path, **{FILE: "keys.json"}),
    ):
        assert "other users can write to the keys file" in done.refusal
        assert "chmod go-w" in done.refusal
    file.chmod(0o640)
    assert keys(tmp_path, "list").code == 0


def give_away(monkeypatch: pytest.MonkeyPatch, *paths: Path) -> None:
    """To another user."""
    lstat = os.lstat

    def owned(path: Path) -> os.stat_result:
        found = [*lstat(path)]
        if path in paths:
            found[stat.ST_UID] = 65_533
        return os.stat_result(found)

    monkeypatch.setattr(os, "lstat", owned)


@pytest.mark.parametrize(
    ("modes", "theirs", "why"),
    [
        ({}, (), None), ({}, ("a/b/keys.json",), "keys.json is theirs"), ({}, ("a/b",), "b is theirs"),
        ({}, ("a",), "a is theirs"), ({}, ("links",), "links is theirs"),
        ({}, ("links/keys.json",), "keys.json is theirs"),
        ({"a/b": 0o777}, (), "replace the keys file .* chmod go-w .*/b,"), ({"a/b": 0o775}, (), "replace"),
        ({"a": 0o777}, (), "replace the keys file .* chmod go-w .*/a,"),
        ({"links": 0o777}, (), "replace the keys file .* chmod go-w .*/links,"),
        ({"a/b": 0o1777, "a": 0o1775, "links": 0o1777}, (), None),
        ({"a/b": 0o1777}, ("a/b/keys.json",), "keys.json is theirs"),
        ({"links": 0o1777}, ("links/keys.json",), "keys.json is theirs"),
        ({"a/b/keys.json": 0o620}, (), "write to the keys file .* chmod go-w .*/b/keys.json"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("fixed", [False, True])
def test_nobody_else_may_change_a_part_of_the_path(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    modes: dict[str, int],
    theirs: tuple[str, ...],
    why: str | None,
    *,
    fixed: bool,
) -> None:
    """`fixed`: the mount is read-only, as it is of secrets in containers. Owners and groups are not looked at then."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "links").mkdir()
    link, file = tmp_path / "links" / "keys.json", tmp_path / "a" / "b" / "keys.json"
    link.symlink_to("../a/../data/keys.json")
    (tmp_path / "data").symlink_to(tmp_path / "a" / "b")
    file.write_text('{"keys": []}')
    for name, mode in modes.items():
        (tmp_path / name).chmod(mode)
    statvfs = os.statvfs
    give_away(monkeypatch, *(tmp_path / name for name in theirs))
    if fixed:
        monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=statvfs(path).f_flag | os.ST_RDONLY))
    if why is None or (fixed and not any(mode & 0o1002 == 0o002 for mode in modes.values())):
        assert content_of(link) == content_of(file) == b'{"keys": []}'
        return
    before = file.read_bytes()
    with pytest.raises(SettingsError, match=why):
        content_of(link)
    with pytest.raises(SettingsError, match=why):
        commands._change(link, lambda keys: keys)
    assert file.read_bytes() == before


def test_a_folder_that_does_not_exist_is_told(tmp_path: Path) -> None:
    said = run("keys", "new", "a", "--scope", "read", cwd=tmp_path, COUNTERSINK_KEYS_FILE="nodir/k.json").refusal
    assert f"the folder {tmp_path}/nodir of the keys file nodir/k.json does not exist: make it first" in said


def test_a_list_of_a_file_that_does_not_exist_says_so(tmp_path: Path) -> None:
    done = keys(tmp_path, "list")
    assert (done.code, done.out) == (0, "")
    assert done.lines == [f"countersink: {tmp_path}/keys.json does not exist yet: countersink keys new makes it"]


@pytest.mark.parametrize("target", ["nowhere/keys.json", "keys.json", "../keys.json/"])
def test_a_link_that_leads_nowhere_is_told(tmp_path: Path, target: str) -> None:
    (tmp_path / "keys.json").symlink_to(target)
    why = rf"the folder {tmp_path}/nowhere of" if "nowhere" in target else r"can't be read \(.*\): check"
    with pytest.raises(SettingsError, match=f"{why} .*COUNTERSINK_KEYS_FILE"):
        content_of(tmp_path / "keys.json")


def test_a_key_is_not_made_where_another_user_has_planted_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o1777)
    (tmp_path / "keys.json").symlink_to(tmp_path / "planted")
    give_away(monkeypatch, tmp_path / "keys.json")
    with pytest.raises(SettingsError, match="is theirs"):
        commands._change(tmp_path / "keys.json", lambda keys: keys)
    assert [path.name for path in tmp_path.iterdir()] == ["keys.json"]


async def test_a_service_keeps_its_keys_if_others_could_have_changed_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert keys(tmp_path, "new", "a", "--scope", "read").code == 0
    file = tmp_path / "keys.json"
    ring = KeyRing(file, ManualClock())
    text = keys(tmp_path, "new", "b", "--scope", "admin").out.strip()
    for path, bad, good in ((file, 0o666, 0o600), (tmp_path, 0o777, 0o700)):
        path.chmod(bad)
        assert not await ring.look()
        assert ring.find(text) is None
        path.chmod(good)
    assert "other users can write to" in caplog.text
    assert "other users can replace" in caplog.text
    assert await ring.look()
    assert ring.find(text) is not None


def test_without_the_setting_the_commands_say_so(tmp_path: Path) -> None:
    assert FILE in run("keys", "list", cwd=tmp_path).refusal


@pytest.mark.parametrize("command", [("up",), ("ingest",), ("ingest", "--workers", "2")])
@pytest.mark.parametrize("content", [None, b"", b'{"keys": [{"id": "a"}]}', b'{"keys": []}x'])
def test_a_service_without_readable_keys_does_not_start(
    tmp_path: Path, command: tuple[str, ...], content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "keys.json").write_bytes(content)
    said = run(*command, "--port", "0", cwd=tmp_path, **{FILE: "keys.json"}).refusal
    assert "keys.json" in said
    assert "countersink keys" in said


def test_what_to_do_about_a_broken_file_is_said_whoever_reads_it(tmp_path: Path) -> None:
    keys(tmp_path, "new", "a", "--scope", "read")
    with (tmp_path / "keys.json").open("ab") as file:
        file.write(b"x")
    for done in (keys(tmp_path, "list"), run("up", "--port", "0", cwd=tmp_path, **{FILE: "keys.json"})):
        assert "Correct it, or put an earlier copy in its place" in done.refusal


async def renewed(url: str, key: str) -> None:
    """Wait until the service has read a file with this key."""
    async with AsyncClient(url, key=key) as client, asyncio.timeout(60):
        while True:
            with contextlib.suppress(RejectedError):
                await client.get("there:a")
                return
            await asyncio.sleep(0.02)


async def test_the_commands_and_the_client_send_a_key(tmp_path: Path) -> None:
    key = keys(tmp_path, "new", "a", "--scope", "write,read,admin", "--owner", "o").out.strip()
    async with processes(tmp_path / "data", None, **{FILE: str(tmp_path / "keys.json")}) as started:
        service = await started.start("up", "--port", "0")
        settings = {"COUNTERSINK_URL": service.url, "COUNTERSINK_KEY": key}
        assert run("incr", "c", cwd=tmp_path, **settings).code == 0
        assert run("set", "c", "5", cwd=tmp_path, **settings).code == 0
        done = run("map", "--prefix", "c", "--add", "2", "--url", service.url, cwd=tmp_path, COUNTERSINK_KEY=key)
        assert done.code == 0, done
        async with AsyncClient(service.url, key=key) as client:
            assert (await client.get("c")).value == 7
        for wrong in ({"COUNTERSINK_KEY": key[:-1] + "x"}, {"COUNTERSINK_KEY": "ä b"}, {"COUNTERSINK_KEY": ""}, {}):
            said = run("get", "c", cwd=tmp_path, COUNTERSINK_URL=service.url, **wrong).refusal
            assert key[:-1] not in said
            assert "COUNTERSINK_KEY" in said
        job = ("map", "--prefix", "", "--add", "1", "--url", service.url)
        for command in (("incr", "c"), job, ("watch", "c"), ("check",)):
            said = run(*command, cwd=tmp_path, COUNTERSINK_URL=service.url).refusal
            assert "Set COUNTERSINK_KEY to a key of the service" in said
        reader = keys(tmp_path, "new", "r", "--scope", "read").out.strip()
        there = keys(tmp_path, "new", "w", "--scope", "write,read", "--prefix", "there:").out.strip()
        await renewed(service.url, there)
        for given, reason, more in (
            (key[:-1] + "x", "is not valid", ""),
            (reader, "write", ""),
            (there, "may not use the counter 'check:", ". If it may count under another prefix, add --prefix"),
        ):
            said = run("check", "--key", given, "--url", service.url, cwd=tmp_path).refusal
            assert reason in said
            assert f". The key comes from --key{more} ({service.url})" in said
        shown = run("status", cwd=tmp_path, COUNTERSINK_URL=service.url).out
        assert shown.count("Set COUNTERSINK_KEY to a key of the service") == 2


def test_a_service_account_is_a_key_without_a_secret(tmp_path: Path) -> None:
    account = "eventarc@my-project.iam.gserviceaccount.com"
    new = ("new", "eventarc", "--google", account, "--scope")
    assert keys(tmp_path, *new, "write") == Done(0, "", [])
    assert entries(tmp_path) == [{"id": "eventarc", "google": account, "scopes": ["write"]}]
    assert keys(tmp_path, "list").out == f"eventarc  write, account {account}\n"
    made = keys(tmp_path, "new", "b", "--google", f"b{account}", "--scope", "read", "--json").out
    assert json.loads(made) == {"id": "b", "google": f"b{account}"}
    for address, how, said in (
        (account, ("--scope", "write"), "'eventarc' is for this account already"),
        ("me@example.com", ("--scope", "write"), "the address of a service account"),
        ("", ("--scope", "write"), "the address of a service account"),
        (f"c{account}", ("--publishable", "--prefix", "p:", "--origin", "https://a.b"), "secret"),
    ):
        assert said in keys(tmp_path, "new", "c", "--google", address, *how).lines[-1]
    assert keys(tmp_path, "revoke", "eventarc").code == 0
    assert [entry["id"] for entry in entries(tmp_path)] == ["b"]


def test_keys_are_told_as_json(tmp_path: Path) -> None:
    made = json.loads(keys(tmp_path, "new", "a", "--scope", "read", "--rate", "5", "--json").out)
    assert (made["id"], made["key"].startswith("csk_a_")) == ("a", True)
    assert json.loads(keys(tmp_path, "list", "--json").out) == {
        "id": "a", "scopes": ["read"], "prefixes": [], "origins": [], "google": None, "rate": 5.0, "owner": None,
        "expires": None, "note": None, "expired": False, "publishable": False,
    }  # fmt: skip
    assert json.loads(keys(tmp_path, "revoke", "a", "--json").out) == {"id": "a", "revoked": True}
