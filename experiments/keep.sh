# To be sourced: what is committed of the runs of a comparison.

keep() { # folder of the comparison, folder to keep it in
  mkdir -p "$2"
  cp "$1"/{table.md,summary.json,*.csv} "$2/"
  cp -r "$1/figures" "$2/"
  for run in "$1"/*-seed*; do
    local own="$2/$(basename "$run")"
    mkdir -p "$own"
    cp "$run"/{results.json,partition.json} "$own/"
    # where this machine keeps the data is nobody's business, and no hash depends on it
    sed 's|^path = "/.*/|path = "/|' "$run/config.toml" > "$own/config.toml"
  done
}
