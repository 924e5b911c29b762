"""The store in Datastore, or Firestore in Datastore mode."""
