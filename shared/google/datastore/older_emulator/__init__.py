"""How Countersink works with the older Datastore emulator (`gcloud beta emulators datastore start`).

Google Cloud and the Firestore emulator in Datastore mode behave alike. The older emulator, which many development
set-ups still use, differs in ways that would lose or misread counts:

- It ignores property transforms and property masks, and replaces the whole entity. So a sum is read, added to, and
  written back over the version that was read (`writes`).
- It cannot read at an instant, and tells no time. So a reading is what two Lookups agree on, which is exact only while
  nothing is pending (`snapshot`). The versions of entities stand for times (`versions`). Dates come from this machine's
  clock, and nobody can say how long ago a shard was written (`server`).
- It returns names in the order of UTF-16, not of code points. So all names are read, and then sorted or
  counted (`server`).
- Its queries may lack, for a moment, what a Lookup already finds (`snapshot`).
- Its ALREADY_EXISTS does not say which entity exists (`writes`).

`DatastoreStore` probes the server once, and then uses either `DatastoreServer` or this folder's `OlderEmulator`. It
treats any server that lacks transforms or read times as an older emulator.
"""
