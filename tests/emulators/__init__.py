"""The adapters of Google Cloud on its emulators."""
