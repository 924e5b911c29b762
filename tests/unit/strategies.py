"""Values of the domain, odd ones included."""

from hypothesis import strategies as st

from shared.model.words import MAX_DELTA, MAX_SUM, Envelope, Increment, flaw_of_name

names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=60).filter(
    lambda name: flaw_of_name(name) is None
)
ids = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)
deltas = st.integers(-MAX_DELTA, MAX_DELTA)
increments = st.builds(Increment, names, deltas, ids, st.just(""))


@st.composite
def envelopes(draw: st.DrawFn, most: int = 8) -> Envelope:
    sums = draw(st.dictionaries(names, st.integers(-MAX_SUM, MAX_SUM), max_size=most))
    counted = draw(st.lists(st.sampled_from(sorted(sums)), unique=True)) if sums else []
    return Envelope(
        id=draw(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=70)),
        sums=sums,
        counts={name: draw(st.integers(0, 10**6)) for name in counted},
        keyed=tuple(draw(st.lists(increments, max_size=most))),
        created=draw(st.integers(0, 2**45)),
        retried=draw(st.booleans()),
    )
