#!/usr/bin/env bash
# Seven methods on Cora cut into 20 subgraphs, three seeds; then, as a control, FIARSE served by FRAMP's running average
# and moved by FRAMP's shared rate (like-framp), and FRAMP with the paper's distance (mse). Runs what is missing.
# usage: run.sh FOLDER_OF_RAW_PLANETOID_FILES [JOBS]
set -euo pipefail
data=$1 jobs=${2:-1}
here=$(cd "$(dirname "$0")" && pwd)
source "$here/../keep.sh"
runs=${RUNS:-runs/cora}

compare() { # folder, recipes, settings
  local folder=$1 recipes=$2
  shift 2
  framp compare cora --recipes "$recipes" --seeds 0,1,2 --set data.path="$data" --jobs "$jobs" \
    --out "$runs/$folder" "${@/#/--set=}"
  keep "$runs/$folder" "$here/$folder"
}

framp partition cora --set data.path="$data" --out "$runs/partition"
cp "$runs/partition/figures/labels.svg" "$here/partition.svg"
compare all framp,framp-no-alignment,fiarse,heterofl,fedrolex,scalefl,fedavg
compare like-framp fiarse shared.served_average=0.1 shared.rate=2
compare mse framp alignment.distance=mse
