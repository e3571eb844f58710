#!/usr/bin/env bash
# Prints what compose.citus.yaml lacks for a cluster of N nodes:  nodes.sh 4 >compose.nodes.yaml
#   docker compose --file compose.citus.yaml --file compose.nodes.yaml up --detach
set -euo pipefail

count=${1:-}
[[ $count =~ ^([2-9]|[1-9][0-9]+)$ ]] || { printf 'nodes.sh: give the number of nodes, from 2 up\n' >&2; exit 2; }

names=$(seq --format='node-%.0f' --separator=' ' 1 "$count")
printf 'services:\n'
for number in $(seq 3 "$count"); do
    printf '  node-%s:\n' "$number"
    printf '    extends: { file: compose.citus.yaml, service: node-1 }\n'
    printf '    volumes: ["node-%s:/var/lib/postgresql"]\n' "$number"
done
printf '  install:\n    environment:\n      NODES: %s\n    depends_on:\n' "$names"
for name in $names; do
    printf '      %s: { condition: service_healthy }\n' "$name"
done
printf 'volumes:\n'
for name in $names; do
    printf '  %s:\n' "$name"
done
