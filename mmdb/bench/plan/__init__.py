"""`mmdb bench plan`: what plans say of runs, and what the runs take."""
