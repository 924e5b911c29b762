"""What the core needs of the outside, as Protocols. Adapters fill them."""
