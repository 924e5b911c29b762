"""Where events of the feed go: a file, and a web hook. The receiver of Pub/Sub is in `shared/pubsub`."""
