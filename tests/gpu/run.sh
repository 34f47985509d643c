#!/usr/bin/env bash
# Everything that needs a GPU, in one command, within 8 minutes:
#   tests/gpu/run.sh              (all but python)
#   tests/gpu/run.sh STAGE...     of build tests bench more sanitize ncu python
# build: the plug-in, tests and benchmarks for this GPU. tests: the kernels and all ops against the
# CPU's. bench: every number of docs/cuda.md. more: the engine against the CPU's, goldens. sanitize:
# compute-sanitizer. ncu: where the kernels' time goes. python: start-up, throughput and, where torch
# is, transformers beside, through Python; HEADRACE_GPU_SECONDS must be raised for that.
# A step that fails or runs out of time costs no other step its rows. Stages without build run what
# was built before, maybe elsewhere. The rows of several calls make one table:
#   python3 benchmarks/cuda/table.py FIRST/rows.jsonl SECOND/rows.jsonl
#
# build needs nvcc, CMake, Ninja, a C++20 compiler and Python; no network: HEADRACE_GPU_DEPS (default
# build/gpu-deps, see deps.sh) has what isn't there. Without a GPU it says so and passes, unless
# HEADRACE_REQUIRE_CUDA=1. No step begins after HEADRACE_GPU_SECONDS (default 470).
# HEADRACE_COMMIT: what to call the sources where there is no git.
# The table comes last. It, the rows and the log of every step are also in $OUT (default build/gpu/out):
# table.txt, rows.jsonl, clocks.csv, logs.txt.
set -uo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
deps=${HEADRACE_GPU_DEPS:-$root/build/gpu-deps}
build=${HEADRACE_GPU_BUILD:-$root/build/gpu}
out=${OUT:-$build/out}
jobs=${HEADRACE_JOBS:-$(nproc)}
deadline=${HEADRACE_GPU_SECONDS:-470}
stages=("$@")
[ ${#stages[@]} -gt 0 ] || stages=(build tests bench more sanitize ncu)
rows=()
failed=0

# Toolkits don't put themselves into PATH; the newest comes last. HEADRACE_CUDA_HOME: where they are.
for folder in "${HEADRACE_CUDA_HOME:-/usr/local}"/cuda{,-*}/bin; do
  [ ! -x "$folder/nvcc" ] || nvcc_folder=$folder
done
command -v nvcc >/dev/null || export PATH=$PATH:${nvcc_folder:-}

if ! nvidia-smi -L >/dev/null 2>&1; then
  echo "SKIPPED: this machine has no usable NVIDIA GPU"
  [ "${HEADRACE_REQUIRE_CUDA:-0}" != 1 ]
  exit
fi
mkdir -p "$build/logs" "$out"
rm -f "$build"/logs/*.log "$out"/{table.txt,rows.jsonl,clocks.csv,logs.txt}

# note RESULT NAME REMARK: a row of the list of steps.
note() {
  rows+=("$(printf '%-8s %-20s %s' "$1" "$2" "$3")")
  printf '%s\n' "${rows[-1]}"
}

# skip NAME WHY: visible, and fatal where a GPU is required.
skip() {
  note SKIPPED "$1" "$2"
  [ "${HEADRACE_REQUIRE_CUDA:-0}" != 1 ] || failed=1
}

# step NAME SECONDS COMMAND...: runs it; its last line is the remark.
step() {
  local name=$1 limit=$2 log=$build/logs/$1.log begin=$SECONDS result=ok left=$((deadline - SECONDS))
  shift 2
  [ $left -gt 5 ] || { skip "$name" "no time was left"; return; }
  [ "$limit" -le $left ] || limit=$left
  timeout -k 5 "$limit" "$@" >"$log" 2>&1
  case $? in
    0) ;;
    124 | 137) result=TIMEOUT ;;
    127) result="FAILED" && echo "not built, or not installed: $1" >>"$log" ;;
    *) result=FAILED ;;
  esac
  if [ "$result" != ok ]; then
    failed=1
    printf -- '--- %s\n' "$log"
    tail -n 30 "$log"
  fi
  note "$result" "$name" "$((SECONDS - begin)) s; $(grep -av '^\s*$' "$log" | tail -n 1 | cut -c1-100)"
  [ "$result" = ok ]
}

# tests NAME SECONDS PROGRAM: a test program; if it fails, each of its tests in a process of its own:
# a kernel that ends badly takes everything of its process with it.
tests() {
  local name=$1 limit=$2 program=$3 test
  step "$name" "$limit" "$program" --gtest_brief=1 && return
  for test in $(timeout 20 "$program" --gtest_list_tests 2>/dev/null |
    awk '/^[^ ].*\./ {suite = $1} /^  / && suite {print suite $1}'); do
    step "$name-${test//[\/.]/-}" 20 "$program" --gtest_brief=1 --gtest_filter="$test"
  done
}

# The newest cuBLASLt there is: the toolkit's, or one that came with a Python package.
find_cublaslt() {
  {
    ldconfig -p 2>/dev/null | awk '/libcublasLt\.so\.1[23] / {print $NF}'
    ls -d /usr/local/cuda*/lib64/libcublasLt.so.1[23] 2>/dev/null
    python3 -c 'import glob, sysconfig
for kind in "purelib", "platlib":
    print(*glob.glob(sysconfig.get_path(kind) + "/nvidia/*/lib/libcublasLt.so.1[23]"), sep="\n")'
  } | grep . | sed 's/.*\.so\.\([0-9]*\)$/\1 &/' | sort -n | tail -n 1 | cut -d' ' -f2-
}

cublaslt=$(find_cublaslt)

conditions() {
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem,power.limit \
    --format=csv,noheader | head -n 1
  nvcc --version 2>/dev/null | grep -o 'release [0-9.]*' | sed 's/^/nvcc /'
  echo "commit ${HEADRACE_COMMIT:-$(git describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)}"
  date -u '+%Y-%m-%d %H:%M UTC'
  echo "cuBLASLt: ${cublaslt:-none}"
}

configure() {
  local arch
  arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
  [ "$arch" != 90 ] || arch=90a
  PYTHONPATH=$deps/python:${PYTHONPATH:-} GTEST_ROOT=$deps/gtest cmake -G Ninja -S . -B "$build" \
    -DCMAKE_PREFIX_PATH="$deps/gtest" -DHEADRACE_CUDA=ON -DHEADRACE_CUDA_ARCHS="$arch-real" \
    -DHEADRACE_BUILD_TESTS=ON -DHEADRACE_BUILD_BENCHMARKS=ON "$@"
}
export -f configure
export deps build

# What spills is slow, and measured all the same.
run_build() {
  command -v nvcc >/dev/null || { skip build "no nvcc"; return; }
  export HEADRACE_PTXAS_CHECK=warn
  step configure 60 bash -c configure
  step build 330 ninja -C "$build" -j "$jobs" -k 0 gpu_tests
}

run_tests() {
  tests kernels 60 "$build/tests/cuda/gpu_kernels_test"
  tests parity 60 "$build/tests/cuda/host/gpu_parity_test"
  tests quantized 60 "$build/tests/cuda/host/gpu_quantized_test"
  tests experts 60 "$build/tests/cuda/host/gpu_moe_test"
}

run_bench() {
  local bench=$build/benchmarks/cuda clocks part folder=()
  nvidia-smi --query-gpu=timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,utilization.gpu \
    --format=csv -lms 500 >"$out/clocks.csv" 2>/dev/null &
  clocks=$!
  for part in sampling rows attention segments linears; do
    step "bench-$part" 60 "$bench/gpu_kernel_bench" --part $part --rows "$out/rows.jsonl" \
      --cublaslt "$cublaslt"
  done
  step bench-8b 60 "$bench/gpu_engine_bench" --rows "$out/rows.jsonl" --shape llama-3.1-8b --part decode
  step bench-1b 60 "$bench/gpu_engine_bench" --rows "$out/rows.jsonl" --shape llama-3.2-1b
  step bench-tower 60 "$bench/gpu_engine_bench" --rows "$out/rows.jsonl" --part tower
  # 16 GB take long to write to some disks, and are read from memory either way.
  [ "0$(df -k --output=avail /dev/shm 2>/dev/null | tail -n 1 | tr -d ' ')" -lt 25000000 ] ||
    folder=(--folder "/dev/shm/headrace-8b-$$")
  step startup 120 "$bench/startup_bench" --rows "$out/rows.jsonl" "${folder[@]}"
  rm -rf "${folder[1]:-$build/none}"
  step serving-8b 120 "$bench/gpu_engine_bench" --rows "$out/rows.jsonl" --shape llama-3.1-8b \
    --part serving
  kill $clocks 2>/dev/null
  wait $clocks 2>/dev/null
}

run_more() {
  tests engine 60 "$build/tests/cuda/host/gpu_engine_test"
  step goldens 120 "$build/tests/cuda/host/gpu_golden_test" --gtest_brief=1 \
    --gtest_also_run_disabled_tests --gtest_filter='*All*:*Lora*'
  tests towers 60 "$build/tests/cuda/host/gpu_tower_test"
}

run_sanitize() {
  local tool
  command -v compute-sanitizer >/dev/null || { skip sanitizer "no compute-sanitizer"; return; }
  for tool in memcheck racecheck synccheck; do
    step "$tool" 60 compute-sanitizer --tool $tool --error-exitcode 9 \
      "$build/tests/cuda/host/gpu_parity_test" --gtest_brief=1 \
      --gtest_filter='*Linear/bfloat16:*Norm/bfloat16:*Attention*bfloat16*:CudaSample*'
  done
}

# The third launch of each kernel of a benchmark, until there are 16.
run_ncu() {
  local part metrics=gpu__time_duration.sum,launch__registers_per_thread,smsp__inst_executed.sum
  command -v ncu >/dev/null || { skip ncu "no ncu"; return; }
  metrics+=,dram__throughput.avg.pct_of_peak_sustained_elapsed,sm__inst_executed.avg.per_cycle_active
  metrics+=,sm__warps_active.avg.pct_of_peak_sustained_active
  for part in attention sampling linears; do
    step "ncu-$part" 45 ncu --clock-control none --metrics "$metrics" --kernel-name-base mangled \
      --kernel-id :::3 --launch-count 16 --kill yes \
      "$build/benchmarks/cuda/gpu_kernel_bench" --part $part
  done
}

run_python() {
  local python
  python=$(command -v python3)
  step configure-python 60 bash -c \
    "configure -DHEADRACE_BUILD_PYTHON=ON -DPython_EXECUTABLE=$python -DPython3_EXECUTABLE=$python"
  step build-python 200 ninja -C "$build" -j "$jobs" _core headrace_cuda
  ln -sf "$build"/python/bindings/_core*.so python/headrace/
  export PYTHONPATH=$root/python:$deps/python:${PYTHONPATH:-}
  step startup-python 200 python3 benchmarks/startup.py --device cuda --shape llama-3.1-8b
  step throughput-python 120 python3 benchmarks/throughput.py --device cuda --shape llama-3.1-8b \
    --sharegpt --requests 1000 --repeats 1
  python3 -c 'import torch, transformers' 2>/dev/null || { skip peers "no torch, or no transformers"; return; }
  step peers 240 python3 benchmarks/compare/compare.py --device cuda --shape llama-3.1-8b --work decode \
    --python transformers="$python" --results "$out/compare.jsonl" \
    --gpu-limits "$build/benchmarks/cuda/gpu_kernel_bench --cublaslt $cublaslt"
}

# The table of the numbers, and all logs in one file: $OUT may hold few files.
finish() {
  local log
  for log in "$build"/logs/*.log; do
    printf '=== %s\n' "$(basename "$log" .log)"
    tail -c 1000000 "$log"
  done >"$out/logs.txt" 2>/dev/null
  {
    conditions
    awk -F, 'NR > 1 && $6 + 0 > 50 {n++; c = $2 + 0; if (!lo || c < lo) lo = c; if (c > hi) hi = c}
      END {if (n) print "clocks while busy: " lo " to " hi " MHz"}' "$out/clocks.csv" 2>/dev/null
    echo "$SECONDS s in all"
    echo
    printf '%s\n' "${rows[@]}"
    if [ -e "$out/rows.jsonl" ]; then
      echo
      python3 benchmarks/cuda/table.py "$out/rows.jsonl"
    fi
  } >"$out/table.txt" 2>&1
  printf '\n'
  cat "$out/table.txt"
}
trap 'finish; exit $failed' EXIT
trap 'failed=1; exit' INT TERM

for stage in "${stages[@]}"; do
  declare -F "run_$stage" >/dev/null || { echo "there is no stage $stage"; failed=1; exit; }
  "run_$stage"
done
