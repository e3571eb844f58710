"""What `make test` leaves to `make test-all`: files and folders of slow tests, by what they try.

`make test` is the gate: each subject's main path on both engines, and all that tries rights,
injections, wrong answers and bits, in about a quarter of an hour on two processors. What stands
here tries the same code longer, from further away, or with tools that few changes touch. A file
that the command line names runs in any case.
"""

from __future__ import annotations

from tests.cluster import ROOT

REST = {
    "pages of the documentation, as a reader runs them; reports in a browser": [
        "acceptance/test_analyst.py",
        "acceptance/test_demo.py",
        "acceptance/test_examples.py",
        "integration/test_report.py",
        "unit/report/test_browser.py",
    ],
    "campaigns: random calls, attacks by every role, servers killed again and again": [
        "acceptance/test_campaign.py",
        "acceptance/test_kill.py",
        "acceptance/test_service_crash.py",
        "attacks/test_forged.py",
        "attacks/test_fuzz.py",
        "attacks/test_memory.py",
        "attacks/test_oracle.py",
        "attacks/test_soak.py",
        "integration/test_stack_crashes.py",
        "integration/test_store_crashes.py",
        "integration/test_store_faults.py",
        "integration/test_warm_attacks.py",
    ],
    "plans: calibrations of the machine, and estimates beside what runs took": [
        "integration/test_auto.py",
        "integration/test_calibrate.py",
        "integration/test_explain.py",
        "integration/test_explain_frozen.py",
        "integration/test_explain_input.py",
        "integration/test_explain_learned.py",
        "integration/test_explain_target.py",
        "integration/test_profile.py",
        "unit/plan/profile/test_calibration.py",
        "unit/plan/profile/test_measures.py",
        "unit/plan/profile/test_process.py",
        "unit/plan/test_ranking.py",
    ],
    "warm starts inside runs: every way to find, refuse and carry over a parent": [
        "integration/warm",
    ],
    "workers and sessions that are stopped, lost, limited or shared for minutes": [
        "integration/test_cancels.py",
        "integration/test_failures.py",
        "integration/test_hop_limit.py",
        "integration/test_lost_sessions.py",
        "integration/test_managed.py",
        "integration/test_service_process.py",
        "integration/test_space.py",
        "integration/test_store_concurrency.py",
        "integration/zoo/test_sessions.py",
    ],
    "subjects from every side, of which other files in the gate try the main ones": [
        "integration/test_candidates.py",
        "integration/test_carried.py",
        "integration/test_columns.py",
        "integration/test_data_shapes.py",
        "integration/test_drop_run.py",
        "integration/test_exchange.py",
        "integration/test_frozen_clones.py",
        "integration/test_frozen_replay.py",
        "integration/test_fused_hops.py",
        "integration/test_lineage_search.py",
        "integration/test_means.py",
        "integration/test_mixed_columns.py",
        "integration/test_real_tables.py",
        "integration/test_same_bits.py",
        "integration/test_shrink.py",
        "integration/test_sync.py",
        "integration/test_targets.py",
        "integration/test_totals_training.py",
        "integration/test_zoo_index.py",
        "integration/test_adapted_texts.py",
        "integration/zoo/test_outlines.py",
        "unit/graph/match/test_zoo_search.py",
        "unit/graph/transfer/test_exactness.py",
    ],
    "databases and machines: installs, doctors, garbage, memory, and the compiler": [
        "integration/test_cluster.py",
        "integration/test_dataset_memory.py",
        "integration/test_doctor.py",
        "integration/test_duckdb_checkpoints.py",
        "integration/test_gc_cases.py",
        "integration/test_install_cases.py",
        "integration/test_load.py",
        "integration/test_store_sharing.py",
        "integration/test_team_installs.py",
        "unit/test_same_hashes.py",
        "unit/train/test_allocator.py",
        "unit/train/test_compiler.py",
    ],
    "servers beside the server: images, replicas, backups, upgrades": [
        "docker",
        "integration/test_backup.py",
        "integration/test_replicas.py",
        "integration/test_upgrade.py",
    ],
    "experiments in small": [
        "bench",
        "integration/test_bench_clean.py",
    ],
}
PATHS = {ROOT / "tests" / name for names in REST.values() for name in names}
