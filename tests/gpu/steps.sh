# What tests/gpu/run.sh runs by: steps with limits, tests that run again, and what remains of all. It
# sets build, root, logs, out and deadline (seconds since its start).

rows_file=$out/rows.jsonl
again_seconds=${HEADRACE_GPU_AGAIN_SECONDS:-60}
longest=${HEADRACE_GPU_STEP_SECONDS:-600}
steps=()
cut=()
again=()
failed=0
stage=
result=
child=

# note RESULT NAME REMARK: a row of the list of steps.
note() {
  steps+=("$(printf '%-8s %-20s %s' "$1" "$2" "$3")")
  printf '%s\n' "${steps[-1]}"
}

# skip NAME WHY: visible, and fatal where a GPU is required.
skip() {
  result=SKIPPED
  note SKIPPED "$1" "$2"
  [ "${HEADRACE_REQUIRE_CUDA:-0}" != 1 ] || failed=1
}

# was_cut STAGE: whether time ended before one of its steps.
was_cut() { case " ${cut[*]} " in *" $1 "*) ;; *) return 1 ;; esac }

# step NAME SECONDS COMMAND...: runs it; its last line is the remark.
step() {
  local name=$1 limit=$2 log=$logs/$1.log begin=$SECONDS left=$((deadline - SECONDS))
  shift 2
  [ $left -gt 5 ] || {
    skip "$name" "no time was left"
    was_cut "$stage" || cut+=("$stage")
    return 1
  }
  result=ok
  [ "$limit" -le "$longest" ] || limit=$longest
  [ "$limit" -le $left ] || limit=$left
  # In the background: a signal to this script is heard at once.
  timeout -k 5 "$limit" "$@" >"$log" 2>&1 &
  child=$!
  wait $child
  case $? in
    0) ;;
    124 | 137) result=TIMEOUT ;;
    127) result="FAILED" && echo "not built, or not installed: $1" >>"$log" ;;
    *) result=FAILED ;;
  esac
  if [ "$result" != ok ]; then
    failed=1
    printf -- '--- %s\n' "$log"
    tail -n "${HEADRACE_GPU_TAIL:-12}" "$log"
  fi
  note "$result" "$name" "$((SECONDS - begin)) s; $(grep -av '^\s*$' "$log" | tail -n 1 | cut -c1-100)"
  [ "$result" = ok ]
}

# Of a GoogleTest log: names of the tests that began; that failed; that began and never ended.
began() { sed -n 's/^\[ RUN      \] //p' "$1"; }
failed_tests() {
  sed -nE 's/^\[  FAILED  \] ([A-Za-z0-9_/]+\.[A-Za-z0-9_/]+).*/\1/p' "$1" | sort -u
}
unended() {
  awk '/^\[ RUN      \]/ {open[$4] = 1}
    /^\[       OK \]/ {delete open[$4]}
    /^\[  FAILED  \]|^\[  SKIPPED \]/ {sub(",$", "", $4); delete open[$4]}
    END {for (test in open) print test}' "$1"
}

# sharded PROCESSES PROGRAM...: a test program's tests in so many processes at once; their output is
# one behind the other.
sharded() {
  local count=$1 index pids=() status=0
  shift
  folder=$(mktemp -d)
  trap 'cat "$folder"/*; rm -rf "$folder"' EXIT
  trap exit TERM
  for ((index = 0; index < count; ++index)); do
    GTEST_TOTAL_SHARDS=$count GTEST_SHARD_INDEX=$index "$@" >"$folder/$index" 2>&1 &
    pids+=($!)
  done
  for index in "${pids[@]}"; do
    wait "$index" || status=$?
  done
  echo "$(cat "$folder"/* | grep -ac '^\[       OK') passed in $count processes" >"$folder/all"
  exit $status
}
export -f sharded

# tests NAME SECONDS PROGRAM [FILTER [PROCESSES]]: a test program. A test that takes the process with
# it costs those behind it nothing: they run in another one, five times at most. Failed ones run again
# at the end (run_again), but none that only ran out of time: it would again.
tests() {
  local name=$1 limit=$2 program=$3 filter=${4:-*} begin=$SECONDS part=1 log lost test command
  while :; do
    log=$name
    [ $part = 1 ] || log=$name-$part
    command=("$program" --gtest_filter="$filter")
    [ "${5:-1}" = 1 ] || command=(bash -c 'sharded "$@"' sharded "$5" "${command[@]}")
    step "$log" $((limit - (SECONDS - begin))) "${command[@]}" && return
    log=$logs/$log.log
    [ "$result" != SKIPPED ] || return 1
    lost=$(unended "$log")
    [ "$result" = FAILED ] || {
      note "" "" "time ran out in $(paste -sd' ' <<<"$lost")"
      lost=
    }
    for test in $(failed_tests "$log") $lost; do
      again+=("$name|$program|$test")
      printf '{"failed_test": "%s", "program": "%s"}\n' "$test" "$name" >>"$rows_file"
    done
    [ -n "$lost" ] && [ $part -lt 5 ] && [ $((limit - (SECONDS - begin))) -gt 0 ] || return 1
    case $filter in
      *-*) filter+=: ;;
      *) filter+=- ;;
    esac
    filter+=$(began "$log" | paste -sd:)
    part=$((part + 1))
  done
}

# Each failed test once more, in a process of its own: whether it fails alone, too.
run_again() {
  local begin=$SECONDS one name program test left count=0
  export CUDA_MODULE_LOADING=EAGER
  for one in "${again[@]}"; do
    left=$((again_seconds - (SECONDS - begin)))
    [ $left -gt 0 ] && [ $((deadline - SECONDS)) -gt 5 ] || {
      note SKIPPED again "$((${#again[@]} - count)) failed tests are left"
      return
    }
    IFS='|' read -r name program test <<<"$one"
    [ $left -le 20 ] || left=20
    step "$name-${test//[\/.]/-}" $left "$program" --gtest_filter="$test"
    count=$((count + 1))
  done
}
