#!/usr/bin/env bash
# Everything that needs a GPU, in one command: tests/gpu/run.sh
# Builds the plug-in for this GPU, then runs parity, goldens, the engine against the CPU's, faults,
# compute-sanitizer and benchmarks; the table comes last. Needs nvcc, CMake, a C++20 compiler and
# Python; no network: HEADRACE_GPU_DEPS (default build/gpu-deps, see deps.sh) has what isn't there.
# Without a GPU it says so and passes, unless HEADRACE_REQUIRE_CUDA=1. The log of each step is in
# build/gpu/logs.
set -uo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
deps=${HEADRACE_GPU_DEPS:-$root/build/gpu-deps}
build=$root/build/gpu
jobs=${HEADRACE_JOBS:-$(nproc)}
rows=()
failed=0

if ! nvidia-smi -L >/dev/null 2>&1 || ! command -v nvcc >/dev/null; then
  echo "SKIPPED: this machine has no usable NVIDIA GPU, or no nvcc"
  [ "${HEADRACE_REQUIRE_CUDA:-0}" != 1 ]
  exit
fi
mkdir -p "$build/logs"

# note RESULT NAME REMARK: a row of the table.
note() {
  rows+=("$(printf '%-8s %-28s %s' "$1" "$2" "$3")")
  printf '%s\n' "${rows[-1]}"
}

# skip NAME WHY: visible, and fatal where a GPU is required.
skip() {
  note SKIPPED "$1" "$2"
  [ "${HEADRACE_REQUIRE_CUDA:-0}" != 1 ] || failed=1
}

# step NAME SECONDS COMMAND...: runs it; its last line is the remark.
step() {
  local name=$1 limit=$2 log=$build/logs/$1.log begin=$SECONDS result=ok
  shift 2
  timeout "$limit" "$@" >"$log" 2>&1 || { result=FAILED; failed=1; }
  [ $result = ok ] || { echo "--- $log"; tail -n 30 "$log"; }
  note $result "$name" "$((SECONDS - begin)) s; $(grep -v '^\s*$' "$log" | tail -n 1 | cut -c1-100)"
}

configure() {
  local arch
  arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
  [ "$arch" != 90 ] || arch=90a
  PYTHONPATH=$deps/python:${PYTHONPATH:-} GTEST_ROOT=$deps/gtest cmake -G Ninja -S . -B "$build" \
    -DCMAKE_PREFIX_PATH="$deps/gtest" -DHEADRACE_CUDA=ON -DHEADRACE_CUDA_ARCHS="$arch-real" \
    -DHEADRACE_BUILD_TESTS=ON
}

step configure 120 configure
step build 420 ninja -C "$build" -j "$jobs" gpu_tests
tests=$build/tests/cuda/host
if [ $failed = 0 ]; then
  step kernels 120 "$build/tests/cuda/gpu_kernels_test"
  step parity 120 "$tests/gpu_parity_test"
  step goldens 180 "$tests/gpu_golden_test" --gtest_also_run_disabled_tests --gtest_filter='*All*:*Lora*'
  step engine 120 "$tests/gpu_engine_test"
  if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck; do
      step "sanitizer-$tool" 120 compute-sanitizer --tool $tool --error-exitcode 9 \
        "$tests/gpu_parity_test" --gtest_filter='*Linear/bfloat16:*Norm/bfloat16:CudaSample*'
    done
  else
    skip sanitizer "no compute-sanitizer"
  fi
  step benchmark 120 "$tests/gpu_step_bench"
  tail -n +1 "$build/logs/benchmark.log"
fi

printf '\n%s\n' "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1), $SECONDS s"
printf '%s\n' "${rows[@]}"
exit $failed
