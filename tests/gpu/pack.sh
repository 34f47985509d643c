#!/usr/bin/env bash
# Builds everything that runs on a GPU for one architecture, and packs it for a machine that has a
# GPU, bash and python3, and nothing else:
#   tests/gpu/pack.sh [BUILD [FILE]]        (default build/gpu, BUILD/pack.tar.xz)
# There, beside the sources, in the same BUILD, tests/gpu/run.sh unpacks and runs it. Without the
# sources: tar -xf FILE, and run tests/gpu/run.sh of what came out.
#
# HEADRACE_GPU_ARCHS (default 90a-real, Hopper): for a BUILD that isn't configured yet; one that is
# stays as it is. HEADRACE_JOBS: how many compilers run at once. HEADRACE_PACK_GOLDENS=0 leaves the
# golden cases out: for where the sources are, too.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
build=$(realpath -m "${1:-build/gpu}")
file=$(realpath -m "${2:-$build/pack.tar.xz}")
case $build in
  "$root"/*) ;;
  *) echo "$build is not in $root: programs look for each other and for goldens there"; exit 1 ;;
esac

if [ ! -e "$build/build.ninja" ]; then
  cmake -G Ninja -S . -B "$build" -DHEADRACE_CUDA=ON \
    -DHEADRACE_CUDA_ARCHS="${HEADRACE_GPU_ARCHS:-90a-real}" -DHEADRACE_BUILD_TESTS=ON \
    -DHEADRACE_BUILD_BENCHMARKS=ON -DCMAKE_BUILD_RPATH_USE_ORIGIN=ON
fi
ninja -C "$build" -j "${HEADRACE_JOBS:-$(nproc)}" gpu_tests

# Programs: the lines of gpu_tests that are paths.
folder=${build#"$root"/}
programs=$(ninja -C "$build" -t query gpu_tests | awk '$1 ~ /\/(gpu_[a-z0-9_]+_(test|bench|probe)|startup_bench)$/ {print $1}')
[ -n "$programs" ] || { echo "$build has no GPU programs: configure it with HEADRACE_CUDA=ON"; exit 1; }
packed=$(mktemp -d)
trap 'rm -rf "$packed"' EXIT
for each in $programs $(cd "$build" && ls libheadrace.so.* libheadrace_cuda.so); do
  mkdir -p "$packed/$folder/$(dirname "$each")"
  strip -o "$packed/$folder/$each" "$build/$each"
done
{
  echo "root $root"
  echo "commit $(git describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)"
  sed -n 's/^HEADRACE_CUDA_ARCHS:[A-Z]*=/archs /p' "$build/CMakeCache.txt"
} | tee "$packed/$folder/pack.txt"
parts=(tests/gpu benchmarks/cuda/{table,counts}.py examples/tiny_model/checkpoint)
[ "${HEADRACE_PACK_GOLDENS:-1}" = 0 ] || parts+=(tests/golden)
tar -cf - "${parts[@]}" | tar -xf - -C "$packed"
# The same kernels are in three programs: a dictionary over all of them finds that.
(cd "$packed" && tar --sort=name --owner=0 --group=0 -cf - *) |
  xz -c --lzma2=preset=3,dict=384MiB >"$file.part"
mv "$file.part" "$file"
echo "$file: $(du -h "$file" | cut -f1)"
