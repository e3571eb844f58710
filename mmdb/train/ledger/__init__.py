"""What the database records of runs, candidates, hops and states."""
