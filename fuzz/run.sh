#!/usr/bin/env bash
# Builds the fuzz targets once and runs each for so many seconds (20 by default), as many at a time as there are cores:
#
#   fuzz/run.sh [SECONDS]
#
# Targets: one per parser (selector, manifest, catalog, tree, pack, stat_cache) and `operations`, which compares a store
# with a model after each of random operations. What must hold is in tests/support/properties.rs; a target is one line.
# Two more must fail, each within the same time, or this script fails: `canary` (a comparison that only a fuzzer that sees
# its way through comparisons gets past) and `operations_planted` (a store that names wrong parents, found from nothing).
#
# Needs a Rust toolchain (stable will do: these are plain libFuzzer binaries, cargo-fuzz has no part in it) and a C++ compiler,
# because libFuzzer is C++. Everything that is written goes to target: logs, new inputs and artifacts to
# target/fuzz.
#
# A failure prints the input's path. To see it again: target/fuzz/fuzz_TARGET PATH. To keep it as a test, put it into
# fuzz/corpus/TARGET: plain `cargo test` runs every file there. Seeds are made by tests/model/seeds.rs.
set -euo pipefail
cd "$(dirname "$0")/.."

SECONDS_PER_TARGET=${1:-20}
OUT=$PWD/target/fuzz
PARSERS=(selector manifest catalog tree pack stat_cache)
TARGETS=(operations operations_planted "${PARSERS[@]}" canary)

command -v c++ >/dev/null || command -v clang++ >/dev/null || {
    echo "libFuzzer needs a C++ compiler: apt-get install g++" >&2
    exit 2
}

# The wrapper is part of what cargo tells builds apart by: this one and a plain one lie beside each other.
RUSTC_WORKSPACE_WRAPPER=$PWD/fuzz/rustc.sh cargo build --locked -p genstore-fuzz --features libfuzzer --bins
mkdir -p "$OUT"
cp "${TARGETS[@]/#/target/debug/fuzz_}" "$OUT"

rm -rf "$OUT/found" "$OUT/artifacts" "$OUT/logs"
mkdir -p "$OUT/logs"
# Stores of the model are made in memory: what is tested is not the disk.
SCRATCH=$(mktemp -d "$([ -d /dev/shm ] && echo /dev/shm || echo /tmp)/genstore-fuzz.XXXXXX")
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$SCRATCH"' EXIT

fuzz() {
    local target=$1 corpora=() limits=(-max_len=4096)
    mkdir -p "$OUT/found/$target" "$OUT/artifacts/$target" "$SCRATCH/$target"
    [ ! -d "fuzz/corpus/$target" ] || corpora+=("fuzz/corpus/$target")
    case $target in
        operations*) limits=(-max_len=256 -len_control=0) ;;
        catalog | manifest) limits=(-max_len=12288) ;;
    esac
    TMPDIR=$SCRATCH/$target "$OUT/fuzz_$target" \
        -max_total_time="$SECONDS_PER_TARGET" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$OUT/artifacts/$target/" "${limits[@]}" \
        "$OUT/found/$target" "${corpora[@]}" >"$OUT/logs/$target" 2>&1
}

# Whether a target ended as it must.
judge() {
    local target=$1 status=0 must_say='' say
    case $target in
        canary) must_say='the canary was found' ;;
        operations_planted) must_say='the parent' ;;
    esac
    fuzz "$target" || status=$?
    say=$(sed -n 's/^stat::number_of_executed_units: */executions: /p; s/^stat::average_exec_per_sec: */a second: /p' \
        "$OUT/logs/$target" | paste -sd ' ')
    say="$say, $(grep -o 'cov: [0-9]*' "$OUT/logs/$target" | tail -n 1 || true)"
    if [ -n "$must_say" ]; then
        if [ "$status" -ne 0 ] && grep -q "$must_say" "$OUT/logs/$target"; then
            echo "$target: found, as it must be ($say)"
            return 0
        fi
        echo "$target: NOT FOUND in $SECONDS_PER_TARGET s ($say)"
        tail -n 20 "$OUT/logs/$target"
        return 1
    fi
    if [ "$status" -eq 0 ]; then
        echo "$target: ok ($say)"
        return 0
    fi
    echo "$target: FAILED ($say)"
    grep -v '^#[0-9]' "$OUT/logs/$target" | tail -n 60
    return 1
}

failed=0
running=0
for target in "${TARGETS[@]}"; do
    if [ "$running" -ge "$(nproc)" ]; then
        wait -n || failed=1
        running=$((running - 1))
    fi
    judge "$target" &
    running=$((running + 1))
done
while [ "$running" -gt 0 ]; do
    wait -n || failed=1
    running=$((running - 1))
done
exit "$failed"
