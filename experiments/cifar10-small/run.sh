#!/usr/bin/env bash
# All thirteen methods on CIFAR-10 at 16×16, matched and independent test split, three seeds; then, as a control, the
# methods with one model for everybody, served by FRAMP's running average (averaged) and also moved by FRAMP's shared
# rate (like-framp). Runs what is missing.
# usage: run.sh FOLDER_OF_CIFAR10_PARQUET [JOBS]
set -euo pipefail
data=$1 jobs=${2:-1}
here=$(cd "$(dirname "$0")" && pwd)
source "$here/../keep.sh"
runs=${RUNS:-runs/cifar10-small}

ablation=framp,framp-no-alignment,framp-no-personalisation,framp-neither,framp-layerwise,framp-mlp,framp-onehot,framp-update
rivals=fiarse,heterofl,fedrolex,scalefl,fedavg

compare() { # folder, recipes, settings
  local folder=$1 recipes=$2
  shift 2
  framp compare cifar10-small --recipes "$recipes" --seeds 0,1,2 --set data.path="$data" --jobs "$jobs" \
    --out "$runs/$folder" "${@/#/--set=}"
  mkdir -p "$here/$folder"
}

for split in matched independent; do
  compare $split "$ablation" partition.test=$split
  cp "$runs/$split/table.md" "$here/$split/ablation.md"
  compare $split "$ablation,$rivals" partition.test=$split
  keep "$runs/$split" "$here/$split"
done
for split in matched independent; do
  compare $split-averaged fiarse partition.test=$split shared.served_average=0.1
  keep "$runs/$split-averaged" "$here/$split-averaged"
  compare $split-like-framp fiarse,framp-no-personalisation,framp-neither partition.test=$split \
    shared.served_average=0.1 shared.rate=2
  keep "$runs/$split-like-framp" "$here/$split-like-framp"
done
