#!/usr/bin/env bash
# Seven methods on Cora cut into 20 subgraphs, three seeds; then, as a control, FIARSE served by FRAMP's running average
# and moved by FRAMP's shared rate (like-framp), and FRAMP with the paper's distance (mse). Runs what is missing.
# usage: run.sh FOLDER_OF_RAW_PLANETOID_FILES [JOBS]
set -euo pipefail
data=$1 jobs=${2:-1}
here=$(cd "$(dirname "$0")" && pwd)
runs=${RUNS:-runs/cora}

compare() { # folder, recipes, settings
  local folder=$1 recipes=$2
  shift 2
  framp compare cora --recipes "$recipes" --seeds 0,1,2 --set data.path="$data" --jobs "$jobs" \
    --out "$runs/$folder" "${@/#/--set=}"
  mkdir -p "$here/$folder"
  cp "$runs/$folder"/{table.md,summary.json,*.csv} "$here/$folder/"
  cp -r "$runs/$folder/figures" "$here/$folder/"
  for run in "$runs/$folder"/*-seed*; do
    mkdir -p "$here/$folder/$(basename "$run")"
    cp "$run"/{results.json,partition.json} "$here/$folder/$(basename "$run")/"
    # where this machine keeps the data is nobody's business, and no hash depends on it
    sed 's|^path = "/.*/|path = "/|' "$run/config.toml" > "$here/$folder/$(basename "$run")/config.toml"
  done
}

framp partition cora --set data.path="$data" --out "$runs/partition"
cp "$runs/partition/figures/labels.svg" "$here/partition.svg"
compare all framp,framp-no-alignment,fiarse,heterofl,fedrolex,scalefl,fedavg
compare like-framp fiarse shared.served_average=0.1 shared.rate=2
compare mse framp alignment.distance=mse
