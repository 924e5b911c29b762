"""Opens, by its arguments, what `countersink import` reads."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Final

from shared.config import urls
from shared.config.settings import Settings
from shared.model.errors import SettingsError
from shared.model.import_source import Source
from shared.model.import_variants import By, Variant
from shared.runtime.clock import SystemClock
from shared.wiring.datastore import datastore_place, emulator
from shared.wiring.extras import needs
from shared.wiring.files import STORE

FROM: Final = "--from"


@asynccontextmanager
async def source_of(
    settings: Settings,
    variant: Variant,
    url: str,
    *,
    kind: str = "",
    names: Collection[str] = (),
) -> AsyncIterator[Source]:
    """Enter it inside a running event loop. `SettingsError` says which argument cannot be used."""
    there = urls.datastore(FROM, url)
    refuse_ours(settings, variant, there, variant.kinds(kind))
    with needs("google", FROM, url):
        from shared.google.datastore.client import DatastoreClient  # noqa: PLC0415 (the extra may be missing)
        from shared.google.datastore.importing.sources import source_in  # noqa: PLC0415
        from shared.google.datastore.keys import DatastorePlace  # noqa: PLC0415
    place = DatastorePlace(there.project, there.database, there.namespace)
    client = DatastoreClient(there.project, there.database, SystemClock(), emulator())
    try:
        yield source_in(client, place, variant, name=name_of(variant, there, kind), kind=kind, names=names)
    finally:
        await client.close()


def name_of(variant: Variant, there: urls.Datastore, kind: str) -> str:
    """The name under which marks are kept. It must be the same however the URL is spelled."""
    namespace = f"?namespace={there.namespace}" if there.namespace else ""
    kind = f" {kind or variant.shard}" if variant.renamed else ""
    return f"{variant.name} datastore://{there.project}/{there.database or '(default)'}{namespace}{kind}"


def refuse_ours(settings: Settings, variant: Variant, there: urls.Datastore, theirs: Collection[str]) -> None:
    """Refuse kinds that Countersink uses itself: they are the same data, or it would misread them."""
    if urls.scheme_of(settings.store) != "datastore" or urls.datastore(STORE, settings.store) != there:
        return
    ours = {*asdict(datastore_place(settings).kinds).values()}
    both = {one for one in ours if one in theirs or (variant.by is By.KIND and one.startswith(variant.shard))}
    if not both:
        return
    if variant.by is By.CONFIG and {settings.kind_config, settings.kind_shard} == {*theirs}:
        raise SettingsError(
            f"{FROM} and {STORE} are the same place: Countersink reads these counters and adds to them as they are,"
            " so there is nothing to import"
        )
    raise SettingsError(
        f"{STORE} is the same place, and {' and '.join(sorted(both))} of {variant.name} would also be kinds of"
        " Countersink: give Countersink a namespace of its own (?namespace=…), or other kinds"
        " (COUNTERSINK_KIND_SHARD, COUNTERSINK_KIND_CONFIG)"
    )
