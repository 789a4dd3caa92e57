#!/usr/bin/env bash
# Five methods on a generated graph of arxiv's size with the arxiv preset's settings, 40 rounds, one seed; then FRAMP with
# the measured defaults instead of the paper's rule to the letter, and FIARSE served and moved by the same (measured).
# Runs what is missing.
# usage: run.sh [JOBS]
set -euo pipefail
jobs=${1:-1}
here=$(cd "$(dirname "$0")" && pwd)
source "$here/../keep.sh"
runs=${RUNS:-runs/sbm-arxiv-size}

compare() { # folder, recipes, settings
  local folder=$1 recipes=$2
  shift 2
  framp compare "$here/arxiv-size.toml" --recipes "$recipes" --seeds 0 --jobs "$jobs" \
    --out "$runs/$folder" "${@/#/--set=}"
  keep "$runs/$folder" "$here/$folder"
}

framp partition "$here/arxiv-size.toml" --out "$runs/partition"
cp "$runs/partition/figures/labels.svg" "$here/partition.svg"
compare letter framp,fiarse,heterofl,fedrolex,scalefl
compare measured framp,fiarse shared.served_average=0.1 shared.rate=2 generation.shared_rate=2 \
  generation.personal_rate=0.06 generation.head_scale=0 generation.centred=true generation.served_strength=0.8 \
  generation.served_average=0.1 alignment.distance=head
