#!/usr/bin/env bash
# Runs the fuzz targets: fuzz/run.sh [seconds for each] [target...]
set -euo pipefail

readonly TOOLCHAIN=${FUZZ_TOOLCHAIN:-nightly}
readonly CARGO_FUZZ=0.13.2
readonly SECONDS_EACH=${1:-60}
shift || true

cd "$(dirname "${BASH_SOURCE[0]}")"
rustup toolchain list | grep --quiet "^$TOOLCHAIN" || rustup toolchain install "$TOOLCHAIN" --profile minimal
cargo fuzz --version 2>/dev/null | grep --quiet --fixed-strings "$CARGO_FUZZ" ||
  cargo install cargo-fuzz --locked --version "$CARGO_FUZZ"

targets=("$@")
if [[ ${#targets[@]} -eq 0 ]]; then
  mapfile -t targets < <(cargo "+$TOOLCHAIN" fuzz list)
fi

for target in "${targets[@]}"; do
  printf '\n==> %s: %s s\n' "$target" "$SECONDS_EACH"
  mkdir -p "corpus/$target"
  # Ten seconds for one input is a hang, and no input needs more memory than this.
  cargo "+$TOOLCHAIN" fuzz run "$target" "corpus/$target" "corpus-seeds/$target" -- \
    -max_total_time="$SECONDS_EACH" -max_len=32768 -timeout=10 -rss_limit_mb=1024 -malloc_limit_mb=256
done
