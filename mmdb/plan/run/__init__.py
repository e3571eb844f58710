"""Plans of runs: what a run is made of, what like hops have cost, priced, ranked and kept."""
