"""What an administrator does in the console, after it was said what happens: to one counter, to all under a prefix, and
to dead letters.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from shared.model.words import Message
from tests.browsers.chromium import IN_CHROMIUM
from tests.browsers.judging import see
from tests.browsers.tab import Tab, use_key
from tests.http.keys import keys_file
from tests.http.service import Service, running

DIALOG: Final = "document.querySelector('dialog:not(#key-dialog)')"
SUBMIT: Final = f"{DIALOG}.querySelector('[type=submit]').click()"
ASKS: Final = f"{DIALOG}?.innerText.includes(%r)"
CLOSED: Final = f"!{DIALOG}"
LOSES_ANSWERS: Final = """
window.lost = window.fetch;
window.fetch = async (...all) => { await lost(...all); throw TypeError("lost") };
0
"""
TITLES: Final = "[...document.querySelectorAll('main tbody strong')].map(one => one.textContent).sort()"
VALUE: Final = "document.querySelector('.value').textContent === %r"


def button(label: str, where: str = "document.querySelector('main')") -> str:
    return f"[...{where}.querySelectorAll('button')].find(one => one.textContent === {label!r})"


def fill(field: str, value: str) -> str:
    return f"document.getElementById({field!r}).value = {value!r}; {field_event(field)}"


def field_event(field: str) -> str:
    return f"document.getElementById({field!r}).dispatchEvent(new Event('input')); 0"


async def test_a_counter_is_set_reset_and_deleted_after_it_was_said_what_happens(
    service: Service, tab: Tab, axe: str, tmp_path: Path
) -> None:
    await service.incr("page:home", b'{"delta": 12500}')
    await service.apply()
    await tab.show(f"{service.url}/#/counter/page%3Ahome", "Change this counter")
    await tab.until(f"!{button('Reset…')}.disabled")
    await tab.run(f"{button('Set…')}.click()")
    await tab.until(ASKS % "Its value is 12,500 now")
    await see(tab, axe, "set", tmp_path)
    await tab.run(fill("ask-value", "9007199254740991"))
    await tab.run(SUBMIT)
    await tab.until(CLOSED)
    await tab.until(VALUE % "9,007,199,254,740,991")
    await tab.run(f"{button('Set…')}.focus(); {button('Set…')}.click()")
    await tab.run(fill("ask-value", "9999999999999999"))
    await tab.run(SUBMIT)
    await tab.until("document.querySelector('dialog .wrong')?.innerText.includes('value')")
    await tab.press("Escape")
    await tab.until(CLOSED)
    assert await tab.run("document.activeElement.textContent") == "Set…"
    await tab.run(f"{button('Reset…')}.click()")
    await tab.until(ASKS % "It becomes 0.")
    await tab.run(SUBMIT)
    await tab.until(VALUE % "0")
    await tab.run(f"{button('Shards…')}.click()")
    await tab.run(fill("ask-shards", "4"))
    await tab.run(SUBMIT)
    await tab.until(CLOSED)
    await tab.until("[...document.querySelectorAll('dd')].some(one => one.textContent.startsWith('4'))")
    await tab.run(f"{button('Delete…')}.click()")
    assert await tab.run(f"{DIALOG}.querySelector('[type=submit]').disabled")
    await see(tab, axe, "delete", tmp_path)
    await tab.run(fill("ask-typed", "page:home"))
    await tab.run(SUBMIT)
    await tab.until("document.body.innerText.includes('it was deleted')")
    await tab.until(f"{button('Reset…')}.disabled && !{button('Set…')}.disabled")


RATES: Final = """
window.rates = new Set();
window.all = () => document.querySelector('main').innerText.match(/\\S+\\/s/g) ?? [];
new MutationObserver(() => all().forEach(one => rates.add(one)))
  .observe(document.body, {subtree: true, childList: true, characterData: true}); 0
"""


@IN_CHROMIUM
async def test_a_value_that_somebody_else_sets_is_no_rate(service: Service, tab: Tab) -> None:
    await service.incr("a")
    value = 1
    for page in ("", "#/counter/a"):
        await tab.show(f"{service.url}/{page}", "Live")
        await tab.run(RATES)
        for _ in range(2):
            await tab.until("document.querySelector('main').innerText.includes('0/s')")
            value += 2_000_000
            assert (await service.ask("PUT", "/v1/counters/a", b'{"value": %d}' % value)).status == 200
            await tab.until(f"document.querySelector('main').innerText.includes('{value:,}')")
        await tab.until("document.querySelector('main').innerText.includes('0/s')")
        assert await tab.run("[...rates]") == ["0/s"], page


@IN_CHROMIUM
async def test_what_is_sent_again_changes_nothing_more(service: Service, tab: Tab) -> None:
    await service.incr("a", b'{"delta": 5}')
    await tab.show(f"{service.url}/#/counter/a", "Change this counter")
    await tab.until(f"!{button('Reset…')}.disabled")
    await tab.run(f"{button('Reset…')}.click()")
    await tab.run(LOSES_ANSWERS)
    await tab.run(SUBMIT)
    await tab.until("document.querySelector('dialog .wrong')?.innerText === 'The service does not answer.'")
    await service.incr("a", b'{"delta": 7}')
    await tab.run("window.fetch = lost; 0")
    await tab.run(SUBMIT)
    await tab.until(CLOSED)
    await tab.until(VALUE % "7")


async def test_jobs_are_started_shown_stopped_and_downloaded(
    service: Service, tab: Tab, axe: str, tmp_path: Path
) -> None:
    for name in ("page:home", "page:docs", "other"):
        await service.incr(name, b'{"delta": 3}')
    await tab.show(f"{service.url}/#/jobs", "No job has been started yet.")
    await tab.run(fill("job-prefix", "page:"))
    await tab.run(f"{button('Start…')}.click()")
    await tab.until(ASKS % "2 counters begin with “page:” now. Their values are written")
    await tab.run(SUBMIT)
    await tab.until("document.querySelectorAll('main tbody tr').length === 1")
    assert await tab.run(f"!!{button('Stop…')}")
    await service.work()
    await tab.until(f"!!{button('Download')}")
    await tab.run("URL.createObjectURL = blob => { window.saved = blob.text(); return 'data:,' }; 0")
    await tab.run(f"{button('Download')}.click()")
    await tab.until("!!window.saved")
    assert await tab.run("saved") == '{"name":"page:docs","value":3}\n{"name":"page:home","value":3}\n'
    kind = "const kind = document.getElementById('job-kind'); kind.value = %r; kind.dispatchEvent(new Event('change'))"
    await tab.run("{" + kind % "add" + "}; 0")
    await tab.run(fill("job-amount", "-10"))
    await tab.run(f"{button('Start…')}.click()")
    await tab.until(ASKS % "To each of them, -10 is added, once.")
    await tab.run(SUBMIT)
    await tab.until("document.querySelectorAll('main tbody tr').length === 2")
    assert await tab.run(TITLES) == ["Add to each -10: page:", "Export: page:"]
    await see(tab, axe, "jobs", tmp_path)
    await tab.run(f"{button('Stop…')}.click()")
    await tab.until(ASKS % "Their changes stay.")
    await tab.run(SUBMIT)
    await tab.until("[...document.querySelectorAll('main td')].some(one => /stopped/.test(one.textContent))")
    await tab.run("{" + kind % "delete" + "}; 0")
    await tab.run(f"{button('Start…')}.click()")
    await tab.until(ASKS % "To continue, type page:")


async def test_a_job_is_listed_with_its_number_and_offers_the_values_before(service: Service, tab: Tab) -> None:
    await service.incr("page:home", b'{"delta": 3}')
    for job in (
        b'{"kind": "expire", "prefix": "page:", "days": 400}',
        b'{"kind": "compact", "prefix": "page:", "shards": 2}',
    ):
        assert (await service.post("/v1/jobs", job)).status == 202
    await service.work()
    await tab.show(f"{service.url}/#/jobs", "Delete unused for 400 days: page:")
    assert await tab.run(TITLES) == ["Delete unused for 400 days: page:", "Reduce shards to 2: page:"]
    offering = (
        "[...document.querySelectorAll('main tbody tr')].filter(one => one.querySelector('button').checkVisibility())"
    )
    assert await tab.run(f"{offering}.map(one => one.querySelector('strong').textContent)") == [
        "Delete unused for 400 days: page:"
    ]


OFFERED: Final = (
    "[...document.querySelectorAll('main button')].filter(one => one.checkVisibility()).map(one => one.textContent)"
)
ADMINISTERS: Final = ("/#/counter/a", "/#/jobs", "/#/dead-letters")


@IN_CHROMIUM
async def test_a_key_that_may_not_change_is_offered_nothing_and_hears_which_scope_it_needs(
    tmp_path: Path, tab: Tab
) -> None:
    scopes = {"reader": {"scopes": ["read", "write"]}, "admin": {"scopes": ["read", "admin"]}}
    file, keys = keys_file(tmp_path, **scopes)
    async with running(tmp_path, keys_file=str(file)) as service:
        await tab.go(f"{service.url}/#/dead-letters")
        await tab.until("document.querySelector('#key-dialog')?.open")
        for key, path in [(key, path) for key in scopes for path in ADMINISTERS]:
            await use_key(tab, service.url, keys[key])
            await tab.go(service.url + path)
            if key == "reader":
                await tab.until("/needs the scope admin/.test(document.querySelector('main')?.innerText)")
                assert await tab.run(OFFERED) == []
            else:
                await tab.until(f"({OFFERED}).length > 0")


@IN_CHROMIUM
@pytest.mark.parametrize("path", ADMINISTERS)
async def test_with_a_listener_for_administrators_the_public_one_says_where_to_go(
    tmp_path: Path, tab: Tab, path: str
) -> None:
    async with running(tmp_path, apart=True) as service:
        await tab.show(service.url + path, "If the service runs with --admin-port, open the console there.")
        assert await tab.run(OFFERED) == []


async def test_what_is_typed_replaces_the_value_and_the_new_one_is_said_first(service: Service, tab: Tab) -> None:
    await service.incr("page:home", b'{"delta": 9321}')
    await tab.show(f"{service.url}/#/counter/page%3Ahome", "Change this counter")
    await tab.until(f"{button('Set…')}.checkVisibility() && !{button('Reset…')}.disabled")
    await tab.run(f"{button('Set…')}.focus()")
    await tab.press("Enter")
    await tab.until(ASKS % "9,321 → 9,321")
    await tab.type("1000")
    await tab.until(ASKS % "9,321 → 1,000")
    await service.incr("page:home")
    await tab.until(ASKS % "9,322 → 1,000")
    assert await tab.run(ASKS % "Its value is 9,322 now")
    await tab.press("Enter")
    await tab.until(CLOSED)
    await tab.until(VALUE % "1,000")
    assert await service.value("page:home") == 1000
    await tab.run(f"{button('Set…')}.click()")
    await tab.type("1,000")
    await tab.until(ASKS % "Type a whole number, without spaces or commas.")
    await tab.press("Escape")
    await tab.until(CLOSED)
    await tab.run(f"{button('Shards…')}.click()")
    await tab.type("3")
    await tab.press("Enter")
    await tab.until(CLOSED)
    assert (await service.read("page:home"))["shards"] == 3


UNKNOWN: Final = "\N{EN DASH}"
SLOW_CHANGES: Final = """
window.sent = window.fetch;
window.fetch = async (...all) => {
  const answer = await sent(...all)
  if (all[1].method) await new Promise(done => setTimeout(done, 2500))
  return answer
};
0
"""


@IN_CHROMIUM
async def test_a_set_is_no_rate(service: Service, tab: Tab) -> None:
    """Neither if the stream shows the new value before the answer to the set has come."""
    await service.incr("page:home", b'{"delta": 5}')
    await tab.show(f"{service.url}/#/counter/page%3Ahome", "Change this counter")
    speed = "document.querySelectorAll('.facts dd span')[2].textContent"
    await tab.until(f"{speed} === '0/s' && {button('Set…')}.checkVisibility()")
    await tab.run(SLOW_CHANGES)
    await tab.run(f"""{{
        window.speeds = new Set()
        const seen = new MutationObserver(() => speeds.add({speed}))
        seen.observe(document.querySelector('.facts'), {{subtree: true, childList: true, characterData: true}})
    }}""")
    await tab.run(f"{button('Set…')}.click()")
    await tab.type("2000000")
    await tab.run(SUBMIT)
    await tab.until(VALUE % "2,000,000")
    await tab.until(CLOSED)
    await tab.until(f"{speed} === '0/s'")
    assert set(await tab.run("[...speeds]")) == {UNKNOWN, "0/s"}
    await service.incr("page:home", b'{"delta": 90}')
    await tab.until(f"/[1-9]/.test({speed})")


@IN_CHROMIUM
async def test_a_dialog_does_not_stay_over_another_page(service: Service, tab: Tab) -> None:
    await service.incr("a")
    await service.incr("b")
    await tab.show(f"{service.url}/#/counter/a", "Change this counter")
    await tab.until(f"{button('Set…')}.checkVisibility()")
    await tab.run(f"{button('Set…')}.click()")
    await tab.until(ASKS % "Set a")
    await tab.run("location.hash = '#/counter/b'")
    await tab.until(CLOSED)


REFUSE: Final = (
    "CREATE TRIGGER rule BEFORE INSERT ON shards WHEN NEW.counter LIKE 'refused%'"
    " BEGIN SELECT RAISE(ABORT, 'not in this file'); END"
)
LETTERS: Final = "document.querySelector('.letters')"
TOLD: Final = "document.querySelector('[role=status].card').innerText"


async def test_dead_letters_are_shown_replayed_and_dropped(
    service: Service, tab: Tab, axe: str, tmp_path: Path
) -> None:
    data = tmp_path / "countersink.db"
    with closing(sqlite3.connect(data, isolation_level=None)) as db:
        db.execute(REFUSE)
        for number in range(3):
            await service.incr(f"refused:<b>{number}</b>", b'{"delta": 4}')
            await service.apply()
        await service.parts.publisher.publish([Message(b"<script>nonsense</script>")])
        await service.apply()
        await tab.show(f"{service.url}/#/pipeline", "Dead letters")
        await tab.until("[...document.querySelectorAll('a')].some(one => one.textContent === 'Dead letters')")
        await tab.run("[...document.querySelectorAll('a')].find(one => one.textContent === 'Dead letters').click()")
        await tab.until("document.querySelectorAll('.letters li.card').length === 4")
        text = await tab.run("document.querySelector('main').innerText")
        shown = (
            "4 dead letters.",
            "not in this file",
            "refused:<b>1</b> +4",
            "<script>nonsense</script>",
            "1 increment",
        )
        assert [one for one in shown if one not in text] == []
        await see(tab, axe, "letters", tmp_path)
        await tab.run(f"{button('Replay all')}.click()")
        await tab.until(f"{DIALOG}?.open")
        assert await tab.run(ASKS % "exactly once")
        await see(tab, axe, "letters-dialog", tmp_path)
        await tab.run(f"{button('Replay all', DIALOG)}.click()")
        await tab.until(f"{TOLD}.includes('4 dead letters left, the first ')")
        await see(tab, axe, "letters-left", tmp_path)
        db.execute("DROP TRIGGER rule")
    await tab.run(f"{button('Drop')}.click()")
    await tab.until(ASKS % "You cannot undo this.")
    await tab.run(f"{button('Cancel', DIALOG)}.click()")
    await tab.until(CLOSED)
    await tab.run(f"{button('Replay', LETTERS)}.click()")
    await tab.run(f"{button('Replay', DIALOG)}.click()")
    await tab.until(f"{TOLD} === '1 increment counted.'")
    await tab.until("document.querySelectorAll('.letters li.card').length === 3")
    await tab.run(f"{button('Drop', LETTERS)}.click()")
    await tab.run(f"{button('Drop for good', DIALOG)}.click()")
    await tab.until(f"{TOLD} === 'Dropped, with 1 increment.'")
    await tab.run(f"{button('Replay all')}.click()")
    await tab.run(f"{button('Replay all', DIALOG)}.click()")
    await tab.until(f"{TOLD}.includes('1 dead letter left because: ')")
    await tab.run(f"{button('Drop', LETTERS)}.click()")
    await tab.run(f"{button('Drop for good', DIALOG)}.click()")
    await tab.until("document.querySelector('.lead').innerText === 'No dead letters.'")
    await see(tab, axe, "letters-none", tmp_path)
    totals = await service.totals()
    assert sorted(value for value in totals.values() if value) == [4, 4]
