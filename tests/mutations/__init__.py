"""Single-line sabotages of the guarantee. Each must be caught, or the tests are not worth much."""
