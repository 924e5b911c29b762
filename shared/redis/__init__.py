"""The overlay of a fleet, in Redis or Valkey.

Where to look:

- Entries are written, and asked for, in `member.py`: it joins the overlay, leaves it, and confirms what is answered.
- They are read and settled in `overlay.py`, the adapter itself. `views.py` caches what was read.
- What an entry looks like is in `entries.py`. What runs in Redis is in `entry_scripts.py` and `member_scripts.py`.
  How long floors and unconfirmed entries live is at the top of `entry_scripts.py`.
- `copy.py` holds what this process entered, for the times without Redis.
- `naming.py` decides when the fleet changes to another server.
- `gone_members.py` fences or strikes members that seem to be gone.
- `ages.py` knows which entries are too old, by the promises of flushers.
- `server.py` knows whether Redis is up, and `links.py` has the connections.
- `flaws.py` and `setup.py` find out whether a Redis is fit for this.
"""
