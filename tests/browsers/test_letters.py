"""Dead letters in the console: they are shown, replayed and dropped, after it was said what happens."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from shared.model.words import Message
from tests.browsers.chromium import IN_CHROMIUM
from tests.browsers.judging import see
from tests.browsers.tab import Tab
from tests.http.keys import keys_file
from tests.http.service import Service, running

REFUSE: Final = (
    "CREATE TRIGGER rule BEFORE INSERT ON shards WHEN NEW.counter LIKE 'refused%'"
    " BEGIN SELECT RAISE(ABORT, 'not in this file'); END"
)


def press(label: str, where: str = "document") -> str:
    return f"[...{where}.querySelectorAll('button')].find(one => one.textContent === '{label}').click()"


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
        for shown in (
            "4 dead letters.",
            "not in this file",
            "refused:<b>1</b> +4",
            "<script>nonsense</script>",
            "1 increment",
        ):
            assert shown in text
        await see(tab, axe, "letters", tmp_path)
        await tab.run(press("Replay all"))
        await tab.until("document.querySelector('dialog:not(#key-dialog)')?.open")
        assert "exactly once" in await tab.run("document.querySelector('dialog:not(#key-dialog)').innerText")
        await see(tab, axe, "letters-dialog", tmp_path)
        await tab.run(press("Replay all", "document.querySelector('dialog:not(#key-dialog)')"))
        await tab.until(
            "document.querySelector('[role=status].card').innerText.includes('4 dead letters left, the first ')"
        )
        await see(tab, axe, "letters-left", tmp_path)
        db.execute("DROP TRIGGER rule")
    await tab.run(press("Drop"))
    await tab.until("document.querySelector('dialog:not(#key-dialog)').innerText.includes('You cannot undo this.')")
    await tab.run(press("Cancel", "document.querySelector('dialog:not(#key-dialog)')"))
    await tab.until("!document.querySelector('dialog:not(#key-dialog)')")
    await tab.run(press("Replay", "document.querySelector('.letters')"))
    await tab.run(press("Replay", "document.querySelector('dialog:not(#key-dialog)')"))
    await tab.until("document.querySelector('[role=status].card').innerText === '1 increment counted.'")
    await tab.until("document.querySelectorAll('.letters li.card').length === 3")
    await tab.run(press("Drop", "document.querySelector('.letters')"))
    await tab.run(press("Drop for good", "document.querySelector('dialog:not(#key-dialog)')"))
    await tab.until("document.querySelector('[role=status].card').innerText === 'Dropped, with 1 increment.'")
    await tab.run(press("Replay all"))
    await tab.run(press("Replay all", "document.querySelector('dialog:not(#key-dialog)')"))
    await tab.until("document.querySelector('[role=status].card').innerText.includes('1 dead letter left because: ')")
    await tab.run(press("Drop", "document.querySelector('.letters')"))
    await tab.run(press("Drop for good", "document.querySelector('dialog:not(#key-dialog)')"))
    await tab.until("document.querySelector('.lead').innerText === 'No dead letters.'")
    await see(tab, axe, "letters-none", tmp_path)
    totals = await service.totals()
    assert sorted(value for value in totals.values() if value) == [4, 4]


@IN_CHROMIUM
async def test_dead_letters_need_the_scope_admin(tmp_path: Path, tab: Tab) -> None:
    file, keys = keys_file(tmp_path, reader={"scopes": ["read"]})
    async with running(tmp_path, keys_file=str(file)) as service:
        await tab.go(f"{service.url}/#/dead-letters")
        await tab.until("document.querySelector('#key-dialog')?.open")
        enter = "document.getElementById('key-text').value = '%s'; document.querySelector('[type=submit]').click()"
        await tab.run(enter % keys["reader"])
        await tab.until("document.querySelector('main').innerText.includes('needs the scope admin.')")
