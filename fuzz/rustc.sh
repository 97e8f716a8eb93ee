#!/usr/bin/env bash
# The compiler of this workspace's own crates when targets are built for fuzzing: the coverage that libFuzzer is guided by.
# Dependencies are compiled as ever, and shared with every other build.
exec "$@" \
    -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Ccodegen-units=1 \
    --cfg=fuzzing
