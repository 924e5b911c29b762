"""The overlay of a fleet, in Redis or Valkey.

Where to look:

- `member.py` joins the overlay, leaves it, and confirms what is answered. It decides when the fleet changes to another
  server, and how long a silent member is left alone.
- `overlay.py` is the adapter itself: it reads and settles entries, and knows which are too old. Its loop makes a member
  step, look at the fleet, and look for members that are gone. It caches what was read.
- `own_entries.py` says what an entry looks like, and holds what this process entered, for the times without Redis.
- `scripts.py` has what runs inside Redis, and at its top how long floors and unconfirmed entries live.
- `server.py` has the connections, knows whether Redis is up, and finds out whether it is fit.
"""
