#!/usr/bin/env bash
# The five methods on CIFAR-10 at 16×16, matched and independent test split, three seeds. Runs what is missing.
# usage: run.sh FOLDER_OF_CIFAR10_PARQUET [JOBS]
set -euo pipefail
data=$1 jobs=${2:-1}
here=$(cd "$(dirname "$0")" && pwd)
runs=${RUNS:-runs/cifar10-small}
for split in matched independent; do
  framp compare cifar10-small --recipes framp,framp-no-alignment,framp-onehot,fiarse,fedavg --seeds 0,1,2 \
    --set data.path="$data" --set partition.test=$split --jobs "$jobs" --out "$runs/$split"
  mkdir -p "$here/$split"
  cp "$runs/$split"/{table.md,table.csv,differences.csv,summary.json} "$here/$split/"
  cp -r "$runs/$split/figures" "$here/$split/"
  for run in "$runs/$split"/*-seed*; do
    mkdir -p "$here/$split/$(basename "$run")"
    cp "$run"/{results.json,config.toml,partition.json} "$here/$split/$(basename "$run")/"
  done
done
