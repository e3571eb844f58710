"""One hop, computed: (state, rows, setup, seed) -> (state, metrics). No I/O."""
