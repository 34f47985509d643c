#!/usr/bin/env bash
# Everything that needs a GPU, in parts of at most four minutes, each useful alone:
#   tests/gpu/run.sh a     tests of kernels; attention, decodes of all formats, serving
#   tests/gpu/run.sh b     products, quantized ones, experts, sampling; tests of models
#   tests/gpu/run.sh c     start-up, the cost of the same bits, a failing test under
#                          compute-sanitizer, sums of FP8, counts of ncu, serving of short outputs
# They run what tests/gpu/pack.sh has packed (build/gpu/pack.tar.xz, or HEADRACE_GPU_PACK), which
# takes bash, python3 and nvidia-smi; or what this machine has built:
#   tests/gpu/run.sh build a
# More stages: ranks (two GPUs: what the CPU says, and how long one takes), sanitize (everything
# under compute-sanitizer), more (the engine against the CPU's, goldens), details (numbers without
# targets), python (start-up, throughput and, where torch is, transformers beside, through Python;
# HEADRACE_GPU_SECONDS must be raised for that). Without arguments: a, behind build where there is
# neither a pack nor a build.
#
# A step that fails or runs out of time costs no other step its rows, and rows are written as they
# come. Steps that no time was left for are named at the end. Tests that failed run once more at the
# end, alone, for 60 seconds in all. Rows of several machines make one table, too:
#   python3 benchmarks/cuda/table.py FIRST/rows.jsonl SECOND/rows.jsonl
#
# build needs nvcc, CMake, Ninja, a C++20 compiler and Python; no network: HEADRACE_GPU_DEPS (default
# build/gpu-deps, see deps.sh) has what isn't there. Without a GPU it says so and passes, unless
# HEADRACE_REQUIRE_CUDA=1. No step begins after HEADRACE_GPU_SECONDS (default 240 for each part, 540
# with other stages), and none takes longer than HEADRACE_GPU_STEP_SECONDS. HEADRACE_COMMIT: what to
# call the sources where there is no git.
# The table comes last. It, the rows and the log of every step are also in $OUT (default build/gpu/out):
# table.txt, rows.jsonl, clocks.csv, logs.txt, and with part c float8.jsonl.
set -uo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
deps=${HEADRACE_GPU_DEPS:-$root/build/gpu-deps}
build=${HEADRACE_GPU_BUILD:-$root/build/gpu}
out=${OUT:-$build/out}
logs=$build/logs
jobs=${HEADRACE_JOBS:-$(nproc)}
pack=${HEADRACE_GPU_PACK:-$build/pack.tar.xz}
stages=("$@")
clocks=
linked=

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

# Programs of a pack know goldens and the plug-in by the paths where they were built: a link there.
unpack() {
  local parts=("${build#"$root"/}") sum
  sum=$(sha256sum <"$pack")
  [ "$(cat "$build/pack.sum" 2>/dev/null)" != "$sum" ] || return 0
  [ -e tests/golden ] || parts+=(tests/golden examples/tiny_model)
  tar -xf "$pack" "${parts[@]}" && [ -e "$build/pack.txt" ] && echo "$sum" >"$build/pack.sum" || {
    echo "$pack could not be unpacked, or was made of another folder than $build: name that in" \
      "HEADRACE_GPU_BUILD"
    exit 1
  }
}
link_pack() {
  local built_at
  built_at=$(sed -n 's/^root //p' "$build/pack.txt")
  packed_commit=$(sed -n 's/^commit //p' "$build/pack.txt")
  if [ ! -e "$built_at" ] && [ ! -L "$built_at" ]; then
    mkdir -p "$(dirname "$built_at")" && ln -s "$root" "$built_at" && linked=$built_at
  fi
  [ "$root" -ef "$built_at" ] || {
    echo "the programs look for goldens in $built_at: make that a link to $root"
    exit 1
  }
}
trap '[ -z "$linked" ] || rm -f "$linked"' EXIT
built() { [ -x "$build/tests/cuda/gpu_kernels_test" ]; }
case " ${stages[*]} " in
  *" build "*) rm -f "$build"/pack.{txt,sum} ;;
  *)
    if [ -e "$pack" ] && { ! built || [ -e "$build/pack.sum" ]; }; then unpack; fi
    [ ! -e "$build/pack.txt" ] || link_pack
    ;;
esac
if [ ${#stages[@]} -eq 0 ]; then
  stages=(a)
  built || stages=(build a)
fi
deadline=0
for stage in "${stages[@]}"; do
  case $stage in
    [abc]) deadline=$((deadline + 240)) ;;
    *) deadline=540 && break ;;
  esac
done
deadline=${HEADRACE_GPU_SECONDS:-$deadline}
mkdir -p "$logs" "$out"
rm -f "$logs"/*.{log,csv} "$out"/{table.txt,clocks.csv,logs.txt}
. "$root/tests/gpu/steps.sh"

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
  echo "commit ${HEADRACE_COMMIT:-${packed_commit:-$(git describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)}}"
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
  rm -f "$rows_file"
  command -v nvcc >/dev/null || { skip build "no nvcc"; return; }
  export HEADRACE_PTXAS_CHECK=warn
  step configure 60 bash -c configure
  step build 330 ninja -C "$build" -j "$jobs" -k 0 gpu_tests
}

# Ranks on one GPU wait for each other's kernels: loading one meanwhile waits for what runs.
kernel_tests() {
  tests kernels 40 "$build/tests/cuda/gpu_kernels_test" '-*RankExchange*'
  CUDA_MODULE_LOADING=EAGER tests exchanges 20 "$build/tests/cuda/gpu_kernels_test" '*RankExchange*'
}

# From the first benchmark to the end.
watch_clocks() {
  [ -z "$clocks" ] || return
  nvidia-smi --query-gpu=timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,utilization.gpu \
    --format=csv -lms 500 >"$out/clocks.csv" 2>/dev/null &
  clocks=$!
}

# kernel_bench SECONDS PART..., engine_bench NAME SECONDS ARGUMENT...: steps that bring rows.
kernel_bench() {
  local limit=$1 part
  shift
  watch_clocks
  for part in "$@"; do
    step "bench-$part" "$limit" "$build/benchmarks/cuda/gpu_kernel_bench" --part "$part" \
      --rows "$rows_file" --cublaslt "$cublaslt"
  done
}
engine_bench() {
  local name=$1 limit=$2
  shift 2
  watch_clocks
  step "$name" "$limit" "$build/benchmarks/cuda/gpu_engine_bench" --rows "$rows_file" "$@"
}

# serving NAME SECONDS ARGUMENT...: 1,000 requests at once.
serving() {
  engine_bench "$1" "$2" --shape llama-3.1-8b --part serving --seqs 1000 "${@:3}"
}

run_a() {
  kernel_tests
  kernel_bench 30 attention
  engine_bench bench-8b 40 --shape llama-3.1-8b --part decode
  engine_bench bench-8b-wint4 75 --shape llama-3.1-8b --quantization wint4 --part decode
  engine_bench bench-8b-fp8 50 --shape llama-3.1-8b --quantization fp8 --part decode
  serving serving-8b 75
  engine_bench bench-1b 30 --shape llama-3.2-1b --part decode
}

# Tests of models compute more on the host than on the GPU. 61 GB of experts in bf16.
run_b() {
  local processes=$(($(nproc) < 4 ? $(nproc) : 4))
  kernel_bench 60 linears
  kernel_bench 30 quantized sampling
  tests quantized 75 "$build/tests/cuda/host/gpu_quantized_test" '*' $processes
  tests parity 30 "$build/tests/cuda/host/gpu_parity_test" '*' $processes
  tests experts 30 "$build/tests/cuda/host/gpu_moe_test" '*' $processes
  engine_bench bench-moe 75 --shape qwen3-30b-a3b --part decode
}

run_c() {
  startup
  run_cost
  sanitize_failed
  # Sums of FP8 products as this card's tensor cores make them, and how far they are from exact ones.
  step float8-sums 20 "$build/benchmarks/cuda/gpu_float8_probe" --cublaslt "$cublaslt" &&
    cp "$logs/float8-sums.log" "$out/float8.jsonl"
  run_ncu
  serving serving-8b-512 45 --longest 512
  serving serving-8b-fp8-512 50 --longest 512 --quantization fp8
}

startup() {
  local folder=()
  # 16 GB take long to write to some disks, and are read from memory either way.
  [ "0$(df -k --output=avail /dev/shm 2>/dev/null | tail -n 1 | tr -d ' ')" -lt 25000000 ] ||
    folder=(--folder "/dev/shm/headrace-8b-$$")
  step startup 90 "$build/benchmarks/cuda/startup_bench" --rows "$rows_file" "${folder[@]}"
  # Where there is little else to load, what trials add shows best.
  step trials 30 "$build/benchmarks/cuda/startup_bench" --rows "$rows_file" --shape toy --repeats 5
  rm -rf "${folder[1]:-$build/none}"
}

# Both say so where there is one GPU.
run_ranks() {
  tests two-gpus 60 "$build/tests/cuda/host/gpu_engine_test" '*TwoGpus*'
  engine_bench bench-ranks 90 --shape llama-3.1-8b --part ranks
}

# There is no faster order of sums that could be switched to: every kernel that a row of the table runs
# gives the bits of every other one. These tests say so on this GPU, or the row has no number; with them it
# is what attention-prefill lacks of sums in any order (benchmarks/cuda/table.py).
run_cost() {
  local row='"missing": "kernels differ in bits"'
  step cost-linears 40 "$build/tests/cuda/gpu_kernels_test" --gtest_brief=1 \
    --gtest_filter='*Linear.RowsDoNotDependOnTheirCompany*:*Attention.ChunkingDoesNotChangeBits*' &&
    step cost-models 40 "$build/tests/cuda/host/gpu_parity_test" --gtest_brief=1 \
      --gtest_filter='CudaPlainKernels.*:*ASequencesBitsDependOnNothingElse*' &&
    row='"one_path": true'
  was_cut "$stage" || printf '{"number": "same-bits", %s}\n' "$row" >>"$rows_file"
}

run_details() {
  kernel_bench 30 segments rows
  kernel_bench 60 quantized-rows
  engine_bench serving-8b-256 75 --shape llama-3.1-8b --part serving
  engine_bench bench-tower 45 --part tower
  engine_bench bench-moe-wint4 90 --shape qwen3-30b-a3b --quantization wint4 --part decode
}

run_more() {
  tests engine 60 "$build/tests/cuda/host/gpu_engine_test" '-*TwoGpus*'
  step goldens 120 "$build/tests/cuda/host/gpu_golden_test" --gtest_brief=1 \
    --gtest_also_run_disabled_tests --gtest_filter='*All*:*Lora*'
  tests towers 60 "$build/tests/cuda/host/gpu_tower_test"
}

# sanitized TOOL NAME PROGRAM FILTER
sanitized() {
  step "$1-$2" 45 compute-sanitizer --tool "$1" --error-exitcode 9 "$build/tests/cuda/$3" \
    --gtest_brief=1 --gtest_filter="$4"
}

# The first test of this call that failed; or HEADRACE_GPU_TEST=PROGRAM:TEST, one of an earlier call.
sanitize_failed() {
  local one name program test
  [ -z "${HEADRACE_GPU_TEST:-}" ] ||
    again+=("${HEADRACE_GPU_TEST%%:*}|$(find "$build" -name "${HEADRACE_GPU_TEST%%:*}")|${HEADRACE_GPU_TEST#*:}")
  [ ${#again[@]} -gt 0 ] || return
  command -v compute-sanitizer >/dev/null || { skip sanitizer "no compute-sanitizer"; return; }
  IFS='|' read -r name program test <<<"${again[0]}"
  step "memcheck-$name" 45 compute-sanitizer --tool memcheck --error-exitcode 9 "$program" \
    --gtest_filter="$test"
}

# Linears of 1 to 620 rows, by every kernel, with and without wgmma; weights of int4, int8 and FP8; experts;
# attention; LoRA; and what ranks do to each other's memory, by kernels that wait for each other.
run_sanitize() {
  local tool
  command -v compute-sanitizer >/dev/null || { skip sanitizer "no compute-sanitizer"; return; }
  for tool in memcheck racecheck synccheck; do
    sanitized $tool ops host/gpu_parity_test \
      '*Linear/bfloat16:*Norm/bfloat16:*Attention*bfloat16*:CudaSample*'
    sanitized $tool quantized host/gpu_quantized_test \
      '*CudaQuantCodes.MatchesTheReference/bfloat16_*_g128_*:*CudaRoundedFormat.MatchesTheReference*'
    sanitized $tool experts host/gpu_moe_test '*CudaExperts.SumWhatTheirLinearsGive*bfloat16*'
    sanitized $tool kernels gpu_kernels_test \
      '*Linear.RowsDoNotDependOn*:*Linear.RowsByWgmma*:*Linear.EveryPlan*:*Linear.PlansGive*:*Lora.*'
  done
  CUDA_MODULE_LOADING=EAGER sanitized memcheck exchanges gpu_kernels_test \
    '*RankExchange.S*:*RankExchange.PartsCome*:*RankExchange.ASum*:*RankExchange.WordsOf*'
}

# Bytes, instructions, and shares of active cycles, of one recorded run of each kernel; those of these
# metrics that this ncu knows.
run_ncu() {
  local part metric known metrics=
  command -v ncu >/dev/null || { skip ncu "no ncu"; return; }
  known=$(timeout 20 ncu --query-metrics 2>/dev/null)
  for metric in dram__bytes.sum lts__t_bytes.sum smsp__inst_executed.sum \
    sm__inst_executed.avg.per_cycle_active sm__warps_active.avg.pct_of_peak_sustained_active \
    sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active; do
    ! grep -q "^${metric%%.*} " <<<"$known" || metrics+=${metrics:+,}$metric
  done
  [ -n "$metrics" ] || { skip ncu "it knows none of the metrics"; return; }
  for part in linears attention quantized; do
    step "ncu-$part" 40 ncu --profile-from-start off --graph-profiling graph --clock-control none \
      --metrics "$metrics" --csv --page raw --print-units base --log-file "$logs/ncu-$part.csv" \
      "$build/benchmarks/cuda/gpu_kernel_bench" --part $part --profile --cublaslt none
    [ ! -e "$logs/ncu-$part.csv" ] ||
      python3 benchmarks/cuda/counts.py "$logs/ncu-$part.log" "$logs/ncu-$part.csv" >>"$rows_file"
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
  [ -z "$linked" ] || rm -f "$linked"
  [ -z "$clocks" ] || { kill $clocks && wait $clocks; } 2>/dev/null
  for log in "$logs"/*.log "$logs"/*.csv; do
    printf '=== %s\n' "$(basename "$log" .log)"
    tail -c 1000000 "$log"
  done >"$out/logs.txt" 2>/dev/null
  {
    conditions
    awk -F, 'NR > 1 && $6 + 0 > 50 {n++; c = $2 + 0; if (!lo || c < lo) lo = c; if (c > hi) hi = c}
      END {if (n) print "clocks while busy: " lo " to " hi " MHz"}' "$out/clocks.csv" 2>/dev/null
    echo "$SECONDS s in all"
    echo
    printf '%s\n' "${steps[@]}"
    [ ${#again[@]} -eq 0 ] || printf '%s\n' "" "failed tests:" "${again[@]##*|}"
    [ ${#cut[@]} -eq 0 ] || printf '\nno time was left for: tests/gpu/run.sh %s\n' "${cut[*]}"
    if [ -e "$rows_file" ]; then
      echo
      python3 benchmarks/cuda/table.py "$rows_file"
    fi
  } >"$out/table.txt" 2>&1
  printf '\n'
  cat "$out/table.txt"
}
trap 'finish; exit $failed' EXIT
trap 'failed=1; [ -z "$child" ] || kill "$child"; exit' INT TERM

for stage in "${stages[@]}"; do
  declare -F "run_$stage" >/dev/null || { echo "there is no stage $stage"; failed=1; exit; }
  "run_$stage"
done
stage=again
run_again
